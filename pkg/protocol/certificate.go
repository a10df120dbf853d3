package protocol

import (
	"encoding/pem"
	"net/url"
	"strings"
)

// EscapedPEM returns the certificate as PEM (RFC 7468), percent-encoded for use in a header. If
// withChain is set, the certificates that the peer sent with it follow in the order received.
// EscapedPEM returns "" if Raw is empty.
func (c *Certificate) EscapedPEM(withChain bool) string {
	var text []byte
	for i, der := range c.Raw {
		if i > 0 && !withChain {
			break
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return strings.ReplaceAll(url.QueryEscape(string(text)), "+", "%20")
}
