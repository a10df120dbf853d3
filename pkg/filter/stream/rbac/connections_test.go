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
	newConn := func(change func(*protocol.ConnMeta)) *protocol.ConnMeta {
		conn := &protocol.ConnMeta{Local: netip.MustParseAddrPort("192.0.2.9:8080"), Remote: netip.MustParseAddrPort("10.0.0.1:4711")}
		if change != nil {
			change(conn)
		}
		return conn
	}
	withCertificate := func(uri string) *protocol.ConnMeta {
		return newConn(func(c *protocol.ConnMeta) {
			c.Secure, c.TLS = true, &protocol.TLS{ServerName: "shop.example", Peer: &protocol.Certificate{URISANs: []string{uri}}}
		})
	}
	plain := newConn(nil)
	const admin, guest = "spiffe://cluster.local/ns/default/sa/admin", "spiffe://cluster.local/ns/default/sa/guest"
	const notAdmin = `{"and_ids": {"ids": [{"not_id": {"or_ids": {"ids": [{"authenticated": {"principal_name": {"exact": "` + admin + `"}}}]}}}]}}`
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		allowed  *protocol.ConnMeta // nil: not checked
		denied   *protocol.ConnMeta // nil: not checked
	}{
		{"certificate", principalPolicy("ALLOW", `{"authenticated": {"principal_name": {"exact": "`+admin+`"}}}`), withCertificate(admin), withCertificate(guest)},
		{"any certificate", principalPolicy("ALLOW", `{"authenticated": {}}`), withCertificate(guest), plain},
		{"DENY unless certificate", principalPolicy("DENY", notAdmin), withCertificate(admin), plain},
		{"destination port", permissionPolicy("ALLOW", `{"destination_port": 8080}`), plain, newConn(func(c *protocol.ConnMeta) { c.Local = netip.MustParseAddrPort("192.0.2.9:8081") })},
		{"destination address", permissionPolicy("DENY", `{"destination_ip": {"address_prefix": "192.0.3.0", "prefix_len": 24}}`), plain, newConn(func(c *protocol.ConnMeta) { c.Local = netip.MustParseAddrPort("192.0.3.9:8080") })},
		{"server name", permissionPolicy("ALLOW", `{"requested_server_name": {"exact": "shop.example"}}`), withCertificate(guest), plain},
		{"source address", principalPolicy("ALLOW", `{"source_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), plain, newConn(func(c *protocol.ConnMeta) { c.Remote = netip.MustParseAddrPort("11.0.0.1:1") })},
		{"remote address", principalPolicy("ALLOW", `{"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), plain, newConn(func(c *protocol.ConnMeta) { c.Remote = netip.MustParseAddrPort("11.0.0.1:1") })},
		{"direct remote address", principalPolicy("ALLOW", `{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}`), plain, newConn(func(c *protocol.ConnMeta) {
			peer := netip.MustParseAddrPort("11.0.0.1:1")
			c.ProxyAddr = &peer
		})},
		{"unix socket", principalPolicy("ALLOW", `{"source_ip": {"address_prefix": "0.0.0.0", "prefix_len": 0}}`), plain, &protocol.ConnMeta{}},
		{"no policy", `{"rules": {"action": "ALLOW", "policies": {}}}`, nil, plain},
		{"no rules", `{}`, plain, nil},
		{"LOG", `{"rules": {"action": "LOG", "policies": {}}}`, plain, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			evaluate, counts := filtertest.BuildConnectionFilter(t, ConnectionFactory(), test.settings)
			if test.allowed != nil {
				if err := evaluate(test.allowed); err != nil {
					t.Errorf("denied with %v, want allowed", err)
				}
			}
			if test.denied != nil {
				if err := evaluate(test.denied); err == nil {
					t.Error("allowed, want denied")
				} else if got := counts.Value(connectionsDeniedMetric()); got != 1 {
					t.Errorf("%v denied, want 1", got)
				}
			}
		})
	}
}

func TestShadowRulesOfConnectionsOnlyCount(t *testing.T) {
	evaluate, counts := filtertest.BuildConnectionFilter(t, ConnectionFactory(), `{"shadow_rules": {"action": "DENY", "policies": {"all": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}}`)
	if err := evaluate(&protocol.ConnMeta{}); err != nil {
		t.Errorf("denied with %v, want allowed", err)
	}
	if got := counts.Value(connectionsShadowDeniedMetric()); got != 1 {
		t.Errorf("the shadow rules denied %v, want 1", got)
	}
	if got := counts.Value(connectionsDeniedMetric()) + counts.Value(connectionsAllowedMetric()); got != 0 {
		t.Errorf("%v allowed and denied connections without rules, want 0", got)
	}
}

// TestRequestConditionsAreRejectedForConnections verifies that conditions on requests are rejected.
// Under DENY, a condition that never matches would allow every connection.
func TestRequestConditionsAreRejectedForConnections(t *testing.T) {
	factory := filter.StreamFilterFactory{Config: ConnectionFactory().Config}
	for name, s := range map[string]filtertest.Settings{
		"header":       permissionPolicy("DENY", `{"header": {"name": "x-tenant", "exact_match": "a"}}`),
		"path":         permissionPolicy("DENY", `{"not_rule": {"url_path": {"path": {"exact": "/"}}}}`),
		"metadata":     principalPolicy("DENY", `{"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"present_match": true}}}`),
		"shadow rules": filtertest.Settings(strings.Replace(string(permissionPolicy("DENY", `{"header": {"name": "x", "present_match": true}}`)), "rules", "shadow_rules", 1)),
		"matcher":      `{"matcher": {"matcher_list": {"matchers": ["m"]}}}`,
		"CEL":          `{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}], "condition": {"const_expr": {"bool_value": true}}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			problems := filtertest.DecodeErrors(t, factory, s)
			if !strings.Contains(problems, errRequestCondition.Error()) && !strings.Contains(problems, "not supported yet") {
				t.Errorf("rejected with %s, want %q or \"not supported yet\"", problems, errRequestCondition)
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
			t.Errorf("README.md does not name %s", m.Name)
		}
	}
}
