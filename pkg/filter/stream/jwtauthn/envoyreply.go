package jwtauthn

import (
	"errors"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// envoyReply returns how Envoy expresses that a request is rejected because of err.
func envoyReply(err error) protocol.EnvoyReply {
	text := envoyText(err)
	return protocol.EnvoyReply{Body: text, Details: "jwt_authn_access_denied{" + strings.ReplaceAll(text, " ", "_") + "}", Flag: protocol.NoEnvoyFlag}
}

// envoyText returns the text with which Envoy expresses err.
func envoyText(err error) string {
	for _, t := range [...]struct {
		err  error
		text string
	}{
		{errMissing, "Jwt is missing"},
		{errAudience, "Audiences in Jwt are not allowed"},
		{errNoKey, "Jwks doesn't have key to match kid or alg from Jwt"},
		{jwt.ErrTokenExpired, "Jwt is expired"},
		{jwt.ErrTokenNotValidYet, "Jwt not yet valid"},
		{jwt.ErrTokenInvalidIssuer, "Jwt issuer is not configured"},
		{jwt.ErrTokenMalformed, "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"},
	} {
		if errors.Is(err, t.err) {
			return t.text
		}
	}
	return "Jwt verification fails"
}
