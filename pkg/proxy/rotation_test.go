package proxy

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestCertificateRotationKeepsConnections verifies that sameTLSSettings ignores inline
// certificates, keys and authorities, and no other TLS setting.
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
		{"no change", func(*config.TLS) {}, true},
		{"certificate and key", func(t *config.TLS) { t.Certificate.Text, t.Key.Text = "d", "l" }, true},
		{"authorities", func(t *config.TLS) { t.TrustedCA.Text = "b" }, true},
		{"authorities removed", func(t *config.TLS) { t.TrustedCA = config.PEM{} }, false},
		{"certificate from a file", func(t *config.TLS) { t.Certificate = config.PEM{Path: "c"} }, false},
		{"client authentication", func(t *config.TLS) { t.ClientAuth = config.VerifyClientCertIfGiven }, false},
		{"subject alternative names", func(t *config.TLS) { t.MatchSANs = []config.SANMatcher{{Name: config.ValueMatch{Text: "x"}}} }, false},
		{"versions", func(t *config.TLS) { t.MinVersion = config.TLS13 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := before
			c.change(&after)
			if got := sameTLSSettings(&before, &after); got != c.want {
				t.Errorf("sameTLSSettings = %v, want %v", got, c.want)
			}
		})
	}
}
