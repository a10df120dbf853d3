package credential

import (
	"os"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// TestCertificates verifies that the list has each context once, follows reloads, and loses the
// contexts of closed servers and clients.
func TestCertificates(t *testing.T) {
	ca, other := testpki.New(t), testpki.New(t)
	dir := t.TempDir()
	caPath := ca.Write(dir)
	first := ca.Issue(testpki.Spec{CommonName: "first"})
	cert, key := first.Write(t, dir, "server")
	text, textKey := inlinePEM(ca.Issue(testpki.Spec{CommonName: "inline"}))
	reloader := NewReloader(nil, nil)
	server, err := reloader.NewServer([]*Context{{Certificate: PEM{Path: cert}, Key: PEM{Path: key}, TrustedCA: PEM{Path: caPath}}, {Certificate: text, Key: textKey}})
	if err != nil {
		t.Fatal(err)
	}
	bundle := "-----BEGIN OTHER-----\n-----END OTHER-----\n" + string(ca.PEM) + string(other.PEM)
	client, err := reloader.NewClient(&Context{TrustedCA: PEM{Text: bundle}})
	if err != nil {
		t.Fatal(err)
	}
	all := reloader.Certificates()
	if len(all) != 3 {
		t.Fatalf("%d contexts, want 3", len(all))
	}
	if c := all[0]; c.Local.Subject.CommonName != "first" || c.LocalPath != cert || len(c.Authorities) != 1 || c.AuthoritiesPath != caPath {
		t.Errorf("context with files: %q from %q, %d authorities from %q", c.Local.Subject, c.LocalPath, len(c.Authorities), c.AuthoritiesPath)
	}
	if c := all[1]; c.Local.Subject.CommonName != "inline" || c.LocalPath != "" || len(c.Authorities) != 0 {
		t.Errorf("inline context: %q from %q, %d authorities", c.Local.Subject, c.LocalPath, len(c.Authorities))
	}
	if c := all[2]; c.Local != nil || len(c.Authorities) != 2 || c.AuthoritiesPath != "" {
		t.Errorf("client: local certificate %v, %d authorities, want none and 2", c.Local, len(c.Authorities))
	}

	second := ca.Issue(testpki.Spec{CommonName: "second, with a longer name"})
	second.Write(t, dir, "server")
	reloader.ReloadChanged()
	if got := reloader.Certificates()[0].Local.Subject.CommonName; got != "second, with a longer name" {
		t.Errorf("after a reload the common name is %q", got)
	}
	if err := os.WriteFile(cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	reloader.ReloadChanged()
	if got := reloader.Certificates()[0].Local.Subject.CommonName; got != "second, with a longer name" {
		t.Errorf("after a rejected reload the common name is %q", got)
	}
	server.Close()
	client.Close()
	if all := reloader.Certificates(); len(all) != 0 {
		t.Errorf("%d contexts after Close, want 0", len(all))
	}
}
