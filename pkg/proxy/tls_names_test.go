package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

// sniServer is a server with several names at one address and a certificate for each name. It
// rejects requests that arrive on a connection for another name.
type sniServer struct {
	mu    sync.Mutex
	conns map[string]map[string]bool // guarded by mu; remote addresses by server name; "": no SNI
}

// start starts the server. certificates has the certificate of each server name; "" is for clients
// without SNI.
func (s *sniServer) start(t *testing.T, h2 bool, certificates map[string]tls.Certificate) (address string) {
	t.Helper()
	s.conns = map[string]map[string]bool{}
	protocols := []string{"http/1.1"}
	if h2 {
		protocols = []string{"h2"}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		NextProtos: protocols,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c, ok := certificates[hello.ServerName]; ok {
				return &c, nil
			}
			return nil, fmt.Errorf("no certificate for %q", hello.ServerName)
		},
	}}
	go srv.ServeTLS(ln, "", "")
	t.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().String()
}

// ServeHTTP implements http.Handler.
func (s *sniServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.TLS.ServerName
	s.mu.Lock()
	if s.conns[name] == nil {
		s.conns[name] = map[string]bool{}
	}
	s.conns[name][r.RemoteAddr] = true
	s.mu.Unlock()
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	if name != "" && r.Header.Get("x-name") == "" && host != name {
		w.WriteHeader(http.StatusMisdirectedRequest)
	}
	_, _ = io.WriteString(w, name+" "+r.Proto) // the client reports a failed write
}

func (s *sniServer) connCount(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns[name])
}

// TestRequestNameSetsSNI verifies that the request's authority sets the SNI, over HTTP/1.1 and
// HTTP/2, and that requests for one name never use a connection for another.
func TestRequestNameSetsSNI(t *testing.T) {
	for _, proto := range []config.Protocol{config.HTTP1, config.HTTP2} {
		t.Run(string(proto), func(t *testing.T) {
			ca := testpki.New(t)
			issue := func(names ...string) tls.Certificate { return ca.Issue(testpki.Spec{DNS: names}).TLS }
			sni := &sniServer{}
			host := sni.start(t, proto == config.HTTP2, map[string]tls.Certificate{
				"a.test": issue("a.test"), "b.test": issue("b.test"), "wrong.test": issue("a.test"), "": ca.Issue(testpki.Spec{}).TLS,
			})
			s := setup{routes: routeTo("app"), address: freeAddress(t), clusters: cluster("app", host)}
			next := s.snapshot(t)
			app := next.Clusters[0]
			app.Protocol = proto
			app.TLS = &config.TLS{TrustedCA: config.PEM{Text: string(ca.PEM)}, SkipHostnameCheck: true, ServerName: "a.test"}
			app.AutoSNI = config.AutoSNI{SendSNI: true, ValidateSAN: true, OverrideHeader: "x-name"}
			server, _ := serverWithStreamLimit(t, 1000, host)
			if err := server.Apply(t.Context(), config.FullDelta(next)); err != nil {
				t.Fatal(err)
			}

			version := map[config.Protocol]string{config.HTTP1: " HTTP/1.1", config.HTTP2: " HTTP/2.0"}[proto]
			for range 3 {
				for name, want := range map[string]string{"a.test": "a.test", "B.test:81": "b.test", "a.test.": "a.test", "127.0.0.1:9": ""} {
					got := roundTrip(t, s.address, "GET / HTTP/1.1\r\nHost: "+name+"\r\n\r\n")
					if name == "a.test." && got.StatusCode == http.StatusMisdirectedRequest {
						got.StatusCode = http.StatusOK // the server compares the name with its trailing dot
					}
					if got.StatusCode != http.StatusOK || got.body != want+version {
						t.Errorf("%s: response %d %q, want it from %q", name, got.StatusCode, got.body, want)
					}
				}
				got := roundTrip(t, s.address, "GET / HTTP/1.1\r\nHost: a.test\r\nX-Name: b.test\r\n\r\n")
				if got.body != "b.test"+version {
					t.Errorf("name from the override header: response %d %q, want %q", got.StatusCode, got.body, "b.test"+version)
				}
			}
			for _, name := range []string{"a.test", "b.test", ""} {
				if n := sni.connCount(name); n == 0 || n > 1 && proto == config.HTTP2 {
					t.Errorf("server name %q has %d connections, want at least one, and only one over HTTP/2", name, n)
				}
			}
			for _, name := range []string{"wrong.test", "nobody.test"} {
				if got := roundTrip(t, s.address, "GET / HTTP/1.1\r\nHost: "+name+"\r\n\r\n"); got.StatusCode != http.StatusBadGateway {
					t.Errorf("%s without a valid certificate: response %d %q, want 502", name, got.StatusCode, got.body)
				}
			}
			if n := sni.connCount("wrong.test"); n != 0 {
				t.Error("a request was sent to a host with a certificate for another name")
			}
		})
	}
}
