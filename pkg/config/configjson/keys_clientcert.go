package configjson

import "github.com/weft-proxy/weft/pkg/config"

// clientCertJSON is the part of extend_config about X-Forwarded-Client-Cert.
type clientCertJSON struct {
	ForwardClientCert string              `key:"forward_client_cert_details" doc:"X-Forwarded-Client-Cert, which tells of callers' certificates: SANITIZE removes it, FORWARD_ONLY passes on that of callers who showed a certificate themselves, APPEND_FORWARD adds them to it, SANITIZE_SET replaces it by them, ALWAYS_FORWARD_ONLY passes on what anybody says." enum:"SANITIZE|FORWARD_ONLY|APPEND_FORWARD|SANITIZE_SET|ALWAYS_FORWARD_ONLY" default:"SANITIZE" example:"\"SANITIZE_SET\""`
	ClientCertDetails *certificateDetails `key:"set_current_client_cert_details" doc:"What APPEND_FORWARD and SANITIZE_SET tell beside the certificate's hash and the URI of the listener's own."`
}

// certificateDetails is set_current_client_cert_details.
type certificateDetails struct {
	Subject bool `key:"subject" doc:"The distinguished name." default:"false" example:"true"`
	Cert    bool `key:"cert" doc:"The certificate, as PEM." default:"false" example:"true"`
	Chain   bool `key:"chain" doc:"The certificate and those that were sent with it, as PEM." default:"false" example:"true"`
	DNS     bool `key:"dns" doc:"Its DNS names." default:"false" example:"true"`
	URI     bool `key:"uri" doc:"Its first URI." default:"false" example:"true"`
}

// clientCert converts the keys of clientCertJSON.
func (r *reader) clientCert(e *extendJSON) config.ClientCert {
	c := config.ClientCert{Mode: config.ClientCertMode(e.ForwardClientCert)}
	if c.Mode == "SANITIZE" {
		c.Mode = config.ClientCertSanitize
	}
	if d := e.ClientCertDetails; d != nil {
		c.Subject, c.Cert, c.Chain, c.DNS, c.URI = d.Subject, d.Cert, d.Chain, d.DNS, d.URI
		if c.Mode != config.ClientCertAppend && c.Mode != config.ClientCertSet {
			r.report.Warnf(e.Node.Get("set_current_client_cert_details"), "set_current_client_cert_details has no effect unless forward_client_cert_details is APPEND_FORWARD or SANITIZE_SET")
		}
	}
	return c
}
