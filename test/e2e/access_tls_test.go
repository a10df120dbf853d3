package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// testCA is a certificate authority that issues server and client certificates.
type testCA struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newTestCA returns a testCA with a new key.
func newTestCA(t *testing.T) *testCA {
	t.Helper()
	ca := &testCA{t: t}
	template := ca.template("test CA")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	ca.cert, ca.key = template, ca.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, ca.key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return ca
}

func (ca *testCA) newKey() *ecdsa.PrivateKey {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	return key
}

func (ca *testCA) template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

// issue returns a certificate and its key as PEM. uri may be "".
func (ca *testCA) issue(name, uri string) (cert, key string) {
	ca.t.Helper()
	c := ca.template(name)
	c.DNSNames, c.IPAddresses = []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			ca.t.Fatal(err)
		}
		c.URIs = []*url.URL{u}
	}
	leafKey := ca.newKey()
	der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, leafKey.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		ca.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

func (ca *testCA) caPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}))
}

// clientTLS returns the TLS configuration of a client. With uri "" the client has no certificate.
func (ca *testCA) clientTLS(name, uri, server string) *tls.Config {
	ca.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	c := &tls.Config{RootCAs: roots, ServerName: server}
	if uri == "" {
		return c
	}
	cert, key := ca.issue(name, uri)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		ca.t.Fatal(err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c
}

// TestRBACMatchesClientCertificate verifies that rbac policies match the client certificate and the
// SNI, in HTTP and in Dubbo.
func TestRBACMatchesClientCertificate(t *testing.T) {
	t.Parallel()
	const cart, bank = "spiffe://shop.test/ns/shop/sa/cart", "spiffe://shop.test/ns/bank/sa/pay"
	ca := newTestCA(t)
	cert, key := ca.issue("app.test", "")
	secured := object{"tls_context": object{"status": true, "cert_chain": cert, "private_key": key, "ca_cert": ca.caPEM(), "verify_client": true}}
	rules := streamFilter("rbac", object{"rules": object{"policies": object{"shop": object{
		"permissions": list{object{"requested_server_name": object{"exact": "app.test"}}},
		"principals":  list{object{"authenticated": object{"principal_name": object{"prefix": "spiffe://shop.test/ns/shop/"}}}},
	}}}})
	app, shop := startUpstream(t, describeRequest), startProvider(t, "shop", nil)
	http1, rpc := freeAddress(), freeAddress()
	tlsListener := func(name, address, protocol, table string) object {
		return object{"name": name, "address": address, "stream_filters": list{rules}, "filter_chains": list{object{
			"filters": list{object{"type": "proxy", "config": object{
				"downstream_protocol": protocol, "upstream_protocol": protocol, "router_config_name": table}}},
		}.with(secured)}}
	}
	startWeft(t, setup{
		listeners: list{tlsListener("http", http1, "Http1", "http"), tlsListener("rpc", rpc, "dubbo", "rpc")},
		tables:    list{routeTable("http", routeTo("/", "app")), routeTable("rpc", routeTo("/", "shop"))},
		clusters:  list{cluster("app", nil, app.address), cluster("shop", nil, shop.address)},
	}.config())
	for _, c := range []struct {
		name      string
		tlsConfig *tls.Config
		allowed   bool
	}{
		{"same namespace", ca.clientTLS("cart", cart, "app.test"), true},
		{"other namespace", ca.clientTLS("pay", bank, "app.test"), false},
		{"no certificate", ca.clientTLS("", "", "app.test"), false},
		{"other SNI", ca.clientTLS("cart", cart, "127.0.0.1"), false}, // a client does not send an IP address as SNI
	} {
		t.Run(c.name, func(t *testing.T) {
			client := newClient(t)
			client.Transport = &http.Transport{TLSClientConfig: c.tlsConfig, DisableKeepAlives: true}
			if got, want := sendRequest(t, client, "GET", "https://"+http1, "").status, map[bool]int{true: 200, false: 403}[c.allowed]; got != want {
				t.Errorf("HTTP: %d, want %d", got, want)
			}
			conn, err := tls.Dial("tcp", rpc, c.tlsConfig)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(waitTimeout))
			if _, err := conn.Write(invocation{service: "org.example.Shop", method: "buy"}.frame(1)); err != nil {
				t.Fatal(err)
			}
			response, err := readDubbo(bufio.NewReader(conn))
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]byte{true: dubboOK, false: 70}[c.allowed]; response[3] != want {
				t.Errorf("Dubbo: %d, want %d", response[3], want)
			}
		})
	}
}
