package resource

import (
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/weft-proxy/weft/pkg/config"
)

// readTableText reads a RouteConfiguration from its text form.
func readTableText(t *testing.T, text string) (*RouteTable, error) {
	t.Helper()
	return ReadRoutes(tableBody(t, text), testCapabilities())
}

// tableBody serializes a RouteConfiguration in its text form.
func tableBody(t *testing.T, text string) []byte {
	t.Helper()
	m := &routev3.RouteConfiguration{}
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return marshaled(t, m)
}

func TestRequireTLS(t *testing.T) {
	for value, want := range map[string]config.RequireTLS{
		"": config.TLSOptional, "require_tls: NONE": config.TLSOptional, "require_tls: ALL": config.TLSRequired, "require_tls: EXTERNAL_ONLY": config.TLSRequiredExternal,
	} {
		table, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*" `+value+`}`)
		if err != nil {
			t.Errorf("%q: error %v, want none", value, err)
			continue
		}
		if got := table.Config.VirtualHosts[0].RequireTLS; got != want {
			t.Errorf("%q: RequireTLS = %v, want %v", value, got, want)
		}
	}
	if _, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*" require_tls: 9}`); err == nil || !strings.Contains(err.Error(), "virtual_hosts[0].require_tls: 9 is not supported") {
		t.Errorf("require_tls 9: error %v, want one that names virtual_hosts[0].require_tls", err)
	}
}

func TestVirtualHostHeader(t *testing.T) {
	for text, want := range map[string]string{``: "", `vhost_header: "x-vh"`: "x-vh", `vhost_header: ":path"`: ":path"} {
		table, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*"} `+text)
		if err != nil || table.Config.VirtualHostHeader != want {
			t.Errorf("%q: VirtualHostHeader = %q, error %v, want %q", text, table.Config.VirtualHostHeader, err, want)
		}
	}
}

func TestMostSpecificHeaderMutationsWins(t *testing.T) {
	for text, want := range map[string]bool{``: false, `most_specific_header_mutations_wins: false`: false, `most_specific_header_mutations_wins: true`: true} {
		table, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*"} `+text)
		if err != nil || table.Config.MostSpecificMutationsWin != want {
			t.Errorf("%q: MostSpecificMutationsWin = %v, error %v, want %v", text, table.Config.MostSpecificMutationsWin, err, want)
		}
	}
}
