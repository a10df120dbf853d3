package dubbo

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// hidden stands for what is not shown.
const hidden = "[redacted]"

// shown returns a matter as logs and the API may have it: without what only callers of the
// service are to know.
func shown(m matter) string {
	if u, ok := m.(urlMatter); ok {
		return shownURL(u.URL)
	}
	return m.String()
}

func shownURL(u registry.URL) string {
	secrets := map[string]string{}
	for key := range u.Parameters.All() {
		if isSecret(key) {
			secrets[key] = hidden
		}
	}
	if u.Password != "" {
		u.Password = hidden
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
