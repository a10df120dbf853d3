package network

import (
	"crypto/tls"
	"testing"
	"time"
)

// TestVerifyConnectionSetsVerified: names of a mesh are no names of hosts, so that its
// sidecars verify certificates themselves.
func TestVerifyConnectionSetsVerified(t *testing.T) {
	for _, test := range []struct {
		name   string
		verify func(tls.ConnectionState) error
		want   bool
	}{
		{"it has verified", func(tls.ConnectionState) error { return nil }, true},
		{"nobody has", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := tlsConfigs(t)
			client = client.Clone()
			client.Certificates = server.Certificates // of which there is one at hand
			client.InsecureSkipVerify, client.VerifyConnection = true, test.verify
			c, nc := pair(t)
			peer := tls.Server(nc, server)
			shaken := inBackground(peer.Handshake)
			if err := c.ClientHandshake(client, time.Now().Add(5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := <-shaken; err != nil {
				t.Fatal(err)
			}
			if got := c.TLS(); got.Verified != test.want || got.PeerCertificate == nil || got.LocalCertificate != client.Certificates[0].Leaf {
				t.Errorf("verified: %v, want %v; the peer is %v, we show %v", got.Verified, test.want, got.PeerCertificate, got.LocalCertificate)
			}
		})
	}
}
