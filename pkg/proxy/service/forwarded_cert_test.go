package service

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// cartCertificate returns a client certificate.
func cartCertificate() *protocol.Certificate {
	return &protocol.Certificate{
		Subject: "CN=cart,O=Shop", Fingerprint: "c0ffee", Raw: [][]byte{{1}, {2}},
		URISANs: []string{"spiffe://shop/cart", "spiffe://shop/other"}, DNSSANs: []string{"cart.shop", "www.cart.shop"},
	}
}

func TestClientCertificatesAreForwarded(t *testing.T) {
	const forged, repeated = "X-Forwarded-Client-Cert: Hash=forged", "x-forwarded-client-cert: Hash=again"
	const variant = "X_Forwarded_Client-Cert: Hash=variant"
	all := config.XFCC{Mode: config.XFCCSet, Subject: true, Cert: true, Chain: true, DNS: true, URI: true}
	pem := (&protocol.Certificate{Raw: [][]byte{{1}}}).EscapedPEM(false)
	chain := (&protocol.Certificate{Raw: [][]byte{{1}, {2}}}).EscapedPEM(true)
	for _, test := range []struct {
		name    string
		c       config.XFCC
		peer    *protocol.Certificate // nil: no client certificate
		headers []string
		want    string // the header and similar headers
	}{
		{"sanitize by default", config.XFCC{}, cartCertificate(), []string{forged, repeated, variant}, ""},
		{"sanitize by default, no certificate", config.XFCC{}, nil, []string{forged, variant}, ""},
		{"forward only", config.XFCC{Mode: config.XFCCForward}, cartCertificate(), []string{forged, repeated, variant}, forged + "\n" + repeated + "\n"},
		{"forward only, no certificate", config.XFCC{Mode: config.XFCCForward}, nil, []string{forged, variant}, ""},
		{"always forward", config.XFCC{Mode: config.XFCCAlwaysForward}, nil, []string{forged}, forged + "\n"},
		{"append", config.XFCC{Mode: config.XFCCAppend, URI: true}, cartCertificate(), []string{forged, repeated, variant},
			"X-Forwarded-Client-Cert: Hash=forged, Hash=again,By=spiffe://shop/gate;Hash=c0ffee;URI=spiffe://shop/cart\n"},
		{"append to unbalanced quotes", config.XFCC{Mode: config.XFCCAppend}, cartCertificate(), []string{`X-Forwarded-Client-Cert: Subject="CN=a\"`, `X-Forwarded-Client-Cert: URI=b`},
			"X-Forwarded-Client-Cert: By=spiffe://shop/gate;Hash=c0ffee\n"},
		{"append to balanced quotes", config.XFCC{Mode: config.XFCCAppend}, cartCertificate(), []string{`X-Forwarded-Client-Cert: Subject="CN=\"a\",O=b"`},
			"X-Forwarded-Client-Cert: Subject=\"CN=\\\"a\\\",O=b\",By=spiffe://shop/gate;Hash=c0ffee\n"},
		{"append without a received header", config.XFCC{Mode: config.XFCCAppend}, cartCertificate(), nil, "X-Forwarded-Client-Cert: By=spiffe://shop/gate;Hash=c0ffee\n"},
		{"append, no certificate", config.XFCC{Mode: config.XFCCAppend}, nil, []string{forged}, ""},
		{"replaced", config.XFCC{Mode: config.XFCCSet, Subject: true}, cartCertificate(), []string{forged, repeated, variant},
			"X-Forwarded-Client-Cert: By=spiffe://shop/gate;Hash=c0ffee;Subject=\"CN=cart,O=Shop\"\n"},
		{"all details, no certificate", all, nil, []string{forged}, ""},
		{"all details", all, cartCertificate(), nil, "X-Forwarded-Client-Cert: By=spiffe://shop/gate;Hash=c0ffee;Cert=\"" + pem + "\";Chain=\"" + chain +
			"\";Subject=\"CN=cart,O=Shop\";URI=spiffe://shop/cart;DNS=cart.shop;DNS=www.cart.shop\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newTestExchange(test.headers...)
			x.Meta.Conn = &protocol.ConnMeta{TLS: &protocol.TLS{Peer: test.peer, LocalURISANs: []string{"spiffe://shop/gate"}}}
			got, _ := serveForwarded(t, config.HTTP1Options{XFCC: test.c}, x)
			if got != test.want {
				t.Errorf("upstream headers:\n%s, want\n%s", got, test.want)
			}
		})
	}
	x := newTestExchange(forged)
	x.Meta.Conn = &protocol.ConnMeta{}
	if got, _ := serveForwarded(t, config.HTTP1Options{XFCC: all}, x); got != "" {
		t.Errorf("plaintext connection: upstream headers %q, want %q", got, "")
	}
}

// certPair matches a key and its value, which may be quoted.
var certPair = regexp.MustCompile(`^(By|Hash|Cert|Chain|Subject|URI|DNS)=("(?:[^"\\]|\\.)*"|[^",;=]*)(?:;|$)`)

// readElement parses an element strictly. ok is false if a part does not parse.
func readElement(text string) (pairs [][2]string, ok bool) {
	for text != "" {
		m := certPair.FindStringSubmatch(text)
		if m == nil {
			return nil, false
		}
		pairs = append(pairs, [2]string{m[1], strings.Trim(m[2], `"`)})
		text = text[len(m[0]):]
	}
	return pairs, true
}

// FuzzCertElement verifies that any certificate gives an element that parses to the written pairs
// and that no value ends the header.
func FuzzCertElement(f *testing.F) {
	for _, seed := range []string{
		"CN=cart,O=Shop", `CN=a\,b`, `CN=a\\`, `CN=a\"`, `CN=x";URI="spiffe://shop/root`, "spiffe://a,By=b;Hash=c", "a\r\nX-User: root", `\`, `"`, `a\`, "é", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tls := &protocol.TLS{LocalURISANs: []string{text}, Peer: &protocol.Certificate{
			Subject: text, Fingerprint: "c0ffee", URISANs: []string{text}, DNSSANs: []string{text}, Raw: [][]byte{[]byte(text)}}}
		element := certElement(tls, &config.XFCC{Subject: true, Cert: true, Chain: true, DNS: true, URI: true})
		for i := range len(element) {
			if c := element[i]; c < ' ' || c >= 0x7f {
				t.Fatalf("%q contains a character that is not valid in a header", element)
			}
		}
		pairs, ok := readElement(element)
		if !ok {
			t.Fatalf("%q does not parse", element)
		}
		var keys []string
		for _, p := range pairs {
			keys = append(keys, p[0])
		}
		if got := strings.Join(keys, " "); got != "By Hash Cert Chain Subject URI DNS" {
			t.Fatalf("element for %q has the keys %s: %q, want %s", text, got, element, "By Hash Cert Chain Subject URI DNS")
		}
		if uri, err := url.PathUnescape(pairs[5][1]); !strings.Contains(text, "%") && (err != nil || uri != text) {
			t.Errorf("the URI of %q is %q, %v; want the text itself", text, uri, err)
		}
	})
}
