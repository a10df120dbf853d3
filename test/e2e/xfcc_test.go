package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// forgedCertificates are headers that claim the certificate of another client.
var forgedCertificates = []string{
	"X-Forwarded-Client-Cert: Hash=forged;URI=spiffe://shop/root", "x-forwarded-client-cert: By=a,Hash=\"b", "X_Forwarded_Client_Cert: Hash=variant",
}

// TestForwardedClientCertificate verifies for each mode which certificates Weft reports to
// the upstream, over HTTP/1.1 and HTTP/2, when the client sends forged headers.
func TestForwardedClientCertificate(t *testing.T) {
	t.Parallel()
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{DNS: []string{"app.shop"}, IPs: []string{"127.0.0.1"}, URIs: []string{"spiffe://shop/gate"}})
	cart := certs.issue("cart", testpki.Spec{CommonName: "cart, \"the\" first", DNS: []string{"cart.shop"}, URIs: []string{"spiffe://shop/cart"}})
	sum := sha256.Sum256(cart.TLS.Certificate[0])
	hash := hex.EncodeToString(sum[:])
	element := "By=spiffe://shop/gate;Hash=" + hash + `;Subject="CN=cart\, \22the\22 first";URI=spiffe://shop/cart;DNS=cart.shop`
	const forged = "Hash=forged;URI=spiffe://shop/root"
	app := startUpstream(t, describeRequest)
	s := setup{clusters: list{cluster("app", nil, app.address)}, tables: list{routeTable("all", routeTo("/", "app"))}}
	addresses := map[string]string{}
	for _, mode := range []string{"", "SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET", "ALWAYS_FORWARD_ONLY"} {
		addresses[mode] = freeAddress()
		extend := object{}
		if mode != "" {
			extend["forward_client_cert_details"] = mode
		}
		if mode == "APPEND_FORWARD" || mode == "SANITIZE_SET" {
			extend["set_current_client_cert_details"] = object{"subject": true, "uri": true, "dns": true}
		}
		l := tlsListener("front"+mode, addresses[mode], certs.context("server", object{"verify_client": true}))
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
			name     string
			curlArgs []string // arguments of curl
		}{
			{"with a certificate", []string{"--cert", certs.path("cart.pem"), "--key", certs.path("cart.key")}}, {"without a certificate", nil},
		} {
			for _, version := range []string{"--http1.1", "--http2"} {
				args := append([]string{"--silent", "--show-error", "--max-time", "20", version, "--cacert", certs.path("ca.pem")}, c.curlArgs...)
				for _, f := range forgedCertificates {
					args = append(args, "--header", f)
				}
				out, err := exec.CommandContext(t.Context(), "curl", append(args, "https://"+addresses[mode]+"/")...).CombinedOutput()
				if err != nil {
					t.Fatalf("curl: %v\n%s", err, out)
				}
				text := string(out)
				if w := want[i]; (w == "") == strings.Contains(strings.ToLower(text), "-client-cert:") || !strings.Contains(text, w) {
					t.Errorf("%q %s, %s: the upstream got\n%s, want %q", mode, c.name, version, text, w)
				}
				if mode != "ALWAYS_FORWARD_ONLY" && strings.Contains(text, "variant") {
					t.Errorf("%q %s, %s: a variant of the header name passed\n%s", mode, c.name, version, text)
				}
			}
		}
	}
}

// TestForwardedClientCertificateOnResumption verifies that a resumed session forwards the same
// certificate as the session that it resumes.
func TestForwardedClientCertificateOnResumption(t *testing.T) {
	t.Parallel()
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{IPs: []string{"127.0.0.1"}, URIs: []string{"spiffe://shop/gate"}})
	certs.issue("cart", testpki.Spec{URIs: []string{"spiffe://shop/cart"}})
	app, front := startUpstream(t, describeRequest), freeAddress()
	l := tlsListener("front", front, certs.context("server", object{"verify_client": true}))
	l["filter_chains"].(list)[0].(object)["filters"] = list{object{"type": "proxy", "config": object{
		"downstream_protocol": "Http1", "router_config_name": "front", "extend_config": object{
			"forward_client_cert_details": "SANITIZE_SET", "set_current_client_cert_details": object{"uri": true, "chain": true}}}}}
	startWeft(t, setup{listeners: list{l}, tables: list{routeTable("front", routeTo("/", "app"))}, clusters: list{cluster("app", nil, app.address)}}.config())
	session := certs.path("session")
	first := ""
	for i, resume := range []string{"-sess_out", "-sess_in"} {
		cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", front, "-CAfile", certs.path("ca.pem"), "-cert", certs.path("cart.pem"), "-key", certs.path("cart.key"),
			"-ign_eof", resume, session)
		cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("openssl: %v\n%s", err, out)
		}
		_, received, _ := strings.Cut(string(out), "X-Forwarded-Client-Cert: ")
		received, _, _ = strings.Cut(received, "\n")
		if !strings.HasPrefix(received, "By=spiffe://shop/gate;Hash=") || !strings.Contains(received, "BEGIN%20CERTIFICATE") || !strings.Contains(received, "URI=spiffe://shop/cart") {
			t.Fatalf("connection %d forwards %q; want prefix \"By=spiffe://shop/gate;Hash=\", \"BEGIN%%20CERTIFICATE\", \"URI=spiffe://shop/cart\"", i, received)
		}
		if i == 0 {
			first = received
		} else if received != first || !strings.Contains(string(out), "Reused, ") {
			t.Errorf("the resumed session forwards\n%q, want\n%q; reused: %t", received, first, strings.Contains(string(out), "Reused, "))
		}
	}
}
