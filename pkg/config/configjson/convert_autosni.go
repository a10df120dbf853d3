package configjson

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// readAutoSNI converts the settings that derive SNI and verification from the request's host.
// The TLS and pool settings of the cluster have been converted.
func (r *reader) readAutoSNI(j *clusterJSON, c *config.Cluster) {
	n := config.AutoSNI{SendSNI: j.AutoSNI, ValidateSAN: j.AutoVerify, OverrideHeader: strings.ToLower(j.NameHeader)}
	field := j.Node.Get("override_auto_sni_header")
	if n.OverrideHeader != "" && strings.ContainsAny(n.OverrideHeader, " \t\r\n,:") {
		r.report.Expect(field, "a header name")
		return
	}
	at := j.Node.Get("auto_sni").Or(j.Node.Get("auto_san_validation")).Or(field)
	switch {
	case !n.Enabled():
		if n.OverrideHeader != "" {
			r.report.Warnf(field, "override_auto_sni_header has no effect without auto_sni or auto_san_validation")
		}
		return
	case c.TLS == nil:
		r.report.Warnf(at, "the setting has no effect without a tls_context")
	case c.Pool.WarmProtocol != "":
		r.report.Errorf(at, "auto_sni and auto_san_validation are not compatible with connection_pool.warm, which opens connections before the name of a request is known")
	}
	c.AutoSNI = n
}
