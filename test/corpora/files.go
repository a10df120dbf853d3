package corpora

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Configurations refer to certificates and other files that their projects generate, or that are
// part of a container image. A keyPair stands for all certificates and keys.
type keyPair struct{ certificate, key []byte } // PEM

// newKeyPair returns a self-signed certificate, which is also valid as a CA.
func newKeyPair() (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "corpora"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return keyPair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// filePath matches the path of a file in the directories of container images, or in the directory
// of the certificates of an example.
var filePath = regexp.MustCompile(`(?:(?:/etc|/var/lib|/certs|/config|/var/run/secrets)/|(?:\.{1,2}/)*\bcerts/)[\w./@-]*\w|"(?:CA|client)\.(?:cert|key)"`)

// logPath matches the path of a log file.
var logPath = regexp.MustCompile(`/var/log/[\w./-]*\w`)

// provideFiles replaces the paths in a configuration by those of files in dir, and creates these
// files. A file that neither exists in the checkout nor is a certificate is not created.
func provideFiles(c *config, dir string, pair keyPair) ([]byte, error) {
	var failure error
	text := filePath.ReplaceAllFunc(c.text, func(match []byte) []byte {
		path := strings.Trim(string(match), `"`)
		target := filepath.Join(dir, strings.ReplaceAll(strings.Trim(path, "./"), "/", "_"))
		content := fileContent(c.dir, path, pair)
		if content == nil {
			return match
		}
		failure = errors.Join(failure, os.WriteFile(target, content, 0o600))
		return bytes.Replace(match, []byte(path), []byte(target), 1)
	})
	text = logPath.ReplaceAllFunc(text, func(path []byte) []byte {
		return []byte(filepath.Join(dir, filepath.Base(string(path))))
	})
	return text, failure
}

// fileContent returns the content of the file at a path in a container: the file of that name in
// the checkout, or else a certificate or key. nil: there is none.
func fileContent(dir, path string, pair keyPair) []byte {
	name := filepath.Base(path)
	for _, candidate := range []string{name, filepath.Join("configs", name), "envoy-dynamic-" + strings.TrimSuffix(name, ".yaml") + "-demo.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, candidate))
		if err == nil {
			return text
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	isPEM := false
	for _, suffix := range []string{".pem", ".crt", ".key", ".cert", ".cer"} {
		isPEM = isPEM || strings.HasSuffix(name, suffix)
	}
	switch {
	case !isPEM:
		return nil
	case strings.Contains(name, "key"):
		return pair.key
	}
	return pair.certificate
}

// replaceInline replaces the certificates and keys in a configuration, which golden files replace
// by arbitrary text.
func replaceInline(v any, pair keyPair) {
	objects(v, func(m object) {
		for field, content := range map[string][]byte{"certificate_chain": pair.certificate, "private_key": pair.key, "trusted_ca": pair.certificate} {
			source, ok := get(m, field).(object)
			if !ok || get(source, "inline_bytes") == nil {
				continue
			}
			text, _ := get(source, "inline_bytes").(string)
			if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
				if block, _ := pem.Decode(decoded); block != nil && field == "trusted_ca" {
					continue
				}
			}
			set(source, "inline_bytes", base64.StdEncoding.EncodeToString(content))
		}
	})
}
