package cdnloop

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// count returns how often a value of CDN-Loop names id. ok is false if the value is malformed:
//
//	CDN-Loop  = #cdn-info
//	cdn-info  = cdn-id *( OWS ";" OWS parameter )
//	cdn-id    = ( uri-host [ ":" port ] ) / pseudonym
//	parameter = token "=" ( token / quoted-string )
func count(value, id string) (n int, ok bool) {
	rest := trimSpace(value)
	for rest != "" {
		if rest[0] == ',' { // an empty element of the list
			rest = trimSpace(rest[1:])
			continue
		}
		name, after, ok := cutInfo(rest)
		if !ok {
			return 0, false
		}
		if protocol.EqualFold(name, id) {
			n++
		}
		switch {
		case after == "":
		case after[0] != ',':
			return 0, false
		}
		rest = after
	}
	return n, true
}

// cutInfo cuts a cdn-info from the beginning of text, and returns its cdn-id.
func cutInfo(text string) (id, rest string, ok bool) {
	id, rest, ok = cutID(text)
	if !ok {
		return "", "", false
	}
	for rest = trimSpace(rest); strings.HasPrefix(rest, ";"); rest = trimSpace(rest) {
		name, after := cutToken(trimSpace(rest[1:]))
		if name == "" || !strings.HasPrefix(after, "=") {
			return "", "", false
		}
		if after = after[1:]; strings.HasPrefix(after, `"`) {
			if rest, ok = cutQuoted(after); !ok {
				return "", "", false
			}
			continue
		}
		if name, rest = cutToken(after); name == "" {
			return "", "", false
		}
	}
	return id, rest, true
}

// cutID cuts a cdn-id from the beginning of text. A host name, an IPv4 address and a pseudonym are
// tokens; an IPv6 address is in brackets. ok is false if there is no cdn-id.
func cutID(text string) (id, rest string, ok bool) {
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 || strings.Trim(text[1:end], "0123456789abcdefABCDEF:.") != "" || end == 1 {
			return "", "", false
		}
		rest = text[end+1:]
	} else if id, rest = cutToken(text); id == "" {
		return "", "", false
	}
	if strings.HasPrefix(rest, ":") {
		rest = strings.TrimLeft(rest[1:], "0123456789")
	}
	return text[:len(text)-len(rest)], rest, true
}

// cutToken cuts a token (RFC 9110 5.6.2) from the beginning of text; it is empty if there is none.
func cutToken(text string) (token, rest string) {
	i := 0
	for i < len(text) && isTokenByte(text[i]) {
		i++
	}
	return text[:i], text[i:]
}

func isTokenByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// cutQuoted cuts a quoted string (RFC 9110 5.6.4), with which text begins. ok is false if it does
// not end.
func cutQuoted(text string) (rest string, ok bool) {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[i+1:], true
		}
	}
	return "", false
}

// trimSpace removes optional white space (RFC 9110 5.6.3).
func trimSpace(text string) string { return strings.Trim(text, " \t") }
