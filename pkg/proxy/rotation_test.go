package proxy

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestCertificateRotationKeepsConnections: what decides about connections otherwise
// does.
func TestCertificateRotationKeepsConnections(t *testing.T) {
	before := config.TLS{
		Certificate: config.PEM{Text: "c"}, Key: config.PEM{Text: "k"}, TrustedCA: config.PEM{Text: "a"},
		ClientAuth: config.RequireAndVerifyClientCert,
	}
	for _, c := range []struct {
		name   string
		change func(t *config.TLS)
		want   bool
	}{
		{"nothing", func(*config.TLS) {}, true},
		{"certificate and key", func(t *config.TLS) { t.Certificate.Text, t.Key.Text = "d", "l" }, true},
		{"authorities", func(t *config.TLS) { t.TrustedCA.Text = "b" }, true},
		{"authorities where there are none", func(t *config.TLS) { t.TrustedCA = config.PEM{} }, false},
		{"a file instead", func(t *config.TLS) { t.Certificate = config.PEM{Path: "c"} }, false},
		{"whether callers need one", func(t *config.TLS) { t.ClientAuth = config.VerifyClientCertIfGiven }, false},
		{"who they may be", func(t *config.TLS) { t.MatchSANs = []config.SANMatcher{{Exact: "x"}} }, false},
		{"versions", func(t *config.TLS) { t.MinVersion = config.TLS13 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := before
			c.change(&after)
			if got := sameTLSSettings(&before, &after); got != c.want {
				t.Errorf("connections go on: %v, want %v", got, c.want)
			}
		})
	}
}
