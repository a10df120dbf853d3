package resource

import (
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
)

// TestWildcardDomains verifies that domains with a wildcard at one end are accepted, and that a
// domain with wildcards at both ends is rejected.
func TestWildcardDomains(t *testing.T) {
	const path = "virtual_hosts[0].domains[0]: "
	for domain, want := range map[string]string{
		"x.*": "", "shop-*": "", "*": "", "*.x": "", "x:*": "", "*.x:80": "",
		"*x*": path + `"*x*": a wildcard is supported at one end only`,
	} {
		m := &routev3.RouteConfiguration{Name: "t", VirtualHosts: []*routev3.VirtualHost{{Name: "a", Domains: []string{domain}}}}
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		table, err := ReadRoutes(body, Capabilities{})
		got := ""
		if err != nil {
			got = err.Error()
		} else if domains := table.Config.VirtualHosts[0].Domains; !slices.Equal(domains, []string{domain}) {
			t.Errorf("%q is read as %q, want it unchanged", domain, domains)
		}
		if got != want {
			t.Errorf("%q: the error is %q, want %q", domain, got, want)
		}
	}
}

// TestDomainsWithTrailingDot verifies that a name with a trailing dot and the same name without it
// are two domains, as in Envoy. Istio sends both to sidecars (TestIstiod in test/xds).
func TestDomainsWithTrailingDot(t *testing.T) {
	read := func(hosts ...[]string) (*RouteTable, error) {
		m := &routev3.RouteConfiguration{Name: "t"}
		for i, domains := range hosts {
			m.VirtualHosts = append(m.VirtualHosts, &routev3.VirtualHost{Name: string(rune('a' + i)), Domains: domains})
		}
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return ReadRoutes(body, Capabilities{})
	}
	got, err := read([]string{"x.test", "X.test.", "y.test."}, []string{"y.test"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"x.test", "x.test.", "y.test."}; !slices.Equal(got.Config.VirtualHosts[0].Domains, want) {
		t.Errorf("the domains are %q, want %q", got.Config.VirtualHosts[0].Domains, want)
	}
	if !got.Config.LiteralDomains {
		t.Error("LiteralDomains is false: the router would ignore a trailing dot")
	}
	if _, err := read([]string{"x.test."}, []string{"X.test."}); err == nil || !strings.Contains(err.Error(), `virtual_hosts[1].domains: "x.test." is already a domain of the virtual host "a"`) {
		t.Errorf("two virtual hosts with one domain: %v, want a rejection", err)
	}
	if _, err := read([]string{"y.test", "Y.test"}); err == nil || !strings.Contains(err.Error(), `virtual_hosts[0].domains[1]: "y.test" is already a domain of the virtual host`) {
		t.Errorf("a virtual host with a domain twice: %v, want a rejection", err)
	}
}

// TestDomainCase verifies that the case of letters matters only outside ASCII.
func TestDomainCase(t *testing.T) {
	p := fieldReader{report: &report{}}
	want := []string{"a.test", "\u212a.test", "k.test", "\u00c4.test", "\u00e4.test"}
	if got := p.readDomains([]string{"A.Test", "\u212a.TEST", "K.test", "\u00c4.test", "\u00e4.test"}); !slices.Equal(got, want) {
		t.Errorf("readDomains = %q, want %q", got, want)
	}
}
