package chainmatch

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestMismatchesNameEachCriterion(t *testing.T) {
	c := handshake("a.example", "h2")
	c.Destination, c.Source = addrPort("10.1.2.3:443"), addrPort("192.168.7.9:40000")
	c.DirectSource = c.Source.Addr()
	type match = config.ChainMatch
	for _, tt := range []struct {
		name  string
		match match
		want  []string
	}{
		{"no criteria", match{}, nil},
		{"all criteria match", match{DestinationPort: 443, ServerNames: []string{"*.example"}, ApplicationProtocols: []string{"http/1.1", "h2"}}, nil},
		{"a port", match{DestinationPort: 80}, []string{"its destination port is 443, expected destination_port 80"}},
		{"several criteria", match{DestinationRanges: prefixes("10.2.0.0/16"), ServerNames: []string{"b.example"}, TransportProtocol: config.RawBuffer}, []string{
			"its destination is 10.1.2.3, expected prefix_ranges [10.2.0.0/16]",
			`its server name is "a.example", expected server_names [b.example]`,
			"its transport protocol is tls, expected transport_protocol raw_buffer",
		}},
		{"a protocol", match{ApplicationProtocols: []string{"http/1.1"}}, []string{`its application protocols are ["h2"], expected application_protocols [http/1.1]`}},
		{"source criteria", match{
			DirectSourceRanges: prefixes("10.0.0.0/8"), SourceType: config.LocalSource, SourceRanges: prefixes("10.0.0.0/8"), SourcePorts: []uint16{1},
		}, []string{
			"its direct source is 192.168.7.9, expected direct_source_prefix_ranges [10.0.0.0/8]",
			"its source is 192.168.7.9, expected source_type SAME_IP_OR_LOOPBACK",
			"its source is 192.168.7.9, expected source_prefix_ranges [10.0.0.0/8]",
			"its source port is 40000, expected source_ports [1]",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Mismatches(&tt.match, &c); !slices.Equal(got, tt.want) {
				t.Errorf("Mismatches = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUnknownAddressMatchesNoRange(t *testing.T) {
	got := Mismatches(&config.ChainMatch{DestinationRanges: prefixes("10.0.0.0/8")}, &Connection{})
	want := []string{"its destination is an unknown address, expected prefix_ranges [10.0.0.0/8]"}
	if !slices.Equal(got, want) {
		t.Errorf("Mismatches = %q, want %q", got, want)
	}
}
