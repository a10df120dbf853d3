package inspect

import (
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/pkg/network/credential"
)

// EnvoyCerts is the response body of /certs. It has the format of envoy.admin.v3.Certificates, for
// Envoy's tools.
type EnvoyCerts struct {
	Certificates []EnvoyCertContext `json:"certificates"`
}

// EnvoyCertContext holds the certificates of one TLS context, in the shape of
// envoy.admin.v3.Certificate.
type EnvoyCertContext struct {
	Authorities []EnvoyCert `json:"ca_cert"`
	Chain       []EnvoyCert `json:"cert_chain"` // only the leaf, as in Envoy
}

// EnvoyCert is a certificate in the shape of envoy.admin.v3.CertificateDetails.
type EnvoyCert struct {
	Path     string     `json:"path"`          // "<inline>": the configuration contains the text
	Serial   string     `json:"serial_number"` // two hexadecimal digits for each byte
	AltNames []EnvoySAN `json:"subject_alt_names"`
	DaysLeft uint64     `json:"days_until_expiration,string"` // complete days; 0 after the expiration
	From     time.Time  `json:"valid_from"`
	To       time.Time  `json:"expiration_time"`
}

// EnvoySAN is a subject alternative name. One of its fields is set.
type EnvoySAN struct {
	DNS string `json:"dns,omitempty"`
	URI string `json:"uri,omitempty"`
	IP  string `json:"ip_address,omitempty"`
}

// inlinePath is the path of a certificate whose text is in the configuration.
const inlinePath = "<inline>"

// NewEnvoyCerts returns certificates in Envoy's format. now determines the days until they expire.
func NewEnvoyCerts(contexts []credential.Certificates, now time.Time) EnvoyCerts {
	out := EnvoyCerts{Certificates: []EnvoyCertContext{}}
	for _, c := range contexts {
		context := EnvoyCertContext{Authorities: []EnvoyCert{}, Chain: []EnvoyCert{}}
		for _, ca := range c.Authorities {
			context.Authorities = append(context.Authorities, newEnvoyCert(ca, c.AuthoritiesPath, now))
		}
		if c.Local != nil {
			context.Chain = append(context.Chain, newEnvoyCert(c.Local, c.LocalPath, now))
		}
		out.Certificates = append(out.Certificates, context)
	}
	return out
}

func newEnvoyCert(cert *x509.Certificate, path string, now time.Time) EnvoyCert {
	if path == "" {
		path = inlinePath
	}
	out := EnvoyCert{
		Path: path, Serial: hex.EncodeToString(cert.SerialNumber.Bytes()), AltNames: []EnvoySAN{},
		From: cert.NotBefore.UTC(), To: cert.NotAfter.UTC(),
	}
	if left := cert.NotAfter.Sub(now); left > 0 {
		out.DaysLeft = uint64(left / (24 * time.Hour))
	}
	for _, name := range cert.DNSNames {
		out.AltNames = append(out.AltNames, EnvoySAN{DNS: name})
	}
	for _, uri := range cert.URIs {
		out.AltNames = append(out.AltNames, EnvoySAN{URI: uri.String()})
	}
	for _, ip := range cert.IPAddresses {
		out.AltNames = append(out.AltNames, EnvoySAN{IP: ip.String()})
	}
	return out
}

// certs serves /certs.
func (s *Sources) certs(w http.ResponseWriter, _ *http.Request) {
	admin.WriteJSON(w, http.StatusOK, NewEnvoyCerts(s.Certificates(), time.Now()))
}
