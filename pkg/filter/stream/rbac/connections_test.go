package rbac

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestConnectionRules(t *testing.T) {
	of := func(change func(*protocol.ConnMeta)) *protocol.ConnMeta {
		conn := &protocol.ConnMeta{Local: netip.MustParseAddrPort("192.0.2.9:8080"), Remote: netip.MustParseAddrPort("10.0.0.1:4711")}
		if change != nil {
			change(conn)
		}
		return conn
	}
	shown := func(uri string) *protocol.ConnMeta {
		return of(func(c *protocol.ConnMeta) {
			c.Secure, c.TLS = true, &protocol.TLS{ServerName: "shop.example", Peer: &protocol.Certificate{URISANs: []string{uri}}}
		})
	}
	plain := of(nil)
	const admin, guest = "spiffe://cluster.local/ns/default/sa/admin", "spiffe://cluster.local/ns/default/sa/guest"
	const notAdmin = `{"and_ids": {"ids": [{"not_id": {"or_ids": {"ids": [{"authenticated": {"principal_name": {"exact": "` + admin + `"}}}]}}}]}}`
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		in, out  *protocol.ConnMeta
	}{
		{"by a certificate", principalPolicy("ALLOW", `{"authenticated": {"principal_name": {"exact": "`+admin+`"}}}`), shown(admin), shown(guest)},
		{"without a certificate", principalPolicy("ALLOW", `{"authenticated": {}}`), shown(guest), plain},
		{"denied unless by a certificate", principalPolicy("DENY", notAdmin), shown(admin), plain},
		{"by the port", permissionPolicy("ALLOW", `{"destination_port": 8080}`), plain, of(func(c *protocol.ConnMeta) { c.Local = netip.MustParseAddrPort("192.0.2.9:8081") })},
		{"by the address that was called", permissionPolicy("DENY", `{"destination_ip": {"address_prefix": "192.0.3.0", "prefix_len": 24}}`), plain, of(func(c *protocol.ConnMeta) { c.Local = netip.MustParseAddrPort("192.0.3.9:8080") })},
		{"by the name that was asked for", permissionPolicy("ALLOW", `{"requested_server_name": {"exact": "shop.example"}}`), shown(guest), plain},
		{"by who calls", principalPolicy("ALLOW", `{"source_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), plain, of(func(c *protocol.ConnMeta) { c.Remote = netip.MustParseAddrPort("11.0.0.1:1") })},
		{"by the client, who is who calls", principalPolicy("ALLOW", `{"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), plain, of(func(c *protocol.ConnMeta) { c.Remote = netip.MustParseAddrPort("11.0.0.1:1") })},
		{"by the other end, whoever it speaks for", principalPolicy("ALLOW", `{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), plain, of(func(c *protocol.ConnMeta) {
			peer := netip.MustParseAddrPort("11.0.0.1:1")
			c.ProxyAddr = &peer
		})},
		{"not by a unix socket's address", principalPolicy("ALLOW", `{"source_ip": {"address_prefix": "0.0.0.0", "prefix_len": 0}}`), plain, &protocol.ConnMeta{}},
		{"no policy", `{"rules": {"action": "ALLOW", "policies": {}}}`, nil, plain},
		{"all without rules", `{}`, plain, nil},
		{"all by rules that only note", `{"rules": {"action": "LOG", "policies": {}}}`, plain, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			admit, counts := filtertest.BuildConnectionFilter(t, ConnectionFactory(), test.settings)
			if test.in != nil {
				if err := admit(test.in); err != nil {
					t.Errorf("the connection is refused: %v", err)
				}
			}
			if test.out != nil {
				if err := admit(test.out); err == nil {
					t.Error("the connection is accepted")
				} else if got := counts.Value(connectionsDeniedMetric()); got != 1 {
					t.Errorf("%v denied, want 1", got)
				}
			}
		})
	}
}

func TestShadowRulesOfConnectionsOnlyCount(t *testing.T) {
	admit, counts := filtertest.BuildConnectionFilter(t, ConnectionFactory(), `{"shadow_rules": {"action": "DENY", "policies": {"all": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}}`)
	if err := admit(&protocol.ConnMeta{}); err != nil {
		t.Errorf("the connection is refused: %v", err)
	}
	if got := counts.Value(connectionsShadowDeniedMetric()); got != 1 {
		t.Errorf("the shadow rules denied %v, want 1", got)
	}
	if got := counts.Value(connectionsDeniedMetric()) + counts.Value(connectionsAllowedMetric()); got != 0 {
		t.Errorf("%v decisions are counted without rules", got)
	}
}

// TestRequestConditionsAreRejectedForConnections verifies that conditions on requests are rejected.
// Under DENY, a condition that never matches would allow every connection.
func TestRequestConditionsAreRejectedForConnections(t *testing.T) {
	kind := filter.StreamFilterFactory{Config: ConnectionFactory().Config}
	for name, s := range map[string]filtertest.Settings{
		"a field":       permissionPolicy("DENY", `{"header": {"name": "x-tenant", "exact_match": "a"}}`),
		"a path":        permissionPolicy("DENY", `{"not_rule": {"url_path": {"path": {"exact": "/"}}}}`),
		"metadata":      principalPolicy("DENY", `{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"present_match": true}}}`),
		"in the shadow": filtertest.Settings(strings.Replace(string(permissionPolicy("DENY", `{"header": {"name": "x", "present_match": true}}`)), "rules", "shadow_rules", 1)),
		"a tree":        `{"matcher": {"matcher_list": {"matchers": ["m"]}}}`,
		"an expression": `{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}], "condition": {"const_expr": {"bool_value": true}}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			problems := filtertest.DecodeErrors(t, kind, s)
			if !strings.Contains(problems, errRequestCondition.Error()) && !strings.Contains(problems, "not supported yet") {
				t.Errorf("the configuration is rejected with %s", problems)
			}
		})
	}
}

// TestReadmeListsConnectionMetrics verifies that README.md names the connection metrics.
// CheckReadme compares only the tables of the stream filter.
func TestReadmeListsConnectionMetrics(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ConnectionFactory().Metrics {
		if !strings.Contains(string(page), "`"+m.Name+"`") {
			t.Errorf("README.md does not tell of %s", m.Name)
		}
	}
}
