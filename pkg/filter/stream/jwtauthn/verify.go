package jwtauthn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// algorithms returns the signature algorithms that tokens may use, without "none".
func algorithms() []string {
	return []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512",
	}
}

// errNoKey means that the key set lacks the key that signed a token. A newer set may have it.
var errNoKey = errors.New("no key for the token")

// verifier verifies the tokens of one provider. It is immutable.
type verifier struct {
	parser    *jwt.Parser
	audiences []string // a token must have one of them; empty: any audience
}

func newVerifier(p *Provider, now func() time.Time) *verifier {
	options := []jwt.ParserOption{
		jwt.WithValidMethods(algorithms()), jwt.WithTimeFunc(now), jwt.WithLeeway(p.ClockSkew),
		jwt.WithStrictDecoding(), jwt.WithJSONNumber(),
	}
	if p.Issuer != "" {
		options = append(options, jwt.WithIssuer(p.Issuer))
	}
	if p.RequireExpiration {
		options = append(options, jwt.WithExpirationRequired())
	}
	return &verifier{jwt.NewParser(options...), p.Audiences}
}

// verify returns the claims of a valid token. The error wraps errNoKey if a newer set of keys might
// verify the token.
func (v *verifier) verify(token string, keys keySet) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("the token has extensions that must be understood (RFC 7515 4.1.11)")
		}
		id := ""
		if kid, ok := t.Header["kid"]; ok {
			if id, ok = kid.(string); !ok || id == "" {
				return nil, errors.New("the kid of the token is empty or not a string")
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
	return claims, v.checkAudience(claims)
}

// errAudience is the error for a token that is valid except for its audience.
var errAudience = errors.New("the token is for another audience")

func (v *verifier) checkAudience(claims jwt.MapClaims) error {
	if len(v.audiences) == 0 {
		return nil
	}
	switch claims["aud"].(type) {
	case nil, string, []any:
	default:
		return errors.New("the aud of the token is not a string or a list")
	}
	audiences, err := claims.GetAudience()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(audiences, func(audience string) bool { return slices.Contains(v.audiences, audience) }) {
		return errAudience
	}
	return nil
}

// claimText returns a claim as text. If no claim has the name, dots in name separate the names of
// nested objects. ok is false if the claim is missing, is not a string, number or boolean, or has
// control characters, which a header value must not have.
func claimText(claims map[string]any, name string) (text string, ok bool) {
	value, found := claims[name]
	if !found {
		first, rest, nested := strings.Cut(name, ".")
		object, isObject := claims[first].(map[string]any)
		if !nested || !isObject {
			return "", false
		}
		return claimText(object, rest)
	}
	switch value.(type) {
	case map[string]any, []any, nil:
		return "", false
	}
	text = fmt.Sprint(value)
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	return text, !slices.ContainsFunc([]rune(text), isControl)
}
