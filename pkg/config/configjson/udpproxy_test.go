package configjson

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestUDPProxyExample verifies that the example in the filter's README is valid and has the
// described effect.
func TestUDPProxyExample(t *testing.T) {
	readme, err := os.ReadFile("../../filter/network/udpproxy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(readme), "```json config=udp_proxy.json\n")
	example, _, found := strings.Cut(example, "```")
	if !found {
		t.Fatal("README.md has no example")
	}
	s, diags := Parse("a.json", []byte(example), testCapabilities(), Options{})
	if s == nil || len(diags) > 0 {
		t.Fatal(diags)
	}
	l := s.Listeners[0]
	want := &config.UDPProxy{Cluster: "resolvers", IdleTimeout: 5 * time.Second, MaxSessions: 1000}
	if diff := cmp.Diff(want, l.FilterChains[0].UDPProxy); diff != "" || l.Network != "udp" {
		t.Errorf("network %q, -want +got:\n%s", l.Network, diff)
	}
}
