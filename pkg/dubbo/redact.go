package dubbo

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/registry"
)

// redacted replaces secret values.
const redacted = "[redacted]"

// redact returns the text of r for logs and the API, without secrets.
func redact(r registrable) string {
	if u, ok := r.(registrableURL); ok {
		return redactURL(u.URL)
	}
	return r.String()
}

func redactURL(u registry.URL) string {
	secrets := map[string]string{}
	for key := range u.Parameters.All() {
		if isSecret(key) {
			secrets[key] = redacted
		}
	}
	if u.Password != "" {
		u.Password = redacted
	}
	if len(secrets) == 0 {
		return u.String()
	}
	return u.With(secrets).String()
}

// isSecret reports whether a parameter with that name is secret, such as Dubbo's "token", which
// authorizes calls of a provider.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	for _, suffix := range [...]string{"token", "password", "secret", "accesskey"} {
		if strings.HasSuffix(strings.ReplaceAll(key, "-", ""), suffix) {
			return true
		}
	}
	return false
}
