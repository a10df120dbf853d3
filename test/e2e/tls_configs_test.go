package e2e

import (
	"net"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// exampleCertDir returns a certDir with the certificates of the TLS examples. Its directory is
// their ${CERTS}.
func exampleCertDir(t *testing.T) *certDir {
	t.Helper()
	certs := newCertDir(t)
	certs.issue("shop", testpki.Spec{CommonName: "shop", DNS: []string{"shop.example", "localhost"}, IPs: []string{"127.0.0.1"}})
	certs.issue("api", testpki.Spec{CommonName: "api", DNS: []string{"*.api.example"}})
	certs.issue("front", testpki.Spec{URIs: []string{"spiffe://shop/ns/default/sa/front"}})
	certs.issue("orders", testpki.Spec{URIs: []string{"spiffe://shop/ns/default/sa/orders"}})
	return certs
}

func tlsExample(t *testing.T) {
	certs := exampleCertDir(t)
	e := loadExample(t, "tls.json")
	w := e.run("tls.json", "CERTS="+certs.dir)
	address := e.address("2443")
	_, port, _ := net.SplitHostPort(address)
	if got := sendRequest(t, certs.client(), "GET", "https://localhost:"+port+"/", ""); got.status != 200 || got.body != "over TLS\n" {
		t.Errorf("over TLS: %d %q; want 200 \"over TLS\"", got.status, got.body)
	}
	if got := sendRequest(t, newClient(t), "GET", "http://"+address+"/a", ""); got.status != 301 || !strings.HasPrefix(got.header.Get("Location"), "https://") {
		t.Errorf("plaintext: %d, Location %q; want a redirect to https", got.status, got.header.Get("Location"))
	}
	for name, want := range map[string]string{"shop.example": "shop", "v1.api.example": "api", "": "shop"} {
		if got := presentedNameFor(t, certs, address, name); got != want {
			t.Errorf("SNI %q: the listener presents %q, want %q", name, got, want)
		}
	}
	w.stdout.await(t, 0, "200 TLSv1.3 localhost h2")
}

func mtlsExample(t *testing.T) {
	certs := exampleCertDir(t)
	other := certs.ca.Issue(testpki.Spec{URIs: []string{"spiffe://shop/ns/default/sa/other"}})
	e := loadExample(t, "mtls.json")
	e.run("mtls.json", "CERTS="+certs.dir)
	got := sendRequest(t, newClient(t), "GET", "http://"+e.address("2045")+"/", "", "X-Forwarded-Client-Cert: Hash=forged")
	if got.body != "orders\n" {
		t.Errorf("through both sidecars: %d %q; want \"orders\"", got.status, got.body)
	}
	if xfcc := got.header.Get("X-Seen"); !strings.HasPrefix(xfcc, "By=spiffe://shop/ns/default/sa/orders;Hash=") || !strings.HasSuffix(xfcc, ";URI=spiffe://shop/ns/default/sa/front") {
		t.Errorf("the upstream got %q, want the certificates of orders and front", xfcc)
	}
	c := certs.client(other.TLS)
	skipVerify(c)
	if resp, err := tryRequest(t.Context(), c, "GET", "https://"+e.address("2046")+"/", ""); err == nil {
		t.Errorf("other application accepted: %+v, want an error", resp)
	}
}
