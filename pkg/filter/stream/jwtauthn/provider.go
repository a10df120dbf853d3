package jwtauthn

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// provider finds and verifies the tokens of one issuer. Only its source changes.
type provider struct {
	config   Provider
	verifier *verifier
	source   keySource
	headers  []FromHeader // headers that may contain a token
	params   []string     // query parameters that may contain a token
}

// tokenHeaders returns the headers that may contain a token of p.
func tokenHeaders(p *Provider) []FromHeader {
	if len(p.FromHeaders)+len(p.FromParams)+len(p.FromCookies) == 0 {
		return []FromHeader{{Name: "Authorization", Prefix: "Bearer "}}
	}
	return p.FromHeaders
}

// tokenParams returns the query parameters that may contain a token of p.
func tokenParams(p *Provider) []string {
	if len(p.FromHeaders)+len(p.FromParams)+len(p.FromCookies) == 0 {
		return []string{"access_token"} // RFC 6750 2.3
	}
	return p.FromParams
}

// verifyToken finds the token of x and verifies it.
func (p *provider) verifyToken(x *protocol.Exchange, await awaitFunc) tokenResult {
	token, err := p.findToken(x)
	if err != nil {
		return tokenResult{err: err}
	}
	keys, err := p.source.keys(nil, await)
	if err != nil {
		return tokenResult{err: err}
	}
	claims, err := p.verifier.verify(token, keys)
	if errors.Is(err, errNoKey) { // the issuer may have a new key
		if keys, fetchErr := p.source.keys(keys, await); fetchErr == nil {
			claims, err = p.verifier.verify(token, keys)
		} else if errors.Is(fetchErr, errUndecided) {
			err = fetchErr
		}
	}
	return tokenResult{err: err, token: token, claims: claims}
}

// errSeveralTokens means that a request has different tokens. The application might use a token
// that the filter has not verified.
var errSeveralTokens = errors.New("the request has several tokens")

// findToken returns the only token of x. The error is errMissing or errSeveralTokens.
func (p *provider) findToken(x *protocol.Exchange) (string, error) {
	token := ""
	ambiguous := false
	addToken := func(text string) {
		ambiguous = ambiguous || token != "" && token != text
		token = text
	}
	for name, value := range x.Request.Header.All() {
		for _, from := range p.headers {
			if !protocol.EqualFold(name, from.Name) || !protocol.HasPrefixFold(value, from.Prefix) {
				continue
			}
			if text := strings.Trim(value[len(from.Prefix):], " "); text != "" {
				addToken(text)
			}
		}
		if len(p.config.FromCookies) > 0 && protocol.EqualFold(name, "Cookie") {
			for pair := range strings.SplitSeq(value, ";") {
				cookie, text, _ := strings.Cut(strings.Trim(pair, " "), "=")
				if text != "" && slices.Contains(p.config.FromCookies, cookie) {
					addToken(text)
				}
			}
		}
	}
	if _, query, ok := strings.Cut(x.Request.Path, "?"); ok && len(p.params) > 0 {
		for pair := range strings.SplitSeq(query, "&") {
			if text := p.tokenParam(pair); text != "" {
				addToken(text)
			}
		}
	}
	switch {
	case ambiguous:
		return "", errSeveralTokens
	case token == "":
		return "", errMissing
	}
	return token, nil
}

// tokenParam returns the value of a query pair if its name is in p.params, else "".
func (p *provider) tokenParam(pair string) string {
	name, text, _ := strings.Cut(pair, "=")
	if !slices.Contains(p.params, unescapeQuery(name)) {
		return ""
	}
	return unescapeQuery(text)
}

// withoutToken returns path without the query parameters that contain token. The rest of path stays
// unchanged.
func (p *provider) withoutToken(path, token string) string {
	base, query, ok := strings.Cut(path, "?")
	if !ok || len(p.params) == 0 {
		return path
	}
	var pairs []string
	found := false
	for pair := range strings.SplitSeq(query, "&") {
		if p.tokenParam(pair) == token {
			found = true
		} else {
			pairs = append(pairs, pair)
		}
	}
	switch {
	case !found:
		return path
	case len(pairs) == 0:
		return base
	}
	return base + "?" + strings.Join(pairs, "&")
}

// unescapeQuery decodes the escapes in a part of a query. If an escape is malformed, it returns the
// part unchanged.
func unescapeQuery(part string) string {
	if !strings.Contains(part, "%") {
		return part
	}
	if decoded, err := url.QueryUnescape(part); err == nil {
		return decoded
	}
	return part
}

// applyClaims adds the claims of the token to the headers and metadata of x. Unless Forward is set,
// it removes the token from headers and query.
func (p *provider) applyClaims(x *protocol.Exchange, r tokenResult) {
	h := &x.Request.Header
	if name := p.config.PayloadHeader; name != "" {
		_, rest, _ := strings.Cut(r.token, ".")
		payload, _, _ := strings.Cut(rest, ".")
		h.Set(name, strings.Clone(payload))
	}
	for _, c := range p.config.ClaimHeaders {
		if text, ok := claimText(r.claims, c.Claim); ok {
			h.Set(c.Header, text)
		}
	}
	if key := p.config.PayloadMetadata; key != "" {
		p.addPayload(&x.Metadata, key, r.claims)
	}
	if !p.config.Forward {
		for _, from := range p.headers {
			removeToken(h, from.Name, r.token)
		}
		x.Request.Path = p.withoutToken(x.Request.Path, r.token)
		x.Record.OriginalPath = p.withoutToken(x.Record.OriginalPath, r.token) // access logs contain it
	}
}

// namespace is the metadata namespace of claims, as in Envoy.
const namespace = "envoy.filters.http.jwt_authn"

// addPayload adds the claims of a token to m, below key.
func (p *provider) addPayload(m *protocol.Metadata, key string, claims map[string]any) {
	for name, value := range claims {
		if n := p.config.Normalize; n != nil && slices.Contains(n.SpaceDelimited, name) {
			if text, ok := value.(string); ok && strings.Trim(text, " ") != "" {
				value = words(text)
			}
		}
		addClaims(m, []string{key, name}, value, (*protocol.Metadata).Add)
	}
}

// words returns the words of a text. Words are separated by one or more spaces (RFC 8693 4.2).
func words(text string) []any {
	var list []any
	for word := range strings.SplitSeq(text, " ") {
		if word != "" {
			list = append(list, word)
		}
	}
	return list
}

// addClaims adds value to m below path. Members of objects add their name to the path. A list adds
// an element for each of its values. addClaims adds other values with add, and skips nulls.
func addClaims(m *protocol.Metadata, path []string, value any, add func(m *protocol.Metadata, namespace, key, value string)) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			addClaims(m, append(path[:len(path):len(path)], name), member, (*protocol.Metadata).Add)
		}
	case []any:
		for _, element := range value {
			addClaims(m, path, element, (*protocol.Metadata).AddElement)
		}
	case nil:
	default:
		add(m, namespace, protocol.MetadataKey(path...), fmt.Sprint(value))
	}
}

// removeToken removes the headers called name whose value ends with the token.
func removeToken(h *protocol.Header, name, token string) {
	var otherValues []string
	found := false
	for field, value := range h.All() {
		switch {
		case !protocol.EqualFold(field, name):
		case strings.HasSuffix(strings.TrimRight(value, " "), token):
			found = true
		default:
			otherValues = append(otherValues, value)
		}
	}
	if !found {
		return
	}
	h.Del(name)
	for _, value := range otherValues {
		h.Add(name, value)
	}
}

// removeAllSpellings removes the headers called name, also if they have underscores instead of
// hyphens: CGI-like applications read X_User as X-User.
func removeAllSpellings(h *protocol.Header, name string) {
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if protocol.EqualFoldUnderscore(h.At(i).Name, name) {
			h.Del(h.At(i).Name)
		}
	}
}
