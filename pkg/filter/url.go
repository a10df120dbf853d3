package filter

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// RequestURL returns the URL of an HTTP request as the client sent it, for the realm of a challenge
// (RFC 9110 11.5). Characters that would end a quoted string are percent-encoded.
func RequestURL(x *protocol.Exchange) string {
	scheme := x.Request.Scheme
	if scheme == "" {
		scheme = "http"
	}
	url := scheme + "://" + x.OriginalAuthority() + x.OriginalPath()
	if !strings.ContainsAny(url, `"\`) {
		return url
	}
	return strings.NewReplacer(`"`, "%22", `\`, "%5C").Replace(url)
}
