package credential

import (
	"crypto/sha256"
	"crypto/tls"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// TestPins verifies that a client accepts only certificates that match a digest, with and without
// verification of the chain, and also if the session could be resumed.
func TestPins(t *testing.T) {
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{DNS: []string{"b.example"}})
	server := &tls.Config{Certificates: []tls.Certificate{leaf.TLS}}
	certificate, key := sha256.Sum256(leaf.TLS.Leaf.Raw), sha256.Sum256(leaf.TLS.Leaf.RawSubjectPublicKeyInfo)
	other := [32]byte{1}
	trustedCA, otherCA := PEM{Text: string(ca.PEM)}, PEM{Text: string(testpki.New(t).PEM)}
	for _, test := range []struct {
		name         string
		context      Context
		want         HandshakeFailure // OtherFailure: the handshake succeeds
		wantVerified bool
	}{
		{"certificate", Context{SkipVerify: true, CertificateHashes: [][32]byte{other, certificate}}, OtherFailure, false},
		{"public key", Context{SkipVerify: true, PublicKeyHashes: [][32]byte{key}}, OtherFailure, false},
		{"either of the lists", Context{SkipVerify: true, CertificateHashes: [][32]byte{other}, PublicKeyHashes: [][32]byte{key}}, OtherFailure, false},
		{"digest of the key as that of a certificate", Context{SkipVerify: true, CertificateHashes: [][32]byte{key}}, Untrusted, false},
		{"other certificate", Context{SkipVerify: true, CertificateHashes: [][32]byte{other}}, Untrusted, false},
		{"trusted chain", Context{TrustedCA: trustedCA, SkipNameVerify: true, CertificateHashes: [][32]byte{certificate}}, OtherFailure, true},
		{"trusted chain, other certificate", Context{TrustedCA: trustedCA, SkipNameVerify: true, CertificateHashes: [][32]byte{other}}, Untrusted, false},
		{"untrusted chain", Context{TrustedCA: otherCA, SkipNameVerify: true, CertificateHashes: [][32]byte{certificate}}, Untrusted, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, err := NewReloader(nil, nil).NewClient(&test.context)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second handshake may resume the session
				verified, err := verifiedHandshake(server, client.Config(Peer{Name: "b.example", Address: "10.0.0.1:1"}, nil))
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

// TestServerPins verifies that a server accepts only client certificates that match a digest.
func TestServerPins(t *testing.T) {
	ca := testpki.New(t)
	local, first, second := ca.Issue(testpki.Spec{}), ca.Issue(testpki.Spec{}), ca.Issue(testpki.Spec{})
	trustedCA := PEM{Text: string(ca.PEM)}
	server, err := NewReloader(nil, nil).NewServer([]*Context{{
		Certificate: PEM{Text: string(local.Cert)}, Key: PEM{Text: string(local.Key)}, TrustedCA: trustedCA,
		ClientAuth: tls.RequireAndVerifyClientCert, CertificateHashes: [][32]byte{sha256.Sum256(first.TLS.Leaf.Raw)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		pair testpki.Leaf
		ok   bool
	}{{"expected certificate", first, true}, {"other certificate", second, false}} {
		client := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{test.pair.TLS}} //nolint:gosec // tests the server
		if _, err := verifiedHandshake(server.Config(), client); (err == nil) != test.ok {
			t.Errorf("%s: handshake: %v, want success %v", test.name, err, test.ok)
		}
	}
}

// TestSNI verifies which name a client sends, and that VerifySNI verifies this name.
func TestSNI(t *testing.T) {
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{DNS: []string{"b.example"}})
	trustedCA := PEM{Text: string(ca.PEM)}
	named := Peer{Hostname: "b.example", Name: "b.example", Address: "10.0.0.1:1"}
	unnamed := Peer{Name: "10.0.0.1", Address: "10.0.0.1:1"}
	withOverride := named
	withOverride.Override = HostnameOverride{Name: "c.example", SNI: true}
	for _, test := range []struct {
		name        string
		serverNames []string
		mode        SNIMode
		peer        Peer
		want        string
		verified    bool // VerifySNI accepts the certificate for b.example
	}{
		{"name of the host", nil, SNIDefault, named, "b.example", true},
		{"server name", []string{"a.example"}, SNIDefault, named, "a.example", false},
		{"no server name", nil, SNIServerName, named, "", false},
		{"only the server name", []string{"b.example"}, SNIServerName, unnamed, "b.example", true},
		{"hostname instead of the server name", []string{"a.example"}, SNIHostname, named, "b.example", true},
		{"host without a name", []string{"a.example"}, SNIHostname, unnamed, "a.example", false},
		{"override", []string{"a.example"}, SNIHostname, withOverride, "c.example", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got string
			server := &tls.Config{Certificates: []tls.Certificate{leaf.TLS}, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				got = hello.ServerName
				return nil, nil
			}}
			client, err := NewReloader(nil, nil).NewClient(&Context{ServerNames: test.serverNames, SNI: test.mode, TrustedCA: trustedCA, SkipNameVerify: true, NoSessionResumption: true})
			if err != nil {
				t.Fatal(err)
			}
			config := client.Config(test.peer, nil)
			if config.ClientSessionCache != nil {
				t.Error("sessions are cached, want none")
			}
			if _, err := verifiedHandshake(server, config); err != nil || got != test.want {
				t.Errorf("the server received the name %q (%v), want %q", got, err, test.want)
			}
			client, err = NewReloader(nil, nil).NewClient(&Context{ServerNames: test.serverNames, SNI: test.mode, VerifySNI: true, TrustedCA: trustedCA, SkipNameVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := verifiedHandshake(server, client.Config(test.peer, nil)); (err == nil) != test.verified {
				t.Errorf("handshake with VerifySNI: %v, want success %v", err, test.verified)
			}
		})
	}
}
