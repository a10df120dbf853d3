package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// sdsServer is an SDS server on a Unix socket, like the agent of a node.
type sdsServer struct {
	path    string
	secrets *cache.LinearCache
}

func newSDSServer(t testing.TB) *sdsServer {
	t.Helper()
	s := &sdsServer{path: filepath.Join(t.TempDir(), "sds"), secrets: cache.NewLinearCache(resource.SecretType)}
	ln, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(g, server.NewServer(ctx, s.secrets, nil))
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(ln) }) // ends with Stop
	t.Cleanup(func() { cancel(); g.Stop(); serving.Wait() })
	return s
}

// serve replaces the secrets with the secrets of the account.
func (s *sdsServer) serve(t testing.TB, m *meshCA, account string) {
	t.Helper()
	for _, secret := range m.secrets(account) {
		if err := s.secrets.UpdateResource(secret.GetName(), secret); err != nil {
			t.Fatal(err)
		}
	}
}

// withCluster adds the agent's cluster to a bootstrap.
func (s *sdsServer) withCluster(bootstrap string) string {
	const before = `"static_resources": {"clusters": [`
	return strings.Replace(bootstrap, before, before+fmt.Sprintf(`{"name": "agent", "type": "STATIC", "load_assignment": {"cluster_name": "agent", "endpoints": [
      {"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": %q}}}}]}]}}, `, s.path), 1)
}

// withTLSContext makes a listener use the certificate of the agent.
func withTLSContext(l *listenerv3.Listener, api corev3.ApiConfigSource_ApiType) *listenerv3.Listener {
	l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: mustAny(&tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "default", SdsConfig: &corev3.ConfigSource{
				ResourceApiVersion: corev3.ApiVersion_V3,
				ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
					ApiType: api, TransportApiVersion: corev3.ApiVersion_V3,
					GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
						EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "agent"},
					}}},
				}},
			}}},
		}}),
	}}
	return l
}

// tlsClient is a TLS client that does not verify the server and counts its connections.
type tlsClient struct {
	http.Client

	opened atomic.Int64
}

func newTLSClient(t testing.TB, disableKeepAlives bool) *tlsClient {
	c := &tlsClient{}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // mesh certificates have no host names
		DisableKeepAlives: disableKeepAlives,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c.opened.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	c.Transport, c.Timeout = transport, waitTimeout
	return c
}

// accountMismatch returns "" if the server presents a certificate of the account, or a description
// of the mismatch.
func accountMismatch(address, account string) string {
	presented := ""
	conn, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, // as above
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			cert, err := x509.ParseCertificate(raw[0])
			if err == nil {
				presented = cert.URIs[0].Path
			}
			return err
		},
	})
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	if !strings.HasSuffix(presented, "/"+account) {
		return fmt.Sprintf("the certificate is for %s, want %s", presented, account)
	}
	return ""
}

// TestSecretsRotateUnderLoad verifies that no request fails and no connection is closed while
// certificates from an agent change, and that new connections get the new certificate.
func TestSecretsRotateUnderLoad(t *testing.T) {
	for apiType, api := range map[string]corev3.ApiConfigSource_ApiType{"GRPC": corev3.ApiConfigSource_GRPC, "DELTA_GRPC": corev3.ApiConfigSource_DELTA_GRPC} {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p, host, m, a := newControlPlane(t), newHost(), newMeshCA(t), newSDSServer(t)
			address := host + ":10443"
			w := startWeft(t, a.withCluster(bootstrap(apiType, p.address, host+":9901")), nil)
			p.put(edsCluster("app"), endpointsOf("app", startOrigin(t, "app")), withTLSContext(httpListener("front", address, "routes"), api), routeTable("routes", routeTo("/", "app")))
			p.publish()
			p.await(0, func(a ack) bool { return a.typeName == "RouteConfiguration" })
			if conn, err := net.Dial("tcp", address); err == nil {
				_ = conn.Close()
				t.Error("the listener is open without its certificate")
			}
			a.serve(t, m, "account-0")
			eventually(t, func() string { return accountMismatch(address, "account-0") })

			ctx, stop := context.WithCancel(t.Context())
			var load sync.WaitGroup
			var served atomic.Int64
			var persistent []*tlsClient
			for i := range 4 {
				c := newTLSClient(t, i%2 == 0)
				if i%2 == 1 {
					persistent = append(persistent, c)
				}
				load.Go(func() {
					ticker := time.NewTicker(5 * time.Millisecond)
					defer ticker.Stop()
					for ctx.Err() == nil {
						if text, err := get(t.Context(), &c.Client, "https://"+address+"/"); err != nil || text != "app" {
							t.Errorf("under load: %q, %v; want \"app\", nil", text, err)
							return
						}
						served.Add(1)
						<-ticker.C
					}
				})
			}
			for i := range 5 {
				account := fmt.Sprintf("account-%d", i+1)
				a.serve(t, m, account)
				eventually(t, func() string { return accountMismatch(address, account) })
				target := served.Load() + 25
				eventually(t, func() string {
					if n := served.Load(); n < target {
						return fmt.Sprintf("served %d requests, want %d", n, target)
					}
					return ""
				})
			}
			stop()
			load.Wait()
			for _, c := range persistent {
				if n := c.opened.Load(); n != 1 {
					t.Errorf("a client with a persistent connection opened %d connections, want 1", n)
				}
			}
			if served.Load() < 100 {
				t.Errorf("served only %d requests, want at least 100", served.Load())
			}
			if nacks := p.nacks(); len(nacks) > 0 {
				t.Errorf("rejected: %v, want none", nacks)
			}
			if strings.Contains(w.log.String(), "PRIVATE KEY") {
				t.Error("the log contains a private key")
			}
		})
	}
}
