package network

import (
	"crypto/tls"
	"testing"
	"time"
)

// TestVerifyConnectionSetsVerified verifies that a config with VerifyConnection counts as one that
// verifies the peer: mesh identities are not host names, so sidecars verify certificates
// themselves.
func TestVerifyConnectionSetsVerified(t *testing.T) {
	for _, test := range []struct {
		name   string
		verify func(tls.ConnectionState) error
		want   bool
	}{
		{"with VerifyConnection", func(tls.ConnectionState) error { return nil }, true},
		{"without VerifyConnection", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := tlsConfigs(t)
			client = client.Clone()
			client.Certificates = server.Certificates // any certificate will do
			client.InsecureSkipVerify, client.VerifyConnection = true, test.verify
			c, nc := pair(t)
			peer := tls.Server(nc, server)
			handshakeErr := inBackground(peer.Handshake)
			if err := c.ClientHandshake(client, time.Now().Add(5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := <-handshakeErr; err != nil {
				t.Fatal(err)
			}
			if got := c.TLS(); got.Verified != test.want || got.PeerCertificate == nil || got.LocalCertificate != client.Certificates[0].Leaf {
				t.Errorf("Verified = %v, want %v; peer certificate %v, local certificate %v", got.Verified, test.want, got.PeerCertificate, got.LocalCertificate)
			}
		})
	}
}
