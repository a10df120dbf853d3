package credential

import (
	"crypto/tls"
	"iter"
	"slices"
	"strings"
)

// SafeCiphers returns the default cipher suites for TLS 1.2: those with forward secrecy and
// authenticated encryption (RFC 9325 4.2). All suites of TLS 1.3 have both and cannot be
// configured.
func SafeCiphers() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}

// Cipher returns a cipher suite by its IANA or OpenSSL name, and whether it is one of SafeCiphers.
func Cipher(name string) (id uint16, safe, ok bool) {
	for s := range ciphers() {
		if strings.EqualFold(name, s.Name) || strings.EqualFold(name, openSSLName(s.Name)) {
			return s.ID, slices.Contains(SafeCiphers(), s.ID), true
		}
	}
	return 0, false, false
}

// CipherNames yields the OpenSSL names of the cipher suites that Cipher knows.
func CipherNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for s := range ciphers() {
			if !yield(openSSLName(s.Name)) {
				return
			}
		}
	}
}

// ciphers yields the configurable cipher suites. Those of TLS 1.3 cannot be configured.
func ciphers() iter.Seq[*tls.CipherSuite] {
	return func(yield func(*tls.CipherSuite) bool) {
		for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
			if slices.Contains(s.SupportedVersions, tls.VersionTLS12) && !yield(s) {
				return
			}
		}
	}
}

// openSSLName converts an IANA name such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 to the OpenSSL
// name, ECDHE-RSA-AES128-GCM-SHA256.
func openSSLName(name string) string {
	exchange, cipher, _ := strings.Cut(strings.TrimPrefix(name, "TLS_"), "_WITH_")
	cipher = strings.NewReplacer("AES_128", "AES128", "AES_256", "AES256", "_CBC_SHA", "_SHA",
		"3DES_EDE", "DES-CBC3", "RC4_128", "RC4").Replace(cipher)
	if strings.HasPrefix(cipher, "CHACHA20") {
		cipher = "CHACHA20_POLY1305"
	}
	name = exchange + "_" + cipher
	if exchange == "RSA" {
		name = cipher
	}
	return strings.ReplaceAll(name, "_", "-")
}

// Curve returns a key exchange group by its name.
func Curve(name string) (id tls.CurveID, ok bool) {
	switch strings.ToLower(name) {
	case "x25519":
		return tls.X25519, true
	case "p256", "p-256", "prime256v1":
		return tls.CurveP256, true
	case "p384", "p-384", "secp384r1":
		return tls.CurveP384, true
	case "p521", "p-521", "secp521r1":
		return tls.CurveP521, true
	case "x25519mlkem768":
		return tls.X25519MLKEM768, true
	}
	return 0, false
}

// CurveNames returns one name for each group that Curve knows.
func CurveNames() []string { return []string{"x25519", "p256", "p384", "p521", "x25519mlkem768"} }
