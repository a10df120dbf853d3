package credential

import (
	"crypto/x509"
	"encoding/pem"
)

// Certificates are the certificates of one Context in the version that is in use. Immutable.
type Certificates struct {
	Local     *x509.Certificate // leaf of the local certificate; nil: none
	LocalPath string            // file of Local; "": its text is in the configuration

	Authorities     []*x509.Certificate // empty: the CAs of the system, or no verification
	AuthoritiesPath string              // file of Authorities; "": their text is in the configuration
}

// Certificates returns the certificates of each context of the open servers and clients, servers
// first. It is safe for concurrent use.
func (r *Reloader) Certificates() (out []Certificates) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, server := range r.servers {
		for _, sc := range server.contexts {
			out = append(out, sc.context.certificates(sc.material))
		}
	}
	for _, client := range r.clients {
		out = append(out, client.context.certificates(client.current.Load().material))
	}
	return out
}

// certificates returns the certificates of m, which load returned for c.
func (c *Context) certificates(m material) Certificates {
	out := Certificates{LocalPath: c.Certificate.Path, AuthoritiesPath: c.TrustedCA.Path, Authorities: parseCertificates(m.authoritiesPEM)}
	if m.certificate != nil {
		out.Local = m.certificate.Leaf
	}
	return out
}

// parseCertificates returns the certificates in a PEM text. Like x509.CertPool, it skips other
// blocks and certificates that it cannot parse.
func parseCertificates(text []byte) (out []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}
