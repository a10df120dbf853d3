package dubbo

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// redacted stands for what is not shown.
const redacted = "[redacted]"

// redact returns a matter as logs and the API may have it: without what only callers of the
// service are to know.
func redact(m registrable) string {
	if u, ok := m.(registrableURL); ok {
		return redactURL(u.URL)
	}
	return m.String()
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

// isSecret reports whether a parameter of that name says what not everybody is to know, as
// Dubbo's "token", with which alone a provider takes calls.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range [...]string{"token", "password", "secret", "accesskey"} {
		if strings.HasSuffix(strings.ReplaceAll(key, "-", ""), word) {
			return true
		}
	}
	return false
}
