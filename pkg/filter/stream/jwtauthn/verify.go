package jwtauthn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// algorithms are those that tokens may be signed with; "none" is not among them. Which
// of them a key verifies is the key's to say.
func algorithms() []string {
	return []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512",
	}
}

// errNoKey says that a token is signed with a key that the set does not have: perhaps
// with a newer one.
var errNoKey = errors.New("there is no key for it")

// verifier judges the tokens of one provider by a set of keys. Immutable.
type verifier struct {
	parser    *jwt.Parser
	audiences []string // of which a token must have one; none: anything
}

func newVerifier(p *Provider, now func() time.Time) *verifier {
	o := []jwt.ParserOption{
		jwt.WithValidMethods(algorithms()), jwt.WithTimeFunc(now), jwt.WithLeeway(p.ClockSkew),
		jwt.WithStrictDecoding(), jwt.WithJSONNumber(),
	}
	if p.Issuer != "" {
		o = append(o, jwt.WithIssuer(p.Issuer))
	}
	if p.RequireExpiration {
		o = append(o, jwt.WithExpirationRequired())
	}
	return &verifier{jwt.NewParser(o...), p.Audiences}
}

// verify returns what a good token claims. An error wraps errNoKey if another set of
// keys might say otherwise.
func (v *verifier) verify(token string, keys keySet) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("it has extensions that must be understood (RFC 7515 4.1.11)")
		}
		id := ""
		if said, ok := t.Header["kid"]; ok {
			if id, ok = said.(string); !ok || id == "" {
				return nil, errors.New("its kid is no name")
			}
		}
		var set jwt.VerificationKeySet
		for _, k := range keys.find(t.Method.Alg(), id) {
			set.Keys = append(set.Keys, k)
		}
		if len(set.Keys) == 0 {
			return nil, fmt.Errorf("%w: %s with the id %q", errNoKey, t.Method.Alg(), id)
		}
		return set, nil
	})
	if err != nil {
		return nil, err
	}
	return claims, v.judgeAudience(claims)
}

// errAudience is the error of a valid token for another audience.
var errAudience = errors.New("it is for another audience")

func (v *verifier) judgeAudience(claims jwt.MapClaims) error {
	if len(v.audiences) == 0 {
		return nil
	}
	switch claims["aud"].(type) {
	case nil, string, []any:
	default:
		return errors.New("its aud is no text")
	}
	said, err := claims.GetAudience()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(said, func(one string) bool { return slices.Contains(v.audiences, one) }) {
		return errAudience
	}
	return nil
}

// claim returns a claim as text; a name with points leads into objects. ok is false if
// there is none that is text, a number or a truth value, or if it could not stand in a
// field.
func claim(claims map[string]any, name string) (text string, ok bool) {
	value, found := claims[name]
	if !found {
		first, rest, nested := strings.Cut(name, ".")
		inner, isObject := claims[first].(map[string]any)
		if !nested || !isObject {
			return "", false
		}
		return claim(inner, rest)
	}
	switch value.(type) {
	case map[string]any, []any, nil:
		return "", false
	}
	text = fmt.Sprint(value)
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	return text, !slices.ContainsFunc([]rune(text), isControl)
}
