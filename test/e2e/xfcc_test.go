package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// forgedCertificates are headers with which a client claims the certificate of another one.
var forgedCertificates = []string{
	"X-Forwarded-Client-Cert: Hash=forged;URI=spiffe://shop/root", "x-forwarded-client-cert: By=a,Hash=\"b", "X_Forwarded_Client_Cert: Hash=spelt",
}

// TestForwardedClientCertificate verifies for each mode which certificates Weft reports to
// the upstream, over HTTP/1.1 and HTTP/2, when the client sends forged headers.
func TestForwardedClientCertificate(t *testing.T) {
	t.Parallel()
	v := newCertDir(t)
	v.issue("server", testpki.Spec{DNS: []string{"app.shop"}, IPs: []string{"127.0.0.1"}, URIs: []string{"spiffe://shop/gate"}})
	cart := v.issue("cart", testpki.Spec{CommonName: "cart, \"the\" one", DNS: []string{"cart.shop"}, URIs: []string{"spiffe://shop/cart"}})
	sum := sha256.Sum256(cart.TLS.Certificate[0])
	hash := hex.EncodeToString(sum[:])
	element := "By=spiffe://shop/gate;Hash=" + hash + `;Subject="CN=cart\, \22the\22 one";URI=spiffe://shop/cart;DNS=cart.shop`
	const forged = "Hash=forged;URI=spiffe://shop/root"
	app := startUpstream(t, describeRequest)
	s := setup{clusters: list{cluster("app", nil, app.address)}, tables: list{routeTable("all", routeTo("/", "app"))}}
	address := map[string]string{}
	for _, mode := range []string{"", "SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET", "ALWAYS_FORWARD_ONLY"} {
		address[mode] = freeAddress()
		extend := object{}
		if mode != "" {
			extend["forward_client_cert_details"] = mode
		}
		if mode == "APPEND_FORWARD" || mode == "SANITIZE_SET" {
			extend["set_current_client_cert_details"] = object{"subject": true, "uri": true, "dns": true}
		}
		l := tlsListener("front"+mode, address[mode], v.context("server", object{"verify_client": true}))
		l["filter_chains"].(list)[0].(object)["filters"] = list{object{"type": "proxy", "config": object{
			"downstream_protocol": "Auto", "upstream_protocol": "Http1", "router_config_name": "all", "extend_config": extend}}}
		s.listeners = append(s.listeners, l)
	}
	startWeft(t, s.config())
	for mode, want := range map[string][2]string{ // for a client with a certificate, and without one
		"": {}, "SANITIZE": {}, "FORWARD_ONLY": {forged, ""}, "SANITIZE_SET": {element, ""}, "ALWAYS_FORWARD_ONLY": {forged, forged},
		"APPEND_FORWARD": {element, ""}, // the header of the client has an open quote
	} {
		for i, c := range []struct {
			name  string
			shows []string // arguments of curl
		}{
			{"with a certificate", []string{"--cert", v.path("cart.pem"), "--key", v.path("cart.key")}}, {"without", nil},
		} {
			for _, version := range []string{"--http1.1", "--http2"} {
				args := append([]string{"--silent", "--show-error", "--max-time", "20", version, "--cacert", v.path("ca.pem")}, c.shows...)
				for _, f := range forgedCertificates {
					args = append(args, "--header", f)
				}
				out, err := exec.CommandContext(t.Context(), "curl", append(args, "https://"+address[mode]+"/")...).CombinedOutput()
				if err != nil {
					t.Fatalf("curl: %v\n%s", err, out)
				}
				text := string(out)
				if w := want[i]; (w == "") == strings.Contains(strings.ToLower(text), "-client-cert:") || !strings.Contains(text, w) {
					t.Errorf("%q %s, %s: the application got\n%s, want %q", mode, c.name, version, text, w)
				}
				if mode != "ALWAYS_FORWARD_ONLY" && strings.Contains(text, "spelt") {
					t.Errorf("%q %s, %s: another spelling has passed\n%s", mode, c.name, version, text)
				}
			}
		}
	}
}

// TestForwardedClientCertificateOnResumption verifies that a resumed session forwards the same
// certificate as the session that it resumes.
func TestForwardedClientCertificateOnResumption(t *testing.T) {
	t.Parallel()
	v := newCertDir(t)
	v.issue("server", testpki.Spec{IPs: []string{"127.0.0.1"}, URIs: []string{"spiffe://shop/gate"}})
	v.issue("cart", testpki.Spec{URIs: []string{"spiffe://shop/cart"}})
	app, front := startUpstream(t, describeRequest), freeAddress()
	l := tlsListener("front", front, v.context("server", object{"verify_client": true}))
	l["filter_chains"].(list)[0].(object)["filters"] = list{object{"type": "proxy", "config": object{
		"downstream_protocol": "Http1", "router_config_name": "front", "extend_config": object{
			"forward_client_cert_details": "SANITIZE_SET", "set_current_client_cert_details": object{"uri": true, "chain": true}}}}}
	startWeft(t, setup{listeners: list{l}, tables: list{routeTable("front", routeTo("/", "app"))}, clusters: list{cluster("app", nil, app.address)}}.config())
	session := v.path("session")
	first := ""
	for i, resume := range []string{"-sess_out", "-sess_in"} {
		cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", front, "-CAfile", v.path("ca.pem"), "-cert", v.path("cart.pem"), "-key", v.path("cart.key"),
			"-ign_eof", resume, session)
		cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("openssl: %v\n%s", err, out)
		}
		_, received, _ := strings.Cut(string(out), "X-Forwarded-Client-Cert: ")
		received, _, _ = strings.Cut(received, "\n")
		if !strings.HasPrefix(received, "By=spiffe://shop/gate;Hash=") || !strings.Contains(received, "BEGIN%20CERTIFICATE") || !strings.Contains(received, "URI=spiffe://shop/cart") {
			t.Fatalf("connection %d tells %q", i, received)
		}
		if i == 0 {
			first = received
		} else if received != first || !strings.Contains(string(out), "Reused, ") {
			t.Errorf("the session that goes on tells\n%q, not\n%q; reused: %t", received, first, strings.Contains(string(out), "Reused, "))
		}
	}
}
