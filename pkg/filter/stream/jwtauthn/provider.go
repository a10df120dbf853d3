package jwtauthn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// provider finds and verifies the tokens of one issuer. It is immutable except for its source.
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
func (p *provider) verifyToken(ctx context.Context, x *protocol.Exchange, wait func() bool) tokenResult {
	token, err := p.findToken(x)
	if err != nil {
		return tokenResult{err: err}
	}
	keys, err := p.source.keys(ctx, nil, wait)
	if err != nil {
		return tokenResult{err: err}
	}
	claims, err := p.verifier.verify(token, keys)
	if errors.Is(err, errNoKey) { // the issuer may have a new key
		if keys, newer := p.source.keys(ctx, keys, wait); newer == nil {
			claims, err = p.verifier.verify(token, keys)
		} else if errors.Is(newer, errMustWait) {
			err = newer
		}
	}
	return tokenResult{err: err, token: token, claims: claims}
}

// errSeveralTokens means that a request has different tokens. The application might use another one
// than the filter verified.
var errSeveralTokens = errors.New("the request has several tokens")

// findToken returns the only token of x. The error is errMissing or errSeveralTokens.
func (p *provider) findToken(x *protocol.Exchange) (string, error) {
	token := ""
	several := false
	found := func(text string) {
		several = several || token != "" && token != text
		token = text
	}
	for name, value := range x.Request.Header.All() {
		for _, from := range p.headers {
			if !protocol.EqualFold(name, from.Name) || !protocol.HasPrefixFold(value, from.Prefix) {
				continue
			}
			if text := strings.Trim(value[len(from.Prefix):], " "); text != "" {
				found(text)
			}
		}
		if len(p.config.FromCookies) > 0 && protocol.EqualFold(name, "Cookie") {
			for pair := range strings.SplitSeq(value, ";") {
				cookie, text, _ := strings.Cut(strings.Trim(pair, " "), "=")
				if text != "" && slices.Contains(p.config.FromCookies, cookie) {
					found(text)
				}
			}
		}
	}
	if _, query, ok := strings.Cut(x.Request.Path, "?"); ok && len(p.params) > 0 {
		for pair := range strings.SplitSeq(query, "&") {
			if text := p.tokenParam(pair); text != "" {
				found(text)
			}
		}
	}
	switch {
	case several:
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
	before, query, ok := strings.Cut(path, "?")
	if !ok || len(p.params) == 0 {
		return path
	}
	var kept []string
	found := false
	for pair := range strings.SplitSeq(query, "&") {
		if p.tokenParam(pair) == token {
			found = true
		} else {
			kept = append(kept, pair)
		}
	}
	switch {
	case !found:
		return path
	case len(kept) == 0:
		return before
	}
	return before + "?" + strings.Join(kept, "&")
}

// unescapeQuery decodes part of a query if it has escapes. It returns a part with malformed escapes
// unchanged.
func unescapeQuery(part string) string {
	if !strings.Contains(part, "%") {
		return part
	}
	if resolved, err := url.QueryUnescape(part); err == nil {
		return resolved
	}
	return part
}

// applyClaims adds the claims of the token to the headers and metadata of x. Unless Forward is set,
// it removes the token from headers and query.
func (p *provider) applyClaims(x *protocol.Exchange, v tokenResult) {
	h := &x.Request.Header
	if name := p.config.PayloadHeader; name != "" {
		_, rest, _ := strings.Cut(v.token, ".")
		payload, _, _ := strings.Cut(rest, ".")
		h.Set(name, strings.Clone(payload))
	}
	for _, c := range p.config.ClaimHeaders {
		if text, ok := claimText(v.claims, c.Claim); ok {
			h.Set(c.Header, text)
		}
	}
	if key := p.config.PayloadMetadata; key != "" {
		p.addPayload(&x.Metadata, key, v.claims)
	}
	if !p.config.Forward {
		for _, from := range p.headers {
			removeToken(h, from.Name, v.token)
		}
		x.Request.Path = p.withoutToken(x.Request.Path, v.token)
		x.Record.OriginalPath = p.withoutToken(x.Record.OriginalPath, v.token) // which access logs contain
	}
}

// namespace is the metadata namespace of claims. Envoy uses the same.
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

// words returns the words of a text. Only spaces, one or more, separate words (RFC 8693 4.2).
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
// one element for each of its values. add adds other values, and nulls are skipped.
func addClaims(m *protocol.Metadata, path []string, value any, add func(m *protocol.Metadata, namespace, key, value string)) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			addClaims(m, append(path[:len(path):len(path)], name), inner, (*protocol.Metadata).Add)
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

// removeToken removes the headers called name whose value ends with the token, and keeps others.
func removeToken(h *protocol.Header, name, token string) {
	var others []string
	found := false
	for field, value := range h.All() {
		switch {
		case !protocol.EqualFold(field, name):
		case strings.HasSuffix(strings.TrimRight(value, " "), token):
			found = true
		default:
			others = append(others, value)
		}
	}
	if !found {
		return
	}
	h.Del(name)
	for _, value := range others {
		h.Add(name, value)
	}
}

// removeAllSpellings removes headers that a client sent under a name that only the filter may set,
// also if they have underscores for hyphens: CGI-like applications read X_User as X-User.
func removeAllSpellings(h *protocol.Header, name string) {
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if protocol.EqualFoldUnderscore(h.At(i).Name, name) {
			h.Del(h.At(i).Name)
		}
	}
}
