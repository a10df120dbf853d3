package credential

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// errPinMismatch means that the certificate of the peer is none of the expected ones.
var errPinMismatch = errors.New("the peer's certificate matches neither verify_certificate_hash nor verify_certificate_spki")

// hasPins reports whether only some certificates or public keys are accepted.
func (c *Context) hasPins() bool { return len(c.CertificateHashes)+len(c.PublicKeyHashes) > 0 }

// verifyPins returns an error if the first of the peer's certificates matches none of the digests.
// It returns nil if the peer sent no certificate: ClientAuth decides whether that is allowed.
func (c *Context) verifyPins(certs []*x509.Certificate) error {
	if len(certs) == 0 {
		return nil
	}
	leaf := certs[0]
	if len(c.CertificateHashes) > 0 && slices.Contains(c.CertificateHashes, sha256.Sum256(leaf.Raw)) {
		return nil
	}
	if len(c.PublicKeyHashes) > 0 && slices.Contains(c.PublicKeyHashes, sha256.Sum256(leaf.RawSubjectPublicKeyInfo)) {
		return nil
	}
	return fmt.Errorf("%w: its subject is %q", errPinMismatch, leaf.Subject)
}
