package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/dubbo/rules"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/router"
)

// matchRoute returns the route of a call of x with fields, or nil.
func matchRoute(t *testing.T, result *plan.Result, fields ...string) *router.Route {
	t.Helper()
	table, err := router.Compile(plan.RouteTable([][]*config.Route{result.Routes}))
	if err != nil {
		t.Fatal(err)
	}
	return table.Match(newCall(fields...))
}

// newCall returns a call of x with fields.
func newCall(fields ...string) *protocol.Exchange {
	call := &protocol.Exchange{}
	call.Meta.Protocol = string(config.Dubbo)
	call.Request.Header.Add("service", "x")
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		call.Request.Header.Add(name, value)
	}
	return call
}

// hostsFor returns the hosts of a cluster that a call with labels may go to.
func hostsFor(c *config.Cluster, labels map[string]string, call *protocol.Exchange) (hosts []config.Host) {
	allows := func(*config.Host) bool { return true }
	if c.HostRules != nil {
		chain := c.HostRules.Chain(labels)
		allowed := config.NewHostSet(chain.Len())
		chain.Select(call, allowed)
		allows = func(h *config.Host) bool { return chain.Allows(allowed, h) }
	}
	for i := range c.Hosts {
		h := &c.Hosts[i]
		selected := allows(h)
		for key, value := range labels {
			label, ok := h.Metadata[key]
			selected = selected && ok && label == value
		}
		if selected {
			hosts = append(hosts, *h)
		}
	}
	return hosts
}

// addressesWithLabels returns the last parts of the addresses, such as "1 2", of the hosts that a
// call with labels may go to.
func addressesWithLabels(result *plan.Result, labels map[string]string, call *protocol.Exchange) string {
	var parts []string
	for _, h := range hostsFor(result.Cluster, labels, call) {
		parts = append(parts, strings.TrimSuffix(strings.TrimPrefix(h.Address, "10.0.0."), ":1"))
	}
	return strings.Join(parts, " ")
}

// addressesOfCall returns the last parts of the addresses, such as "1 2", that a call may go to.
func addressesOfCall(t *testing.T, result *plan.Result, fields ...string) string {
	t.Helper()
	r := matchRoute(t, result, fields...)
	if r == nil {
		t.Fatal("there is no route")
	}
	return addressesWithLabels(result, r.Config.Forward.Metadata, newCall(fields...))
}

func condition(rule string, extra ...string) registry.URL {
	parameters := map[string]string{"rule": rule}
	for _, parameter := range extra {
		key, value, _ := strings.Cut(parameter, "=")
		parameters[key] = value
	}
	return registry.URL{Protocol: "condition", Host: "0.0.0.0", Path: "x", Parameters: registry.ParametersOf(parameters)}
}

func document(protocol, scope, key, yaml string) registry.URL {
	return registry.URL{Protocol: protocol, Host: "0.0.0.0", Path: key, Parameters: registry.ParametersOf(map[string]string{"scope": scope, "yaml": yaml})}
}

func TestRules(t *testing.T) {
	untagged := []string{"dubbo://10.0.0.1:1/x?application=a", "dubbo://10.0.0.2:1/x?application=a", "dubbo://10.0.0.3:1/x?application=b"}
	tagged := []string{"dubbo://10.0.0.1:1/x?application=a", "dubbo://10.0.0.2:1/x?application=a&dubbo.tag=gray", "dubbo://10.0.0.3:1/x?application=a"}
	tags := document("tag", "application", "a", "tags: [{name: blue, addresses: ['10.0.0.3:1']}, {name: gone, addresses: ['10.0.0.9:1']}]")
	tests := []struct {
		name       string
		providers  []string
		rules      []registry.URL
		parameters map[string]string
		calls      map[string]string // fields of a call, and the hosts that it may go to
	}{
		{"no rules", untagged, nil, nil, map[string]string{"method=get": "1 2 3", "dubbo.tag=gray": "1 2 3"}},
		{"rule for all consumers", untagged, []registry.URL{condition("=> host=10.0.0.1")}, nil, map[string]string{"method=get": "1"}},
		{"rule for one consumer", untagged, []registry.URL{condition("host=10.9.9.9 => host!=10.0.0.1")}, nil, map[string]string{"method=get": "2 3"}},
		{"rule that rejects all calls", untagged, []registry.URL{condition("application=shop =>")}, nil, map[string]string{"method=get": ""}},
		{"methods", untagged, []registry.URL{condition("method=get*,find => host=10.0.0.1")}, nil,
			map[string]string{"method=getAll": "1", "method=find": "1", "method=findAll": "1 2 3"}},
		{"excluded methods", untagged, []registry.URL{condition("method!=get* => host=10.0.0.1")}, nil,
			map[string]string{"method=getAll": "1 2 3", "method=set": "1"}},
		{"two rules with methods", untagged, []registry.URL{condition("method=get* => host!=10.0.0.1"), condition("method=*All => host!=10.0.0.3")}, nil,
			map[string]string{"method=get": "2 3", "method=setAll": "1 2", "method=getAll": "2", "method=set": "1 2 3"}},
		{"method with its own timeout", untagged, []registry.URL{condition("method=get* => host=10.0.0.1")}, map[string]string{"getAll.timeout": "5", "set.timeout": "6"},
			map[string]string{"method=getAll": "1", "method=get": "1", "method=set": "1 2 3"}},
		{"rejected method", untagged, []registry.URL{condition("method=set =>")}, nil, map[string]string{"method=set": "", "method=get": "1 2 3"}},
		{"attachment", untagged, []registry.URL{condition("attachments[user]=a & method=get => host=10.0.0.2")}, nil,
			map[string]string{"method=get user=a": "2", "method=get user=b": "1 2 3", "method=set user=a": "1 2 3", "method=get": "1 2 3"}},
		{"excluded attachment", untagged, []registry.URL{condition("attachments[user]!=a => host=10.0.0.2")}, nil,
			map[string]string{"user=a": "1 2 3", "user=b": "2", "method=get": "1 2 3"}}, // no match if missing, as in Dubbo 3
		{"range", untagged, []registry.URL{condition("attachments[age]=18~ => host=10.0.0.2")}, nil,
			map[string]string{"age=18": "2", "age=17": "1 2 3", "age=old": "1 2 3", "method=get": "1 2 3"}},
		{"excluded range", untagged, []registry.URL{condition("attachments[age]!=~17,99,8* => host=10.0.0.2")}, nil,
			map[string]string{"age=18": "2", "age=17": "1 2 3", "age=99": "1 2 3", "age=80": "1 2 3", "method=get": "1 2 3"}},
		{"rule of an application", untagged, []registry.URL{document("condition", "application", "a", "conditions: ['=> host=10.0.0.1']")}, nil, map[string]string{"method=get": "1 3"}},

		{"tags of providers", tagged, nil, nil, map[string]string{
			"method=get": "1 3", "dubbo.tag=gray": "2", "dubbo.tag=other": "1 3", "dubbo.tag=other dubbo.force.tag=true": "", "dubbo.tag=gray dubbo.force.tag=true": "2",
		}},
		{"tags of a rule", tagged, []registry.URL{tags}, nil, map[string]string{
			"method=get": "1", "dubbo.tag=blue": "3", "dubbo.tag=gray": "2", "dubbo.tag=gone": "1", "dubbo.tag=gone dubbo.force.tag=True": "",
		}},
		{"tag of the consumer", tagged, nil, map[string]string{"dubbo.tag": "gray"}, map[string]string{"method=get": "2", "dubbo.tag=other": "1 3"}},
		{"forced tag of the consumer", tagged, nil, map[string]string{"dubbo.tag": "blue", "dubbo.force.tag": "true"}, map[string]string{"method=get": "", "dubbo.tag=gray": "2"}},
		{"tags, then conditions", tagged, []registry.URL{condition("method=get => host=10.0.0.3", "force=true")}, nil, map[string]string{
			"method=get": "3", "method=set": "1 3", "method=get dubbo.tag=gray": "", "method=set dubbo.tag=gray": "2",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			snapshots := snapshots(t, tt.providers...)
			snapshots[0].Snapshot.Routers = tt.rules
			consumer := urls(t, "consumer://10.9.9.9/x?application=shop")[0]
			result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}, Consumer: consumer, Parameters: tt.parameters}, snapshots, noon())
			for call, want := range tt.calls {
				if got := addressesOfCall(t, result, strings.Fields(call)...); got != want {
					t.Errorf("%s goes to %q, want %q", call, got, want)
				}
			}
			if len(result.Warnings) > 0 {
				t.Errorf("warnings %q, want none", result.Warnings)
			}
			names := map[string]bool{}
			for _, r := range result.Routes {
				if names[r.Name] {
					t.Errorf("duplicate route name %s", r.Name)
				}
				names[r.Name] = true
			}
		})
	}
}

func TestForcedTagWithoutProviders(t *testing.T) {
	ref := plan.Reference{Service: registry.Service{Interface: "x"}}
	result := plan.Compute(ref, snapshots(t, "dubbo://10.0.0.1:1/x", "dubbo://10.0.0.2:1/x?dubbo.tag=gray"), noon())
	ref.Tagged = result.Tagged
	result = plan.Compute(ref, snapshots(t, "dubbo://10.0.0.1:1/x"), noon())
	if got := addressesOfCall(t, result, "dubbo.tag=gray", "dubbo.force.tag=true"); got != "" {
		t.Errorf("call with a forced tag goes to %q, want no host", got)
	}
	if got := addressesOfCall(t, result, "dubbo.tag=gray"); got != "1" {
		t.Errorf("call without force goes to %q, want 1", got)
	}
}

func TestManyRules(t *testing.T) {
	snapshots := snapshots(t, "dubbo://10.0.0.1:1/x", "dubbo://10.0.0.2:1/x?dubbo.tag=gray")
	denied := 300
	for i := range denied {
		snapshots[0].Snapshot.Routers = append(snapshots[0].Snapshot.Routers, condition(fmt.Sprintf("attachments[user]=u%d =>", i)))
	}
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots, noon())
	for i := range denied {
		if got := addressesOfCall(t, result, fmt.Sprintf("user=u%d", i)); got != "" {
			t.Errorf("rejected call of u%d goes to %s, want no host", i, got)
		}
	}
	if got := addressesOfCall(t, result, "user=ann"); got != "1" {
		t.Errorf("accepted call goes to %q, want 1", got)
	}
	if len(result.Warnings) > 0 || len(result.Routes) != 2 {
		t.Errorf("%d routes, warnings %q; want 2 routes and no warnings", len(result.Routes), result.Warnings)
	}
}

func TestManyTags(t *testing.T) {
	providers := []string{"dubbo://10.0.0.1:1/x"}
	const tags = 200
	for i := range tags {
		providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%d:1/x?dubbo.tag=t%[1]d", i+2))
	}
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots(t, providers...), noon())
	for i := range tags {
		if got, want := addressesOfCall(t, result, fmt.Sprintf("dubbo.tag=t%d", i+2)), fmt.Sprint(i+2); got != want {
			t.Errorf("a call with the tag t%d goes to %q, want %q", i+2, got, want)
		}
	}
	if len(result.Warnings) > 0 {
		t.Errorf("warnings %q, want none", result.Warnings)
	}
}

// TestTooManyRulesRejectCalls verifies that too many rules reject calls, because an ignored rule
// could have rejected them.
func TestTooManyRulesRejectCalls(t *testing.T) {
	snapshots := snapshots(t, "dubbo://10.0.0.1:1/x")
	long := "attachments[user]=a" + strings.Repeat(",b", 2000) + " =>"
	for range rules.MaxConditions + 1 {
		snapshots[0].Snapshot.Routers = append(snapshots[0].Snapshot.Routers, condition("method=set => host=10.0.0.1"))
	}
	for name, routers := range map[string][]registry.URL{"too many conditions": snapshots[0].Snapshot.Routers, "too many values": {condition(long)}} {
		snapshots[0].Snapshot.Routers = routers
		result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots, noon())
		if got := addressesOfCall(t, result, "method=get"); got != "" {
			t.Errorf("%s: a call goes to %s, want no host", name, got)
		}
		if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "all calls of the service are rejected") {
			t.Errorf("%s: warnings %q, want one: all calls of the service are rejected", name, result.Warnings)
		}
		if result.Cluster.HostRules == nil {
			t.Errorf("%s: the cluster has no rules", name)
		}
	}
}

func TestGroupsMethodsAndRulesCombined(t *testing.T) {
	var providers []string
	for i := range 40 {
		providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%d:1/x?group=g%[1]d&version=%[1]d&m%[1]d.timeout=%[1]d&dubbo.tag=t%[1]d", i+1))
	}
	snapshots := snapshots(t, providers...)
	snapshots[0].Snapshot.Routers = []registry.URL{condition("method=a => host=10.0.0.1")}
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x", Group: "*", Version: "*"}}, snapshots, noon())
	if n := len(result.Routes); n > 4096 || n < 64 {
		t.Errorf("%d routes, want 64 to 4096", n)
	}
	if len(result.Warnings) > 0 {
		t.Errorf("warnings %q, want none", result.Warnings)
	}
}

func TestOverridesChangeCallSettings(t *testing.T) {
	snapshots := snapshots(t, "dubbo://10.0.0.1:1/x?timeout=3000", "dubbo://10.0.0.2:1/x?timeout=3000", "dubbo://10.0.0.3:1/x?timeout=3000")
	snapshots[0].Snapshot.Configurators = urls(t,
		"override://10.0.0.1:1/x?weight=20", "override://10.0.0.2:1/x?disabled=true",
		"override://0.0.0.0/x?timeout=50&retries=3&loadbalance=roundrobin&cluster=failover")
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}, Parameters: map[string]string{"timeout": "9", "cluster": "failfast"}}, snapshots, noon())
	if got, want := summary(result), "10.0.0.1:1*20; 10.0.0.3:1*100; 10.0.0.2:1: it is disabled"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if result.Timeout != 200*time.Millisecond || result.Retries != 3 || result.LoadBalance != "roundrobin" || result.Cluster.LBPolicy != config.WeightedRoundRobin {
		t.Errorf("timeout %v, %d retries, %s: %+v; want 200ms, 3 retries, roundrobin", result.Timeout, result.Retries, result.LoadBalance, result.Warnings)
	}
}
