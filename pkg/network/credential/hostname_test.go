package credential

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/network"
)

// TestHostnameOverride verifies which names pass, and that a certificate counts as verified only if
// its chain was verified.
func TestHostnameOverride(t *testing.T) {
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{DNS: []string{"b.example"}})
	trustedCA := PEM{Text: string(ca.PEM)}
	server := &tls.Config{Certificates: []tls.Certificate{leaf.TLS}}
	for _, test := range []struct {
		name         string
		context      Context
		hostname     string
		want         HandshakeFailure // OtherFailure: the handshake succeeds
		wantVerified bool
	}{
		{"right name", Context{TrustedCA: trustedCA, SkipNameVerify: true}, "b.example", OtherFailure, true},
		{"wrong name", Context{TrustedCA: trustedCA, SkipNameVerify: true}, "c.example", SANMismatch, false},
		{"right name of an unverified certificate", Context{SkipVerify: true}, "b.example", OtherFailure, false},
		{"wrong name of an unverified certificate", Context{SkipVerify: true}, "c.example", SANMismatch, false},
		{"no name", Context{SkipVerify: true}, "", SANMismatch, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, err := NewReloader(nil, nil).NewClient(&test.context)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second handshake may resume the session
				verified, err := verifiedHandshake(server, client.Config(Peer{Name: "b.example", Address: "10.0.0.1:1", Override: HostnameOverride{Name: test.hostname, Verify: true}}, nil))
				if (err == nil) != (test.want == OtherFailure) || err != nil && HandshakeFailureOf(err) != test.want {
					t.Errorf("handshake: %v, want %v", err, test.want)
				}
				if verified != test.wantVerified {
					t.Errorf("the certificate counts as verified: %v, want %v", verified, test.wantVerified)
				}
			}
		})
	}
}

// verifiedHandshake performs a handshake as a Conn and reports whether the certificate counts as
// verified.
func verifiedHandshake(server, client *tls.Config) (verified bool, err error) {
	local, peer := connPair()
	defer local.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn := tls.Server(local, server)
		if conn.Handshake() == nil { //nolint:noctx // ends with the connection
			_, _ = conn.Write([]byte("x")) // after the tickets
		}
	}()
	conn := network.NewConn(peer)
	defer func() { _ = conn.Close(); <-done }()
	if err := conn.ClientHandshake(client, time.Now().Add(5*time.Second)); err != nil {
		return false, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return false, err
	}
	return conn.TLS().Verified, nil
}
