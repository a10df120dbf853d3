package certs

import (
	"crypto/x509"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	pool := func(name string) *x509.CertPool {
		c, err := Load(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		p := x509.NewCertPool()
		p.AddCert(c.Leaf)
		return p
	}
	for _, test := range []struct {
		name, ca string
		valid    bool
	}{
		{ServerA, CA, true}, {ServerB, CA, true}, {Client, CA, true}, {Expired, CA, false}, {Other, CA, false}, {Other, OtherCA, true},
	} {
		c, err := Load(dir, test.name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Leaf.Verify(x509.VerifyOptions{Roots: pool(test.ca), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: time.Now()})
		if (err == nil) != test.valid {
			t.Errorf("%s with the issuer %s: %v, want valid: %v", test.name, test.ca, err, test.valid)
		}
	}
}
