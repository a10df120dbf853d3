package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/registry"
)

// addresses returns the hosts of a call, without weights and timeout.
func addresses(t *testing.T, result *plan.Result, fields ...string) string {
	t.Helper()
	text, _, _ := strings.Cut(servedBy(t, result, fields...), " in")
	var hosts []string
	for field := range strings.FieldsSeq(text) {
		host, _, _ := strings.Cut(field, "*")
		hosts = append(hosts, host)
	}
	return strings.Join(hosts, " ")
}

// TestRulesAndWeightsApplyWithinVariant verifies that rules and weights only consider providers
// that match the call: a Dubbo consumer of one version has no other providers.
func TestRulesAndWeightsApplyWithinVariant(t *testing.T) {
	unset, wildcard := registry.Service{Interface: "x"}, registry.Service{Interface: "x", Group: "*", Version: "*"}
	const first, second = "dubbo://10.0.0.1:1/x?version=1", "dubbo://10.0.0.2:1/x?version=2"
	unforced := condition("method=get => host=10.0.0.1", "force=false")
	forced := condition("method=get => host=10.0.0.1", "force=true")
	everywhere := condition("=> host=10.0.0.1", "force=true")
	tests := []struct {
		name      string
		service   registry.Service
		providers []string
		rules     []registry.URL
		call      string // group/version/tag
		want      string
	}{
		{"rule excludes all providers of the version", unset, []string{first, second}, []registry.URL{unforced}, "/2/", "2"},
		{"rule selects providers of the version", unset, []string{first, second}, []registry.URL{unforced}, "/1/", "1"},
		{"rule, call without version", unset, []string{first, second}, []registry.URL{unforced}, "//", "1"},
		{"rule excludes all providers of the group", unset, []string{"dubbo://10.0.0.1:1/x?group=a", "dubbo://10.0.0.2:1/x?group=b"}, []registry.URL{unforced}, "b//", "2"},
		{"forced rule for a method", unset, []string{first, second}, []registry.URL{forced}, "/2/", ""},
		{"forced rule for all calls", unset, []string{first, second}, []registry.URL{everywhere}, "/2/", ""},
		{"forced rule excludes unversioned providers", unset, []string{"dubbo://10.0.0.2:1/x", first}, []registry.URL{everywhere}, "//", ""},
		{"tag without providers in the version", unset, []string{first + "&dubbo.tag=gray", second}, nil, "/2/gray", "2"},
		{"version with weight 0", unset, []string{first + "&weight=0", second}, nil, "/1/", "1"},
		{"call without version, one version with weight 0", unset, []string{first + "&weight=0", second}, nil, "//", "2"},
		{"version with weight 0 at a shared address", unset, []string{first + "&weight=0", "dubbo://10.0.0.1:1/x?version=2", second}, nil, "/1/", "1"},
		{"version with one provider of weight 0", unset, []string{first + "&weight=0", "dubbo://10.0.0.2:1/x?version=1"}, nil, "/1/", "2"},
		{"rule selects only a provider of weight 0", unset, []string{"dubbo://10.0.0.1:1/x?weight=0", "dubbo://10.0.0.2:1/x"}, []registry.URL{unforced}, "//", "1"},
		{"wildcard, call without version", wildcard, []string{"dubbo://10.0.0.1:1/x", second}, nil, "//", "1"},
		{"wildcard, call with 0.0.0", wildcard, []string{"dubbo://10.0.0.1:1/x", second}, nil, "/0.0.0/", "1"},
		{"wildcard, call without group", wildcard, []string{"dubbo://10.0.0.1:1/x", "dubbo://10.0.0.2:1/x?group=g"}, nil, "//", "1"},
		{"wildcard, any version", wildcard, []string{"dubbo://10.0.0.1:1/x", second}, nil, "*/*/", "1 2"},
		{"wildcard, call without version, all versioned", wildcard, []string{first, second}, nil, "//", "1 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			snapshots := snapshots(t, tt.providers...)
			snapshots[0].Snapshot.Routers = tt.rules
			result := plan.Compute(plan.Reference{Service: tt.service}, snapshots, noon())
			call := strings.Split(tt.call, "/")
			if got := addresses(t, result, "method=get", "group="+call[0], "version="+call[1], "dubbo.tag="+call[2]); got != tt.want {
				t.Errorf("hosts %q, want %q", got, tt.want)
			}
		})
	}
}

// TestCallMatchesSubscriptionToItsVersion compares calls of services that are subscribed by
// interface with subscriptions to one group and version.
func TestCallMatchesSubscriptionToItsVersion(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // deterministic
	pick := func(choices ...string) string { return choices[rng.IntN(len(choices))] }
	for range 400 {
		var providers []string
		for range 1 + rng.IntN(8) {
			providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%s:1/x?%s%s%s%s", pick("1", "2", "3"),
				pick("", "&group=g", "&group=h"), pick("", "&version=1", "&version=2"), pick("", "", "&weight=0"), pick("", "", "&dubbo.tag=gray", "&disabled=true")))
		}
		snapshots := snapshots(t, providers...)
		for range rng.IntN(3) {
			snapshots[0].Snapshot.Routers = append(snapshots[0].Snapshot.Routers, condition(pick("", "method=get ", "method=put ")+"=> host="+pick("10.0.0.1", "10.0.0.1,10.0.0.2", "10.0.0.3"), "force="+pick("true", "false")))
		}
		byInterface := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots, noon())
		called := map[string]bool{}
		for _, r := range byInterface.Routes {
			called[r.Forward.Cluster] = true
		}
		for _, c := range byInterface.VariantClusters {
			if !called[c.Name] {
				t.Fatalf("%q, %v: no provider gets calls of the cluster %s", providers, snapshots[0].Snapshot.Routers, c.Name)
			}
		}
		for _, p := range byInterface.Providers { // each group and version that can be called
			s := registry.Service{Interface: "x", Group: p.URL.Get("group"), Version: p.URL.Get("version")}
			if s.Group == "" || s.Version == "" || p.UnusedReason == "it is disabled" {
				continue
			}
			exact := plan.Compute(plan.Reference{Service: s, Tagged: byInterface.Tagged}, snapshots, noon())
			for _, method := range []string{"get", "put", "set"} {
				for _, tag := range []string{"", "gray"} {
					call := []string{"method=" + method, "group=" + s.Group, "version=" + s.Version, "dubbo.tag=" + tag}
					if got, want := addresses(t, byInterface, call...), addresses(t, exact, call...); got != want {
						t.Fatalf("%q, %v: %q goes to %q, want %q", providers, snapshots[0].Snapshot.Routers, call, got, want)
					}
				}
			}
		}
	}
}

// TestRulesKeepClusterOfGroup verifies that rules do not change the cluster of calls of a group
// without a version that shares its addresses with another group.
func TestRulesKeepClusterOfGroup(t *testing.T) {
	snapshots := snapshots(t, "dubbo://10.0.0.1:1/x?group=g&version=1", "dubbo://10.0.0.1:1/x?group=g&version=2", "dubbo://10.0.0.1:1/x?group=h&version=1",
		"dubbo://10.0.0.2:1/x?group=g&version=1", "dubbo://10.0.0.2:1/x?group=g&version=2", "dubbo://10.0.0.2:1/x?group=h&version=1")
	ref := plan.Reference{Service: registry.Service{Interface: "x"}}
	withoutRule := plan.Compute(ref, snapshots, noon())
	for _, rule := range []string{"method=get => host=10.0.0.1", "=> version=2", "=> group=h", "method=get => version=2"} {
		snapshots[0].Snapshot.Routers = []registry.URL{condition(rule, "force=true")}
		withRule := plan.Compute(ref, snapshots, noon())
		for _, call := range []string{"/", "g/", "g/1", "g/2", "h/", "h/1"} {
			group, version, _ := strings.Cut(call, "/")
			fields := []string{"method=get", "group=" + group, "version=" + version}
			forwardBefore, forwardAfter := matchRoute(t, withoutRule, fields...).Config.Forward, matchRoute(t, withRule, fields...).Config.Forward
			if forwardBefore.Cluster != forwardAfter.Cluster {
				t.Errorf("with the rule %q calls of %s go to %s, without it to %s", rule, call, forwardAfter.Cluster, forwardBefore.Cluster)
			}
		}
	}
	for _, c := range append([]*config.Cluster{withoutRule.Cluster}, withoutRule.VariantClusters...) {
		if len(c.Hosts) != 2 {
			t.Errorf("%s has %d hosts, want 2", c.Name, len(c.Hosts))
		}
	}
}
