package jwtauthn

import (
	"context"
	"errors"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// provider judges requests for one issuer. Immutable, but for its source.
type provider struct {
	config   Provider
	verifier *verifier
	source   source
	places   []FromHeader // fields that may have a token
}

// placesOf returns the fields that may have a token of p.
func placesOf(p *Provider) []FromHeader {
	if len(p.FromHeaders)+len(p.FromParams)+len(p.FromCookies) == 0 {
		return []FromHeader{{Name: "Authorization", Prefix: "Bearer "}}
	}
	return p.FromHeaders
}

// judge looks for the token and verifies it.
func (p *provider) judge(ctx context.Context, x *protocol.Exchange, wait func() bool) verdict {
	token, err := p.find(x)
	if err != nil {
		return verdict{err: err}
	}
	keys, err := p.source.keys(ctx, nil, wait)
	if err != nil {
		return verdict{err: err}
	}
	claims, err := p.verifier.verify(token, keys)
	if errors.Is(err, errNoKey) { // the issuer may have a new one
		if keys, newer := p.source.keys(ctx, keys, wait); newer == nil {
			claims, err = p.verifier.verify(token, keys)
		} else if errors.Is(newer, errWait) {
			err = newer
		}
	}
	return verdict{err: err, token: token, claims: claims}
}

// errSeveral says that a request has more than one token: what is behind might take
// another than was verified.
var errSeveral = errors.New("there are several tokens")

// find returns the request's only token.
func (p *provider) find(x *protocol.Exchange) (string, error) {
	token := ""
	several := false
	found := func(text string) {
		several = several || token != "" && token != text
		token = text
	}
	for name, value := range x.Request.Header.All() {
		for _, from := range p.places {
			if !protocol.EqualFold(name, from.Name) || len(value) < len(from.Prefix) || !protocol.EqualFold(value[:len(from.Prefix)], from.Prefix) {
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
	params := p.config.FromParams
	if len(p.places) == 1 && len(p.config.FromHeaders)+len(p.config.FromParams)+len(p.config.FromCookies) == 0 {
		params = []string{"access_token"} // RFC 6750 2.3
	}
	if _, query, ok := strings.Cut(x.Request.Path, "?"); ok && len(params) > 0 {
		for pair := range strings.SplitSeq(query, "&") {
			name, text, _ := strings.Cut(pair, "=")
			if text != "" && slices.Contains(params, name) {
				found(text)
			}
		}
	}
	switch {
	case several:
		return "", errSeveral
	case token == "":
		return "", errMissing
	}
	return token, nil
}

// tell lets the application know what the token claims.
func (p *provider) tell(x *protocol.Exchange, v verdict) {
	h := &x.Request.Header
	if name := p.config.PayloadHeader; name != "" {
		_, rest, _ := strings.Cut(v.token, ".")
		payload, _, _ := strings.Cut(rest, ".")
		h.Set(name, strings.Clone(payload))
	}
	for _, c := range p.config.ClaimHeaders {
		if text, ok := claim(v.claims, c.Claim); ok {
			h.Set(c.Header, text)
		}
	}
	if !p.config.Forward {
		for _, from := range p.places {
			if value, ok := h.Lookup(from.Name); ok && strings.HasSuffix(strings.TrimRight(value, " "), v.token) {
				h.Del(from.Name)
			}
		}
	}
}

// spellings returns a path without its query, and what it is when escapes, doubled
// slashes and dot segments are resolved, if that is another. A path with an escape that
// is none means nothing to anybody.
func spellings(target string) []string {
	raw, _, _ := strings.Cut(target, "?")
	if !strings.ContainsAny(raw, "%\\;") && !strings.Contains(raw, "//") && !strings.Contains(raw, "/.") {
		return []string{raw}
	}
	plain, err := url.PathUnescape(raw)
	if err != nil {
		plain = raw
	}
	plain = strings.ReplaceAll(plain, "\\", "/")
	segments := strings.Split(plain, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";") // a segment's parameters
	}
	plain = strings.Join(segments, "/")
	clean := path.Clean("/" + plain)
	if strings.HasSuffix(plain, "/") && clean != "/" {
		clean += "/"
	}
	return []string{raw, clean}
}
