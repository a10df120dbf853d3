package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readRedirect(m *routev3.RedirectAction) *config.Redirect {
	p.checkFields(m, []string{
		"https_redirect", "scheme_redirect", "host_redirect", "port_redirect", "path_redirect", "prefix_rewrite", "regex_rewrite", "response_code", "strip_query",
	}, []string{"path_rewrite"})
	out := &config.Redirect{Host: m.GetHostRedirect(), StripQuery: m.GetStripQuery()}
	if m.GetPortRedirect() > 1<<16-1 {
		p.field("port_redirect").reject("is %d, expected a port", m.GetPortRedirect())
	}
	out.Port = uint16(m.GetPortRedirect()) //nolint:gosec // checked above
	switch s := m.GetSchemeRewriteSpecifier().(type) {
	case *routev3.RedirectAction_HttpsRedirect:
		if s.HttpsRedirect {
			out.Scheme = "https"
		}
	case *routev3.RedirectAction_SchemeRedirect:
		out.Scheme = s.SchemeRedirect
	}
	switch r := m.GetPathRewriteSpecifier().(type) {
	case *routev3.RedirectAction_PathRedirect:
		out.Path = r.PathRedirect
	case *routev3.RedirectAction_PrefixRewrite:
		out.PrefixRewrite = r.PrefixRewrite
	case *routev3.RedirectAction_RegexRewrite:
		out.RegexRewrite = p.field("regex_rewrite").readRegexRewrite(r.RegexRewrite)
	}
	out.WriteDefaultPort = true
	switch m.GetResponseCode() {
	case routev3.RedirectAction_MOVED_PERMANENTLY:
		out.Code = 301
	case routev3.RedirectAction_FOUND:
		out.Code = 302
	case routev3.RedirectAction_SEE_OTHER:
		out.Code = 303
	case routev3.RedirectAction_TEMPORARY_REDIRECT:
		out.Code = 307
	case routev3.RedirectAction_PERMANENT_REDIRECT:
		out.Code = 308
	default:
		p.field("response_code").reject("%v is not supported", m.GetResponseCode())
	}
	return out
}

// defaultDirectResponseBody is Envoy's default for max_direct_response_body_size_bytes.
const defaultDirectResponseBody = 4096

// readDirectResponse reads a direct response with a body of at most maxBody bytes.
func (p fieldReader) readDirectResponse(m *routev3.DirectResponseAction, maxBody int) *config.DirectResponse {
	p.checkFields(m, []string{"status", "body"}, []string{"body_format"})
	out := &config.DirectResponse{Status: int(m.GetStatus()), ContentType: "text/plain", Location: true}
	if out.Status < 200 || out.Status > 599 {
		p.field("status").reject("is %d, expected 200 to 599", out.Status)
	}
	body := p.field("body").readDataSource(m.GetBody())
	if len(body.Text) > maxBody {
		p.field("body").reject("has %d bytes, expected at most %d (max_direct_response_body_size_bytes)", len(body.Text), maxBody)
	}
	if out.Status != 204 && out.Status != 304 {
		out.Body, out.BodyFile, out.MaxFileSize = body.Text, body.Path, int64(maxBody)
	}
	return out
}
