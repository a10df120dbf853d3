package chainmatch

import (
	"fmt"
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
)

// Mismatches returns a sentence for each criterion of match that c does not meet. Even if c meets
// all criteria, it may take another chain that is more specific at the same or an earlier
// criterion.
func Mismatches(match *config.ChainMatch, c *Connection) (reasons []string) {
	for _, v := range criteria(match, c) {
		m, err := Compile([]config.ChainMatch{v.want})
		if err != nil || m.Match(c) < 0 {
			reasons = append(reasons, fmt.Sprintf("%s, expected %s", v.got, v.want.String()))
		}
	}
	return reasons
}

// criterionValue is one criterion: the values that a chain requires and the value of a connection.
type criterionValue struct {
	want config.ChainMatch // with only that criterion set
	got  string
}

// criteria splits match into its criteria, in the order of evaluation.
func criteria(match *config.ChainMatch, c *Connection) (values []criterionValue) {
	add := func(isSet bool, want config.ChainMatch, format string, value any) {
		if isSet {
			values = append(values, criterionValue{want, fmt.Sprintf(format, value)})
		}
	}
	add(match.DestinationPort != 0, config.ChainMatch{DestinationPort: match.DestinationPort}, "its destination port is %d", c.Destination.Port())
	add(len(match.DestinationRanges) > 0, config.ChainMatch{DestinationRanges: match.DestinationRanges}, "its destination is %s", formatAddr(c.Destination.Addr()))
	add(len(match.ServerNames) > 0, config.ChainMatch{ServerNames: match.ServerNames}, "its server name is %q", c.ServerName)
	add(match.TransportProtocol != config.AnyTransport, config.ChainMatch{TransportProtocol: match.TransportProtocol}, "its transport protocol is %s", c.Transport)
	add(len(match.ApplicationProtocols) > 0, config.ChainMatch{ApplicationProtocols: match.ApplicationProtocols}, "its application protocols are %q", c.Protocols)
	add(len(match.DirectSourceRanges) > 0, config.ChainMatch{DirectSourceRanges: match.DirectSourceRanges}, "its direct source is %s", formatAddr(c.DirectSource))
	add(match.SourceType != config.AnySource, config.ChainMatch{SourceType: match.SourceType}, "its source is %s", formatAddr(c.Source.Addr()))
	add(len(match.SourceRanges) > 0, config.ChainMatch{SourceRanges: match.SourceRanges}, "its source is %s", formatAddr(c.Source.Addr()))
	add(len(match.SourcePorts) > 0, config.ChainMatch{SourcePorts: match.SourcePorts}, "its source port is %d", c.Source.Port())
	return values
}

func formatAddr(a netip.Addr) string {
	if !a.IsValid() {
		return "an unknown address"
	}
	return a.String()
}
