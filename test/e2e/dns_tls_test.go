package e2e

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// TestHostCertificateMatchesDNSName verifies that the certificate of a host must match its DNS
// name, not its address, in STRICT_DNS and LOGICAL_DNS clusters.
func TestHostCertificateMatchesDNSName(t *testing.T) {
	t.Parallel()
	certs := newCertDir(t)
	tlsContext := certs.issue("app", testpki.Spec{DNS: []string{"app.example"}})
	pair, err := tls.X509KeyPair(tlsContext.Cert, tlsContext.Key)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: respondWith("verified"), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() {
		_ = s.Close() // ServeTLS returns the error
		<-ended
	})
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	server := startDNSServer(t, "127.0.0.1")
	front := freeAddress()
	dnsCluster := func(name, discovery, address string) object {
		return cluster(name, object{
			"type": discovery, "dns_refresh_rate": "1s", "dns_resolvers": list{server.address},
			"tls_context": object{"status": true, "ca_cert": certs.path("ca.pem")},
		}, address+":"+port)
	}
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables: list{routeTable("front",
			routeTo("/strict/other", "strict-other"), routeTo("/strict", "strict"), routeTo("/logical/other", "logical-other"), routeTo("/logical", "logical"))},
		clusters: list{
			dnsCluster("strict", "STRICT_DNS", "app.example"), dnsCluster("strict-other", "STRICT_DNS", "other.example"),
			dnsCluster("logical", "LOGICAL_DNS", "app.example"), dnsCluster("logical-other", "LOGICAL_DNS", "other.example"),
		},
	}.config())
	c := newClient(t)
	for path, want := range map[string]int{"/strict": 200, "/strict/other": 502, "/logical": 200, "/logical/other": 502} {
		if got := sendRequest(t, c, "GET", "http://"+front+path, ""); got.status != want {
			t.Errorf("%s: %d %q, want %d", path, got.status, got.body, want)
		}
	}
	for _, name := range []string{"strict-other", "logical-other"} {
		if n := w.metric("weft_cluster_tls_handshakes_total", `cluster="`+name+`"`); n < 1 {
			t.Errorf("the handshakes of %s were not counted", name)
		}
	}
}
