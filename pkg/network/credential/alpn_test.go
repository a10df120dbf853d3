package credential

import (
	"crypto/tls"
	"log/slog"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// TestAllowALPNMismatch verifies that AllowALPNMismatch accepts clients without a matching
// protocol: Istio sidecars offer names that are not protocols of Weft.
func TestAllowALPNMismatch(t *testing.T) {
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{})
	c := &Context{ALPN: []string{"h2", "http/1.1"}}
	c.Certificate, c.Key = inlinePEM(leaf)
	for _, test := range []struct {
		name          string
		allowMismatch bool
		offered       []string
		chosen        string
		rejected      bool
	}{
		{name: "matching protocol", allowMismatch: true, offered: []string{"istio-http/1.1", "istio", "http/1.1"}, chosen: "http/1.1"},
		{name: "no matching protocol, allowed", allowMismatch: true, offered: []string{"istio-peer-exchange", "istio"}},
		{name: "no matching protocol", offered: []string{"istio"}, rejected: true},
		{name: "no ALPN", offered: nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := *c
			settings.AllowALPNMismatch = test.allowMismatch
			reloader := NewReloader(slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
			server, err := reloader.NewServer([]*Context{&settings})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			state, _, clientErr, _ := handshake(server.Config(), &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", NextProtos: test.offered, MinVersion: tls.VersionTLS12})
			if (clientErr != nil) != test.rejected || state.NegotiatedProtocol != test.chosen {
				t.Errorf("selected %q, error %v; want %q, rejected: %v", state.NegotiatedProtocol, clientErr, test.chosen, test.rejected)
			}
		})
	}
}

func TestClientALPNForProtocol(t *testing.T) {
	reloader := NewReloader(slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	httpALPN := []string{"istio-http/1.1", "istio", "http/1.1"}
	client, err := reloader.NewClient(&Context{SkipVerify: true, ALPN: []string{"istio"}, ALPNFor: map[string][]string{"http/1.1": httpALPN}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, test := range []struct{ protocols, want []string }{
		{[]string{"http/1.1"}, httpALPN}, {[]string{"h2"}, []string{"istio"}}, {nil, []string{"istio"}},
	} {
		if got := client.Config(Peer{Name: "a", Address: "b"}, test.protocols).NextProtos; !slices.Equal(got, test.want) {
			t.Errorf("for %q the client offers %q, want %q", test.protocols, got, test.want)
		}
	}
}
