package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/router"
)

// noon is the time at which tests compute results.
func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func urls(t testing.TB, texts ...string) (list []registry.URL) {
	t.Helper()
	for _, text := range texts {
		u, err := registry.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, u)
	}
	return list
}

func snapshots(t testing.TB, texts ...string) []plan.RegistrySnapshot {
	t.Helper()
	return []plan.RegistrySnapshot{{Registry: "r", Snapshot: registry.Snapshot{Providers: urls(t, texts...)}}}
}

// summary returns the hosts of a result, and why other providers are unused.
func summary(result *plan.Result) string {
	var parts []string
	for _, h := range result.Cluster.Hosts {
		parts = append(parts, fmt.Sprintf("%s*%d", h.Address, h.Weight))
	}
	for _, p := range result.Providers {
		if p.UnusedReason != "" {
			parts = append(parts, fmt.Sprintf("%s: %s", p.URL.Address(), p.UnusedReason))
		}
	}
	return strings.Join(parts, "; ")
}

func TestProviderWeights(t *testing.T) {
	startedAgo := func(age time.Duration) string { return strconv.FormatInt(noon().Add(-age).UnixMilli(), 10) }
	tests := []struct {
		name      string
		providers []string
		want      string
	}{
		{"no provider", nil, ""},
		{"default weight", []string{"dubbo://10.0.0.1:1/x"}, "10.0.0.1:1*100"},
		{"sorted by address", []string{"dubbo://10.0.0.2:1/x", "dubbo://10.0.0.1:2/x", "dubbo://10.0.0.1:1/x"}, "10.0.0.1:1*100; 10.0.0.1:2*100; 10.0.0.2:1*100"},
		{"duplicate address", []string{"dubbo://10.0.0.1:1/x?weight=1", "dubbo://10.0.0.1:1/x?weight=2"}, "10.0.0.1:1*1"},
		{"duplicate address, first disabled", []string{"dubbo://10.0.0.1:1/x?enabled=false", "dubbo://10.0.0.1:1/x?weight=2"}, "10.0.0.1:1*2"},
		{"IPv6", []string{"dubbo://[fe80::1]:1/x"}, "[fe80::1]:1*100"},
		{"weights", []string{"dubbo://10.0.0.1:1/x?weight=20", "dubbo://10.0.0.2:1/x?default.weight=30"}, "10.0.0.1:1*20; 10.0.0.2:1*30"},
		{"weights above the maximum of a host", []string{"dubbo://10.0.0.1:1/x?weight=1000", "dubbo://10.0.0.2:1/x?weight=500", "dubbo://10.0.0.3:1/x?weight=1"}, "10.0.0.1:1*128; 10.0.0.2:1*64; 10.0.0.3:1*1"},
		{"weight 0", []string{"dubbo://10.0.0.1:1/x?weight=0", "dubbo://10.0.0.2:1/x"}, "10.0.0.2:1*100; 10.0.0.1:1: its weight is 0"},
		{"all weights 0 or negative", []string{"dubbo://10.0.0.1:1/x?weight=0", "dubbo://10.0.0.2:1/x?weight=-3"}, "10.0.0.1:1*1; 10.0.0.2:1*1"},
		{"invalid weight", []string{"dubbo://10.0.0.1:1/x?weight=much"}, "10.0.0.1:1*100"},
		{"weight too large for Java", []string{"dubbo://10.0.0.1:1/x?weight=144115188075855872", "dubbo://10.0.0.2:1/x"}, "10.0.0.1:1*100; 10.0.0.2:1*100"},
		{"largest weight", []string{"dubbo://10.0.0.1:1/x?weight=2147483647", "dubbo://10.0.0.2:1/x"}, "10.0.0.1:1*128; 10.0.0.2:1*1"},
		{"disabled", []string{"dubbo://10.0.0.1:1/x?enabled=false", "dubbo://10.0.0.2:1/x?disabled=true", "dubbo://10.0.0.3:1/x?disabled=false&enabled=false"},
			"10.0.0.3:1*100; 10.0.0.1:1: it is disabled; 10.0.0.2:1: it is disabled"},
		{"other protocol", []string{"tri://10.0.0.1:1/x", "tri://10.0.0.2:1/x?ext.protocol=rest,dubbo"}, `10.0.0.2:1*100; 10.0.0.1:1: its protocol is "tri"`},
		{"no port", []string{"dubbo://10.0.0.1/x"}, "10.0.0.1: it has no port"},
		{"unspecified address", []string{"dubbo://0.0.0.0:1/x"}, "0.0.0.0:1: its address is unspecified or multicast"},
		{"unspecified IPv6 address", []string{"dubbo://[::ffff:0.0.0.0]:1/x", "dubbo://[::]:1/x", "dubbo://[ff02::1]:1/x"},
			"[::]:1: its address is unspecified or multicast; [::ffff:0.0.0.0]:1: its address is unspecified or multicast; [ff02::1]:1: its address is unspecified or multicast"},
		{"IPv6 zone", []string{"dubbo://[fe80::1%eth0]:1/x"}, "[fe80::1%eth0]:1*100"},
		{"invalid IPv6 zone", []string{"dubbo://[fe80::1%a\nb]:1/x"}, "[fe80::1%a\nb]:1: its host is not a valid address or name"},
		{"invalid host", []string{"dubbo://a b:1/x"}, "a b:1: its host is not a valid address or name"},
		{"version, reference without version", []string{"dubbo://10.0.0.1:1/x?version=2"}, "10.0.0.1:1*100"},
		{"duplicate address, second matches exactly", []string{"dubbo://10.0.0.1:1/x?version=2&weight=1", "dubbo://10.0.0.1:1/x?weight=2"}, "10.0.0.1:1*2"},
		{"other category", []string{"dubbo://10.0.0.1:1/x?category=configurators"}, ""},
		{"started now", []string{"dubbo://10.0.0.1:1/x?timestamp=" + startedAgo(0)}, "10.0.0.1:1*1"},
		{"half of the warmup", []string{"dubbo://10.0.0.1:1/x?timestamp=" + startedAgo(5*time.Minute)}, "10.0.0.1:1*50"},
		{"after the warmup", []string{"dubbo://10.0.0.1:1/x?timestamp=" + startedAgo(10*time.Minute)}, "10.0.0.1:1*100"},
		{"custom warmup", []string{"dubbo://10.0.0.1:1/x?warmup=10000&timestamp=" + startedAgo(5*time.Second)}, "10.0.0.1:1*50"},
		{"no warmup", []string{"dubbo://10.0.0.1:1/x?warmup=0&timestamp=" + startedAgo(0)}, "10.0.0.1:1*100"},
		{"timestamp slightly in the future", []string{"dubbo://10.0.0.1:1/x?timestamp=" + startedAgo(-time.Second)}, "10.0.0.1:1*1"},
		{"timestamp far in the future", []string{"dubbo://10.0.0.1:1/x?timestamp=" + startedAgo(-time.Hour)}, "10.0.0.1:1*100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots(t, tt.providers...), noon())
			if got := summary(result); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWarmupSteps(t *testing.T) {
	started := noon().Add(1234 * time.Millisecond)
	provider := snapshots(t, "dubbo://10.0.0.1:1/x?timestamp="+strconv.FormatInt(started.UnixMilli(), 10))
	now, weight, steps := started, uint32(0), 0
	for ; ; steps++ {
		result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, provider, now)
		if w := result.Cluster.Hosts[0].Weight; w <= weight {
			t.Fatalf("%v after the start: the weight is %d, not above %d", now.Sub(started), w, weight)
		}
		weight = result.Cluster.Hosts[0].Weight
		if result.NextChange.IsZero() {
			break
		}
		if !result.NextChange.After(now) || !result.NextChange.Equal(result.NextChange.Truncate(5*time.Second)) {
			t.Fatalf("NextChange at %v = %v, want a later multiple of 5s", now, result.NextChange)
		}
		now = result.NextChange
	}
	if weight != 100 || steps < 15 || steps > 20 {
		t.Errorf("after %d steps the weight is %d, want 100 after 15 to 20", steps, weight)
	}
}

func TestSeveralRegistries(t *testing.T) {
	snapshots := []plan.RegistrySnapshot{
		{Registry: "a", Snapshot: registry.Snapshot{Providers: urls(t, "dubbo://10.0.0.1:1/x?weight=1")}},
		{Registry: "b", Snapshot: registry.Snapshot{Providers: urls(t, "dubbo://10.0.0.1:1/x?weight=2", "dubbo://10.0.0.2:1/x?weight=3")}},
	}
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots, noon())
	if got, want := summary(result), "10.0.0.1:1*1; 10.0.0.2:1*3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := result.Providers[0].Registry + result.Providers[1].Registry; got != "ab" {
		t.Errorf("registries of the addresses: %q, want ab", got)
	}
}

// TestRetriesAreNotLimitedBelowRequests verifies that all calls in flight on a provider that dies
// can be retried, within the retries of the service. Envoy's default would limit them to 3
// concurrent retries.
func TestRetriesAreNotLimitedBelowRequests(t *testing.T) {
	c := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots(t, "dubbo://10.0.0.1:1/x?retries=2"), noon()).Cluster
	for _, p := range []config.Priority{config.DefaultPriority, config.HighPriority} {
		if b := c.Limits(p); b.MaxRetries < b.MaxRequests {
			t.Errorf("priority %v: %d retries in flight, want as many as requests: %d", p, b.MaxRetries, b.MaxRequests)
		}
	}
}

func TestHostNamesUseDNS(t *testing.T) {
	ref := plan.Reference{Service: registry.Service{Interface: "x"}}
	for text, want := range map[string]config.ClusterType{"10.0.0.1": config.ClusterStatic, "provider.local": config.ClusterStrictDNS} {
		if got := plan.Compute(ref, snapshots(t, "dubbo://"+text+":1/x"), noon()).Cluster.Type; got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	ref := plan.Reference{Service: registry.Service{Interface: "x", Group: "*", Version: "*"}}
	result := plan.Compute(ref, snapshots(t, "dubbo://10.0.0.1:1/x?group=g&version=1&application=a&region=r&dubbo.tag=gray&pid=1"), noon())
	want := map[string]string{"group": "g", "version": "1", "application": "a", "region": "r", "tag": "gray", "weft.address": "10.0.0.1:1"}
	if diff := cmp.Diff(want, result.Cluster.Hosts[0].Metadata); diff != "" {
		t.Error(diff)
	}
}

func TestSettings(t *testing.T) {
	tests := []struct {
		name      string
		consumer  string // parameters
		providers []string
		want      string // policy; then for each route its method, timeout, retries, and timeout of an attempt
		warning   string
	}{
		{"defaults", "", []string{""}, "LB_RANDOM - 1m0s", ""},
		{"no provider, consumer timeout", "timeout=10", nil, "LB_RANDOM - 10ms", ""},
		{"provider timeout", "", []string{"timeout=500"}, "LB_RANDOM - 500ms", ""},
		{"consumer timeout before provider timeout", "timeout=100", []string{"timeout=500"}, "LB_RANDOM - 100ms", ""},
		{"method timeout before service timeout", "timeout=100", []string{"timeout=500&get.timeout=900"}, "LB_RANDOM get 900ms - 100ms", ""},
		{"consumer method timeout first", "get.timeout=7", []string{"get.timeout=900"}, "LB_RANDOM get 7ms - 1m0s", ""},
		{"process default last", "default.timeout=7", []string{"timeout=5"}, "LB_RANDOM - 5ms", ""},
		{"process default", "default.timeout=7", []string{""}, "LB_RANDOM - 7ms", ""},
		{"longest timeout of the providers", "", []string{"timeout=5", "timeout=9", ""}, "LB_RANDOM - 9ms", ""},
		{"retries", "", []string{"timeout=100&retries=2"}, "LB_RANDOM - 300ms 2*100ms", ""},
		{"fewest retries of the providers", "", []string{"retries=2", "retries=1"}, "LB_RANDOM - 1m0s 1*0s", ""},
		{"method without retries", "add.retries=0", []string{"retries=2"}, "LB_RANDOM add 1m0s - 1m0s 2*0s", ""},
		{"failfast", "cluster=failfast", []string{"retries=2"}, "LB_RANDOM - 1m0s", ""},
		{"unsupported cluster strategy", "cluster=forking", []string{"retries=2"}, "LB_RANDOM - 1m0s", `cluster "forking" is treated as failfast`},
		{"negative retries", "retries=-1", []string{""}, "LB_RANDOM - 1m0s", ""},
		{"invalid timeout", "timeout=soon", []string{""}, "LB_RANDOM - 1m0s", `timeout "soon" is not a number`},
		{"timeout above the maximum", "timeout=9223372036854775807&retries=99", []string{""}, "LB_RANDOM - 24h0m0s 16*24h0m0s", ""},
		{"unrelated parameter", "", []string{"sample.dubbo.timeout=5"}, "LB_RANDOM - 1m0s", ""},
		{"roundrobin", "loadbalance=roundrobin", []string{"loadbalance=random"}, "LB_WEIGHTED_ROUNDROBIN - 1m0s", ""},
		{"leastactive", "", []string{"loadbalance=leastActive"}, "LB_LEAST_REQUEST - 1m0s", ""},
		{"shortestresponse", "", []string{"loadbalance=shortestresponse"}, "LB_PEAK_EWMA - 1m0s", ""},
		{"policy of most providers", "", []string{"loadbalance=a", "loadbalance=roundrobin", "loadbalance=roundrobin"}, "LB_WEIGHTED_ROUNDROBIN - 1m0s", ""},
		{"consistenthash", "loadbalance=consistenthash&hash.attachments=user, tenant", []string{""}, "LB_RINGHASH by user,tenant - 1m0s", ""},
		{"consistenthash by arguments", "loadbalance=consistenthash", []string{""}, "LB_RINGHASH - 1m0s", "not arguments"},
		{"unknown policy", "loadbalance=best", []string{""}, "LB_RANDOM - 1m0s", `"best" is not supported`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			consumer := urls(t, "consumer://h/x?"+tt.consumer)[0]
			var providers []string
			for i, query := range tt.providers {
				providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%d:1/x?%s", i+1, query))
			}
			result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x", Group: "*", Version: "*"}, Parameters: consumer.Parameters.Map()}, snapshots(t, providers...), noon())
			if got := settingsSummary(result); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if warnings := strings.Join(result.Warnings, "\n"); !strings.Contains(warnings, tt.warning) || (tt.warning == "") != (warnings == "") {
				t.Errorf("warnings %q, want one with %q", warnings, tt.warning)
			}
		})
	}
}

// settingsSummary returns the policy and the routes of a result as text.
func settingsSummary(result *plan.Result) string {
	var text strings.Builder
	text.WriteString(string(result.Cluster.LBPolicy))
	var hashHeaders []string
	for _, p := range result.Routes[0].Forward.HashPolicies {
		hashHeaders = append(hashHeaders, p.Header)
	}
	if hashHeaders != nil {
		text.WriteString(" by " + strings.Join(hashHeaders, ","))
	}
	for _, r := range result.Routes {
		method := "-"
		for _, h := range r.Match.Headers {
			if h.Name == "method" {
				method = h.Value
			}
		}
		fmt.Fprintf(&text, " %s %v", method, r.Forward.Timeout)
		if p := r.Forward.Retry; p != nil {
			fmt.Fprintf(&text, " %d*%v", p.NumRetries, p.PerTryTimeout)
		}
	}
	return text.String()
}

// TestMethodRoutesAreBounded verifies the limit on routes for methods, which anyone with write
// access to a registry can name.
func TestMethodRoutesAreBounded(t *testing.T) {
	var providers []string
	for i := range 20 {
		var text strings.Builder
		fmt.Fprintf(&text, "dubbo://10.0.0.%d:1/x?weight=%s", i, strings.Repeat("w", 1000))
		for j := range 100 {
			fmt.Fprintf(&text, "&m%d_%d.timeout=7", i, j)
		}
		providers = append(providers, text.String())
	}
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots(t, providers...), noon())
	if len(result.Routes) > 600 {
		t.Errorf("%d routes, want at most 600", len(result.Routes))
	}
	for _, w := range result.Warnings {
		if len(w) > 400 {
			t.Errorf("a warning has %d bytes: %.50s…, want at most 400", len(w), w)
		}
	}
	if warnings := strings.Join(result.Warnings, "\n"); !strings.Contains(warnings, "2000 methods") {
		t.Errorf("warnings %s, want one about the methods", warnings)
	}
}

// TestRoutesMatchCalls compiles the route table of many services, and matches calls.
func TestRoutesMatchCalls(t *testing.T) {
	services := []registry.Service{
		{Interface: "x", Group: "*", Version: "*"},
		{Interface: "x", Group: "*", Version: "1"},
		{Interface: "x", Group: "g", Version: "*"},
		{Interface: "x", Group: "g", Version: "1"},
		{Interface: "x", Group: "h,i"},
		{Interface: "x"},
		{Interface: "y"},
		{Interface: "y", Version: "2"},
		{Interface: "z", Group: "g"},
	}
	slices.SortFunc(services, plan.Compare)
	var routes [][]*config.Route
	for _, s := range services {
		routes = append(routes, plan.Compute(plan.Reference{Service: s}, snapshots(t, "dubbo://10.0.0.1:1/y?timeout=5&slow.timeout=90"), noon()).Routes)
	}
	table, err := router.Compile(plan.RouteTable(routes))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ service, method, group, version, want string }{
		{"x", "get", "", "", "x"},
		{"x", "get", "", "0.0.0", "x"},
		{"x", "get", "", "1", "*/x:1"},
		{"x", "get", "g", "1", "g/x:1"},
		{"x", "get", "g", "2", "g/x:*"},
		{"x", "get", "h", "", "h,i/x/4"},
		{"x", "get", "i", "0.0.0", "h,i/x/5"},
		{"x", "get", "h,i", "", "h,i/x"},
		{"x", "get", "j", "2", "*/x:*"},
		{"x", "get", "h", "2", "*/x:*"},
		{"y", "get", "", "", "y"},
		{"y", "slow", "", "0.0.0", "y#slow"},
		{"y", "get", "", "2", "y:2"},
		{"y", "get", "g", "", ""},
		{"y", "get", "", "3", ""},
		{"z", "get", "g", "", "g/z"},
		{"z", "get", "", "", ""},
		{"xx", "get", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%s:%s#%s", tt.group, tt.service, tt.version, tt.method), func(t *testing.T) {
			call := &protocol.Exchange{}
			call.Meta.Protocol = string(config.Dubbo)
			call.Request.Authority = tt.service
			call.Request.Path = "/" + tt.service + "/" + tt.method
			for name, value := range map[string]string{"service": tt.service, "method": tt.method, "group": tt.group, "version": tt.version} {
				if value != "" {
					call.Request.Header.Add(name, value)
				}
			}
			got := ""
			if r := table.Match(call); r != nil {
				got = r.Config.Name
			}
			if trimmed := strings.TrimSuffix(got, "/2"); got != tt.want && trimmed != tt.want {
				t.Errorf("got the route %q, want %q", got, tt.want)
			}
		})
	}
}

// TestLabelsOfSelectedGroup verifies which hosts a call may go to, by their labels.
func TestLabelsOfSelectedGroup(t *testing.T) {
	providers := []string{
		"dubbo://10.0.0.1:1/x?group=g&version=1", "dubbo://10.0.0.2:1/x?group=h&version=1", "dubbo://10.0.0.3:1/x?group=h&version=2",
	}
	tests := []struct {
		service                    registry.Service
		group, version, want, name string
	}{
		{registry.Service{Interface: "x", Group: "*", Version: "*"}, "h", "2", "map[group:h version:2]", "group and version match"},
		{registry.Service{Interface: "x", Group: "*", Version: "*"}, "h", "3", "map[group:h]", "only the group matches"},
		{registry.Service{Interface: "x", Group: "*", Version: "*"}, "*", "1", "map[version:1]", "only the version matches"},
		{registry.Service{Interface: "x", Group: "*", Version: "*"}, "", "", "map[]", "neither set"},
		{registry.Service{Interface: "x", Group: "g,h", Version: "1"}, "h", "1", "map[group:h]", "one of two groups"},
		{registry.Service{Interface: "x", Group: "g,h", Version: "1"}, "g,h", "1", "map[]", "both of two groups"},
		{registry.Service{Interface: "x", Group: "g", Version: "1"}, "g", "1", "map[]", "single group"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := plan.Compute(plan.Reference{Service: tt.service}, snapshots(t, providers...), noon())
			forward := forwarded(t, result, tt.group, tt.version)
			if forward == nil {
				t.Fatal("no route matches")
			}
			if got := fmt.Sprint(forward.Metadata); got != tt.want {
				t.Errorf("labels of the hosts: %s, want %s", got, tt.want)
			}
		})
	}
}

// forwarded returns the action for a call with a group and a version, or nil. It verifies that the
// cluster has the subset.
func forwarded(t *testing.T, result *plan.Result, group, version string) *config.Forward {
	t.Helper()
	r := matchRoute(t, result, "method=get", "group="+group, "version="+version)
	if r == nil {
		return nil
	}
	keys := slices.Sorted(maps.Keys(r.Config.Forward.Metadata))
	subset := slices.ContainsFunc(result.Cluster.Subsets.Selectors, func(s []string) bool { return slices.Equal(s, keys) })
	if len(keys) > 0 && !subset {
		t.Errorf("the cluster has the subsets %v, want one with the keys %v", result.Cluster.Subsets.Selectors, keys)
	}
	return r.Config.Forward
}

// TestCallsSelectGroupAndVersion covers subscriptions by interface only, as some clients write
// them.
func TestCallsSelectGroupAndVersion(t *testing.T) {
	unversioned, first, second := "dubbo://10.0.0.1:1/x", "dubbo://10.0.0.2:1/x?version=1", "dubbo://10.0.0.3:1/x?version=2"
	grouped := "dubbo://10.0.0.4:1/x?group=g&version=1"
	zeroVersion := "dubbo://10.0.0.5:1/x?version=0.0.0" // Java's notation for no version
	tests := []struct {
		name           string
		providers      []string
		group, version string
		want           string // last digits of the hosts; "": no route; "none": no host
	}{
		{"no provider with a version", []string{unversioned, zeroVersion}, "", "", "1 5"},
		{"no provider with the version", []string{unversioned, zeroVersion}, "", "1", ""},
		{"all versioned, call without version", []string{first, second}, "", "", "2 3"},
		{"all versioned, call with 0.0.0", []string{first, second}, "", "0.0.0", "2 3"},
		{"all versioned, matching call", []string{first, second}, "", "2", "3"},
		{"all versioned, other version", []string{first, second}, "", "3", ""},
		{"some versioned, call without version", []string{unversioned, first, zeroVersion}, "", "", "1 5"},
		{"some versioned, call with 0.0.0", []string{unversioned, first, zeroVersion}, "", "0.0.0", "1 5"},
		{"some versioned, matching call", []string{unversioned, first, second}, "", "1", "2"},
		{"all grouped, call without group", []string{grouped}, "", "1", "4"},
		{"all grouped, other group", []string{grouped}, "h", "1", ""},
		{"some grouped, call without group", []string{unversioned, first, grouped}, "", "1", "2"},
		{"some grouped, matching call", []string{unversioned, first, grouped}, "g", "1", "4"},
		{"some grouped, matching group without version", []string{unversioned, first, grouped}, "g", "", "4"},
		{"no provider", nil, "", "", "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots(t, tt.providers...), noon())
			got := ""
			if forward := forwarded(t, result, tt.group, tt.version); forward != nil {
				if got = addressesWithLabels(result, forward.Metadata, newCall()); got == "" {
					got = "none"
				}
			}
			if got != tt.want {
				t.Errorf("hosts: %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRouteNamesAreUnique(t *testing.T) {
	result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x", Group: "a,b"}, Parameters: map[string]string{"m.timeout": "1"}}, nil, noon())
	seen := map[string]bool{}
	for _, r := range result.Routes {
		if seen[r.Name] {
			t.Errorf("two routes have the name %q", r.Name)
		}
		seen[r.Name] = true
	}
	if len(seen) != 12 {
		t.Errorf("%d routes, want 12: two methods, three groups and two versions", len(seen))
	}
}

func TestComputeIsDeterministic(t *testing.T) {
	ref := plan.Reference{Service: registry.Service{Interface: "x"}, Parameters: map[string]string{"loadbalance": "roundrobin"}}
	a := plan.Compute(ref, snapshots(t, "dubbo://10.0.0.1:1/x?a.timeout=1&b.retries=2", "dubbo://10.0.0.2:1/x?weight=3"), noon())
	b := plan.Compute(ref, snapshots(t, "dubbo://10.0.0.2:1/x?weight=3", "dubbo://10.0.0.1:1/x?a.timeout=1&b.retries=2"), noon())
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
}
