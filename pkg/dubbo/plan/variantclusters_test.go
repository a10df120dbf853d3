package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/registry"
)

// servedBy returns the hosts of a call, such as "1*100 2*50 in 1s": the last part of each address,
// its weight, and the timeout of the call; "no route": no route matches. It verifies that the
// cluster contains each address once.
func servedBy(t *testing.T, result *plan.Result, fields ...string) string {
	t.Helper()
	r := matchRoute(t, result, fields...)
	if r == nil {
		return "no route"
	}
	f := r.Config.Forward
	clusters := append([]*config.Cluster{result.Cluster}, result.VariantClusters...)
	index := slices.IndexFunc(clusters, func(c *config.Cluster) bool { return c.Name == f.Cluster })
	if index < 0 {
		t.Fatalf("there is no cluster %q", f.Cluster)
	}
	var parts []string
	seen := map[string]bool{}
	for _, h := range clusters[index].Hosts {
		if seen[h.Address] {
			t.Errorf("the cluster %q has the host %s twice", f.Cluster, h.Address)
		}
		seen[h.Address] = true
	}
	// If no host has the labels, the call must not fall back to other hosts.
	if len(f.Metadata) > 0 && clusters[index].Subsets.Fallback != config.NoFallback && len(hostsFor(&config.Cluster{Hosts: clusters[index].Hosts}, f.Metadata, nil)) == 0 {
		t.Errorf("calls whose labels no host has go to %v", clusters[index].Subsets.Fallback)
	}
	for _, h := range hostsFor(clusters[index], f.Metadata, newCall(fields...)) {
		parts = append(parts, fmt.Sprintf("%s*%d", strings.TrimSuffix(strings.TrimPrefix(h.Address, "10.0.0."), ":1"), h.Weight))
	}
	return fmt.Sprintf("%s in %v", strings.Join(parts, " "), f.Timeout)
}

func TestSeveralVariantsAtOneAddress(t *testing.T) {
	versions := []string{
		"dubbo://10.0.0.1:1/x?version=1.0.0&weight=10&timeout=1000", "dubbo://10.0.0.1:1/x?version=2.0.0&weight=20&timeout=2000",
		"dubbo://10.0.0.2:1/x?version=2.0.0&weight=40&timeout=3000",
	}
	groups := []string{"dubbo://10.0.0.1:1/x?group=g&weight=10", "dubbo://10.0.0.1:1/x?group=h&weight=20", "dubbo://10.0.0.2:1/x?group=h&version=1"}
	unset, wildcard := registry.Service{Interface: "x"}, registry.Service{Interface: "x", Group: "*", Version: "*"}
	tests := []struct {
		name      string
		service   registry.Service
		providers []string
		call      string // group/version
		want      string
	}{
		{"first version", unset, versions, "/1.0.0", "1*10 in 1s"},
		{"second version", unset, versions, "/2.0.0", "1*20 2*40 in 3s"},
		{"call without version, all versioned", unset, versions, "/", "1*10 2*40 in 3s"},
		{"version without providers", unset, versions, "/3.0.0", "no route"},
		{"wildcard, first version", wildcard, versions, "/1.0.0", "1*10 in 1s"},
		{"wildcard, second version", wildcard, versions, "/2.0.0", "1*20 2*40 in 3s"},
		{"wildcard, any version", wildcard, versions, "/*", "1*10 2*40 in 3s"},
		{"call without version, some unversioned", unset, append(versions, "dubbo://10.0.0.2:1/x?weight=50&timeout=5000"), "/", "2*50 in 5s"},
		{"call with 0.0.0, some unversioned", unset, append(versions, "dubbo://10.0.0.2:1/x?weight=50&timeout=5000"), "/0.0.0", "2*50 in 5s"},
		{"call with a version, some unversioned", unset, append(versions, "dubbo://10.0.0.2:1/x?weight=50&timeout=5000"), "/2.0.0", "1*20 2*40 in 3s"},
		{"group", unset, groups, "g/", "1*10 in 1m0s"},
		{"other group", unset, groups, "h/", "1*20 in 1m0s"},
		{"group and version", unset, groups, "h/1", "2*100 in 1m0s"},
		{"one of two groups", registry.Service{Interface: "x", Group: "g,h"}, groups, "h/", "1*20 in 1m0s"},
		{"either of two groups", registry.Service{Interface: "x", Group: "g,h"}, groups, "g,h/1", "2*100 in 1m0s"},
		{"group, any version", registry.Service{Interface: "x", Group: "h", Version: "*"}, groups, "h/*", "1*20 2*100 in 1m0s"},
		{"other version at the address disabled", unset, []string{"dubbo://10.0.0.1:1/x?version=1&disabled=true", "dubbo://10.0.0.1:1/x?version=2"}, "/2", "1*100 in 1m0s"},
		{"disabled version", unset, []string{"dubbo://10.0.0.1:1/x?version=1&disabled=true", "dubbo://10.0.0.1:1/x?version=2"}, "/1", "no route"},
		{"other version at the address with weight 0", unset, []string{"dubbo://10.0.0.1:1/x?version=1&weight=0", "dubbo://10.0.0.1:1/x?version=2"}, "/", "1*100 in 1m0s"},
		{"timeouts of versions at separate addresses", unset, []string{"dubbo://10.0.0.1:1/x?version=1&timeout=1000", "dubbo://10.0.0.2:1/x?version=2&timeout=2000"}, "/1", "1*100 in 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := plan.Compute(plan.Reference{Service: tt.service}, snapshots(t, tt.providers...), noon())
			group, version, _ := strings.Cut(tt.call, "/")
			if got := servedBy(t, result, "method=get", "group="+group, "version="+version); got != tt.want {
				t.Errorf("hosts %s, want %s", got, tt.want)
			}
		})
	}
}

func TestOneVariantPerAddressNeedsOneCluster(t *testing.T) {
	ref := plan.Reference{Service: registry.Service{Interface: "x"}}
	providers := []string{"dubbo://10.0.0.1:1/x?version=1", "dubbo://10.0.0.2:1/x?version=2", "dubbo://10.0.0.2:1/x?version=2&pid=2", "dubbo://10.0.0.3:1/x?group=g&version=1", "dubbo://10.0.0.3:1/x?group=g&version=2"}
	if result := plan.Compute(ref, snapshots(t, providers[:3]...), noon()); len(result.VariantClusters) != 0 {
		t.Errorf("unexpected variant clusters: %v", namesOf(result.VariantClusters))
	}
	// The host at 10.0.0.3 has the labels of version 1, so version 2 needs a cluster of its own.
	want := []string{"x?group=g&version=2"}
	if result := plan.Compute(ref, snapshots(t, providers...), noon()); !slices.Equal(namesOf(result.VariantClusters), want) {
		t.Errorf("variant clusters %v, want %v", namesOf(result.VariantClusters), want)
	}
}

func namesOf(clusters []*config.Cluster) (names []string) {
	for _, c := range clusters {
		names = append(names, c.Name)
	}
	return names
}

// TestMethodSettingsOfVersion covers a method for which only a less specific target has
// settings.
func TestMethodSettingsOfVersion(t *testing.T) {
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x", Version: "*"}}, snapshots(t,
		"dubbo://10.0.0.1:1/x?version=1&timeout=1000&get.timeout=100",
		"dubbo://10.0.0.1:1/x?version=2&timeout=2000",
		"dubbo://10.0.0.2:1/x?version=3&timeout=3000",
	), noon())
	for version, want := range map[string]string{"1": "1*100 in 100ms", "2": "1*100 in 2s", "3": "2*100 in 3s", "*": "1*100 2*100 in 3s"} {
		if got := servedBy(t, result, "method=get", "version="+version); got != want {
			t.Errorf("version %s goes to %s, want %s", version, got, want)
		}
	}
}

// TestRulesSelectOneVariantOfAddress verifies that rules select a provider by its own
// parameters, not by those of others at its address.
func TestRulesSelectOneVariantOfAddress(t *testing.T) {
	snapshots := snapshots(t, "dubbo://10.0.0.1:1/x?version=1", "dubbo://10.0.0.1:1/x?version=2", "dubbo://10.0.0.2:1/x?version=1", "dubbo://10.0.0.2:1/x?version=2")
	snapshots[0].Snapshot.Routers = []registry.URL{condition("method=get => host=10.0.0.1&version=2", "force=true")}
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots, noon())
	for call, want := range map[string]string{
		"get 1": "", "get 2": "1", "get ": "1",
		"put 1": "1 2", "put 2": "1 2", "put ": "1 2",
	} {
		method, version, _ := strings.Cut(call, " ")
		got := servedBy(t, result, "method="+method, "version="+version)
		got, _, _ = strings.Cut(strings.ReplaceAll(got, "*100", ""), " in")
		if got != want {
			t.Errorf("%q goes to %q, want %q", call, got, want)
		}
	}
}

// TestRulesKeepClusterOfCall verifies that a rule does not move calls to another cluster, which
// would need new connections.
func TestRulesKeepClusterOfCall(t *testing.T) {
	var providers []string
	for host := range 2 {
		for _, query := range []string{"", "?group=b&version=1", "?group=g&version=1", "?group=g&version=2"} {
			providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%d:1/x%s", host+1, query))
		}
	}
	snapshots := snapshots(t, providers...)
	ref := plan.Reference{Service: registry.Service{Interface: "x"}}
	withoutRule := plan.Compute(ref, snapshots, noon())
	snapshots[0].Snapshot.Routers = []registry.URL{condition("method=get => host=10.0.0.1", "force=true")}
	withRule := plan.Compute(ref, snapshots, noon())
	for _, call := range []string{"/", "/0.0.0", "b/1", "g/1", "g/2", "g/", "h/1"} {
		group, version, _ := strings.Cut(call, "/")
		routeBefore, routeAfter := matchRoute(t, withoutRule, "method=get", "group="+group, "version="+version), matchRoute(t, withRule, "method=get", "group="+group, "version="+version)
		if (routeBefore == nil) != (routeAfter == nil) || routeBefore != nil && routeBefore.Config.Forward.Cluster != routeAfter.Config.Forward.Cluster {
			t.Errorf("calls of %s go to another cluster because of the rule", call)
		}
		if got := servedBy(t, withRule, "method=get", "group="+group, "version="+version); routeAfter != nil && !strings.HasPrefix(got, "1*100 in") {
			t.Errorf("calls of %s go to %s, want only host 1", call, got)
		}
	}
	if got, want := servedBy(t, withRule, "method=get"), "1*100 in 1m0s"; got != want {
		t.Errorf("calls without group and version go to %s, want %s", got, want)
	}
	if route := matchRoute(t, withRule, "method=get"); route.Config.Forward.Cluster != "x" {
		t.Errorf("calls without group and version go to the cluster %s", route.Config.Forward.Cluster)
	}
}

func TestOverrideAppliesToItsVersion(t *testing.T) {
	snapshots := snapshots(t, "dubbo://10.0.0.1:1/x?version=1", "dubbo://10.0.0.1:1/x?version=2")
	snapshots[0].Snapshot.Configurators = urls(t, "override://0.0.0.0/x?category=configurators&version=2&weight=7&timeout=70")
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots, noon())
	if got, want := servedBy(t, result, "method=get", "version=1"), "1*100 in 1m0s"; got != want {
		t.Errorf("version 1 goes to %s, want %s", got, want)
	}
	if got, want := servedBy(t, result, "method=get", "version=2"), "1*7 in 70ms"; got != want {
		t.Errorf("version 2 goes to %s, want %s", got, want)
	}
}

func TestNewVersionAtSameAddressWarmsUp(t *testing.T) {
	startTime := fmt.Sprint(noon().Add(-5 * time.Minute).UnixMilli())
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots(t, "dubbo://10.0.0.1:1/x?version=1", "dubbo://10.0.0.1:1/x?version=2&timestamp="+startTime), noon())
	if got, want := servedBy(t, result, "method=get", "version=2"), "1*50 in 1m0s"; got != want {
		t.Errorf("version 2 goes to %s, want %s", got, want)
	}
	if result.NextChange.IsZero() {
		t.Error("NextChange is zero during the warmup")
	}
}

func TestTooManyVersionsAreReported(t *testing.T) {
	var providers []string
	for i := range 33 {
		providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%d:1/com.example.Y?group=g&version=1.%02d", i, i))
	}
	inGroup := snapshots(t, providers...)
	providers = nil
	for i := range 42 {
		providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%d:1/com.example.X?version=1.%02d", i, i))
	}
	want := "g/com.example.Y has providers in 33 versions, but at most 32 can have their own routes: calls for 1.32 match no route"
	if result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "com.example.Y"}}, inGroup, noon()); !strings.Contains(result.Unrouted, "; "+want) {
		t.Errorf("in a group: got %q, want %q in addition to those without a group", result.Unrouted, want)
	}
	tests := []struct {
		name    string
		service registry.Service
		count   int
		want    string
	}{
		{"at the limit", registry.Service{Interface: "com.example.X"}, 32, ""},
		{"above the limit", registry.Service{Interface: "com.example.X"}, 33,
			"com.example.X has providers in 33 versions, but at most 32 can have their own routes: calls for 1.32 match no route"},
		{"far above the limit", registry.Service{Interface: "com.example.X"}, 42,
			"com.example.X has providers in 42 versions, but at most 32 can have their own routes: calls for 1.32, 1.33, 1.34, 1.35, 1.36, 1.37, 1.38, 1.39 and 2 more match no route"},
		{"reference with a wildcard", registry.Service{Interface: "com.example.X", Version: "*"}, 33,
			"com.example.X:* has providers in 33 versions, but at most 32 can have their own routes: calls for 1.32 go to any provider"},
		{"reference with one version", registry.Service{Interface: "com.example.X", Version: "1.07"}, 42, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := plan.Compute(plan.Reference{Service: tt.service}, snapshots(t, providers[:tt.count]...), noon())
			if result.Unrouted != tt.want {
				t.Errorf("got  %q\nwant %q", result.Unrouted, tt.want)
			}
		})
	}
}
