package service

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// forwardedClientCert is the header that describes client certificates to the upstream. It has one
// element for each proxy that appended one, in Envoy's grammar.
const forwardedClientCert = "X-Forwarded-Client-Cert"

// setClientCertHeader sets X-Forwarded-Client-Cert as c requires. If the client sent no verified
// certificate, only XFCCAlwaysForward keeps the received header.
func setClientCertHeader(h *protocol.Header, conn *protocol.ConnMeta, c *config.XFCC) {
	if c.Mode == config.XFCCAlwaysForward {
		return
	}
	hasPeer := conn != nil && conn.TLS != nil && conn.TLS.Peer != nil
	if hasPeer && c.Mode == config.XFCCForward {
		removeVariants(h, false)
		return
	}
	elements := ""
	if hasPeer && c.Mode == config.XFCCAppend {
		if elements = joinValues(h, forwardedClientCert, ", "); !quotesBalanced(elements) {
			elements = "" // drop them: the new element would become part of the open quotation
		}
	}
	removeVariants(h, true)
	if !hasPeer || c.Mode == config.XFCCSanitize {
		return
	}
	element := certElement(conn.TLS, c)
	if elements != "" {
		element = elements + "," + element
	}
	h.Add(forwardedClientCert, element)
}

// quotesBalanced reports whether every quotation in elements is closed.
func quotesBalanced(elements string) bool {
	quoted := false
	for i := 0; i < len(elements); i++ {
		switch elements[i] {
		case '"':
			quoted = !quoted
		case '\\':
			i++
		}
	}
	return !quoted && !strings.HasSuffix(elements, `\`)
}

// removeVariants removes headers that applications may confuse with X-Forwarded-Client-Cert. If
// includeExact is true, it also removes that header.
func removeVariants(h *protocol.Header, includeExact bool) {
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if name := h.At(i).Name; protocol.EqualFoldUnderscore(name, forwardedClientCert) && (includeExact || !protocol.EqualFold(name, forwardedClientCert)) {
			h.Del(name)
		}
	}
}

// certElement returns the element for the client certificate.
func certElement(t *protocol.TLS, c *config.XFCC) string {
	var b strings.Builder
	if len(t.LocalURISANs) > 0 {
		b.WriteString("By=" + certValue(t.LocalURISANs[0]) + ";")
	}
	b.WriteString("Hash=" + t.Peer.Fingerprint)
	if c.Cert {
		b.WriteString(`;Cert="` + t.Peer.EscapedPEM(false) + `"`)
	}
	if c.Chain {
		b.WriteString(`;Chain="` + t.Peer.EscapedPEM(true) + `"`)
	}
	if c.Subject {
		b.WriteString(`;Subject="` + certSubject(t.Peer.Subject) + `"`)
	}
	if c.URI && len(t.Peer.URISANs) > 0 {
		b.WriteString(";URI=" + certValue(t.Peer.URISANs[0]))
	}
	if c.DNS {
		for _, name := range t.Peer.DNSSANs {
			b.WriteString(";DNS=" + certValue(name))
		}
	}
	return b.String()
}

// certValue returns the value of a pair. It quotes values that contain a separator. It
// percent-encodes quotes, backslashes, spaces and bytes that are not printable ASCII.
func certValue(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	if s = b.String(); strings.ContainsAny(s, ",;=") {
		return `"` + s + `"`
	}
	return s
}

const upperHex = "0123456789ABCDEF"

// certSubject escapes a distinguished name for a quoted string. It writes characters that could end
// the quotes or the field, and bytes that are not printable ASCII, in hexadecimal (RFC 4514 2.4).
// The name stays the same, and parsers need not support a backslash before a quote.
func certSubject(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		last := i+1 == len(name)
		switch {
		case c == '\\' && !last && (name[i+1] == '\\' || name[i+1] == '"'):
			i++
			c = name[i]
		case c >= ' ' && c < 0x7f && c != '"' && !(c == '\\' && last):
			b.WriteByte(c)
			continue
		}
		b.WriteByte('\\')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}
