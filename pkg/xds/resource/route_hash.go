package resource

import (
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// readHashRewrite reads the regex_rewrite of a hash policy. Its rules are those of Envoy's API.
func (p fieldReader) readHashRewrite(m *matcherv3.RegexMatchAndSubstitute) *config.RegexRewrite {
	if m == nil {
		return nil
	}
	if m.GetPattern().GetRegex() == "" {
		p.field("pattern").reject("is required")
	}
	if strings.ContainsAny(m.GetSubstitution(), "\x00\r\n") {
		p.field("substitution").reject("contains a null character or a line break")
	}
	return p.readRegexRewrite(m)
}
