package cases

import (
	"fmt"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// clusters adds the groups about the choice of a host.
func (s *set) clusters() {
	s.balancers()
	s.hashes()
	s.subsets()
	s.priorities()
	s.outliers()
	s.healthChecks()
	s.breakers()
	s.clusterTypes()
}

// toCluster adds a group with a route to a cluster of its own. route has further fields of the route
// action; fields are those of the cluster.
func (s *set) toCluster(feature, name, route, fields string, origins ...string) *Group {
	if route != "" {
		route = ", " + route
	}
	return s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: " + name + route + "}}", Clusters: cluster(name, fields, origins...)})
}

// locality is a list element of endpoints: origins with a priority and weights.
func locality(fields string, origins ...string) string {
	hosts := make([]string, 0, len(origins))
	for _, o := range origins {
		name, rest, _ := strings.Cut(o, " ")
		hosts = append(hosts, "{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $"+name+"}}}"+rest+"}")
	}
	if fields != "" {
		fields += ", "
	}
	return "    - {" + fields + "lb_endpoints: [" + strings.Join(hosts, ", ") + "]}\n"
}

// assigned returns a static cluster with localities.
func assigned(name, fields string, localities ...string) string {
	return "\n- name: " + name + "\n  type: STATIC\n  connect_timeout: 0.5s\n  load_assignment:\n    cluster_name: " + name +
		"\n    endpoints:\n" + strings.Join(localities, "") + strings.TrimPrefix(fields, "\n")
}

func (s *set) balancers() {
	const feature = "cluster.balancer"
	for i, policy := range []string{
		"lb_policy: ROUND_ROBIN", "lb_policy: RANDOM", "lb_policy: LEAST_REQUEST", "lb_policy: RING_HASH", "lb_policy: MAGLEV",
		"lb_policy: LEAST_REQUEST, least_request_lb_config: {choice_count: 3}",
		"lb_policy: ROUND_ROBIN, round_robin_lb_config: {slow_start_config: {slow_start_window: 60s}}",
	} {
		fields := "  " + strings.Replace(policy, ", ", "\n  ", 1) + "\n"
		name := fmt.Sprintf("balanced-%d", i)
		s.toCluster(feature, name, "", fields, "o1", "o2", "o3").get("/", distribution(), label(policy))
		weighted := name + "-w"
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: " + weighted + "}}",
			Clusters: assigned(weighted, fields, locality("", "o1 , load_balancing_weight: 1", "o2 , load_balancing_weight: 3"))})
		g.get("/", distribution(), label(policy+" weighted"))
	}
	for i, v := range []variant{
		{"round_robin", `{name: envoy.load_balancing_policies.round_robin, typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin}}`},
		{"random", `{name: envoy.load_balancing_policies.random, typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.random.v3.Random}}`},
		{"least_request", `{name: envoy.load_balancing_policies.least_request, typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest}}`},
		{"maglev", `{name: envoy.load_balancing_policies.maglev, typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.maglev.v3.Maglev}}`},
		{"unknown, then random", `{name: x, typed_config: {"@type": type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/unknown.Policy}}}, {typed_extension_config: {name: envoy.load_balancing_policies.random, typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.random.v3.Random}}`},
	} {
		name := fmt.Sprintf("policy-%d", i)
		s.toCluster(feature, name, "", "  load_balancing_policy: {policies: [{typed_extension_config: "+v.yaml+"}]}\n", "o1", "o2").get("/", distribution(), label(v.name))
	}
	g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: localities}}", Clusters: assigned("localities",
		"  common_lb_config: {locality_weighted_lb_config: {}}\n",
		locality("locality: {zone: a}, load_balancing_weight: 1", "o1"), locality("locality: {zone: b}, load_balancing_weight: 3", "o2", "o3"))})
	g.get("/", distribution(), label("locality weights"))
}

// hashes adds requests that reach the same host each time. Which one it is need not be equal.
func (s *set) hashes() {
	for i, v := range []struct {
		policy, hash string
		used         string // the field of the request that the hash uses; "": none
	}{
		{"RING_HASH", "header: {header_name: x-h}", "x-h"},
		{"MAGLEV", "header: {header_name: x-h}", "x-h"},
		{"RING_HASH", "connection_properties: {source_ip: true}", ""},
		{"RING_HASH", "cookie: {name: c}", "cookie"},
		{"RING_HASH", "cookie: {name: c, ttl: 60s, path: /p}", "cookie"},
		{"MAGLEV", "cookie: {name: c, ttl: 0s}", "cookie"},
		{"RING_HASH", "query_parameter: {name: q}", ""},
		{"RING_HASH", "header: {header_name: x-h, regex_rewrite: {pattern: {regex: '^(.).*'}, substitution: '\\1'}}", "x-h"},
	} {
		g := s.toCluster("cluster.hash", fmt.Sprintf("hashed-%d", i), "hash_policy: [{"+v.hash+"}]", "  lb_policy: "+v.policy+"\n", "o1", "o2", "o3")
		for _, f := range [][]wire.Field{pairs("x-h", "a1"), pairs("x-h", "a2"), pairs("x-h", "b"), pairs("cookie", "c=1"), pairs("cookie", "c=2"), pairs("x-h", "zzz", "cookie", "c=zzz")} {
			hosts := anyHost()
			if _, found := wire.Get(f, v.used); found || v.used == "" {
				hosts = sameHost()
			}
			g.get("/?q="+f[0].Value, fields(f), repeat(5), hosts, labelf("%s %s %s", v.policy, v.hash, describe(f)))
		}
		g.get("/", label("without the field, once"), anyHost())
	}
}

func (s *set) subsets() {
	for i, v := range []variant{
		{"NO_FALLBACK", "fallback_policy: NO_FALLBACK"},
		{"ANY_ENDPOINT", "fallback_policy: ANY_ENDPOINT"},
		{"DEFAULT_SUBSET", "fallback_policy: DEFAULT_SUBSET, default_subset: {v: a}"},
	} {
		name := fmt.Sprintf("subsets-%d", i)
		metadata := func(v string) string { return ", metadata: {filter_metadata: {envoy.lb: {v: " + v + "}}}" }
		g := s.add(Group{
			Feature: "cluster.subset",
			Routes: `
- {match: {prefix: /a}, route: {cluster: NAME, metadata_match: {filter_metadata: {envoy.lb: {v: a}}}}}
- {match: {prefix: /b}, route: {cluster: NAME, metadata_match: {filter_metadata: {envoy.lb: {v: b}}}}}
- {match: {prefix: /missing}, route: {cluster: NAME, metadata_match: {filter_metadata: {envoy.lb: {v: c}}}}}
- {match: {prefix: /key}, route: {cluster: NAME, metadata_match: {filter_metadata: {envoy.lb: {w: a}}}}}
- {match: {prefix: /w}, route: {weighted_clusters: {clusters: [{name: NAME, weight: 1, metadata_match: {filter_metadata: {envoy.lb: {v: b}}}}]}}}
- {match: {prefix: /}, route: {cluster: NAME}}`,
			Clusters: assigned(name, "  lb_subset_config: {"+v.yaml+", subset_selectors: [{keys: [v]}]}\n", locality("", "o1 "+metadata("a"), "o2 "+metadata("b"))),
		})
		g.Routes = strings.ReplaceAll(g.Routes, "NAME", name)
		for _, p := range []string{"/a", "/b", "/missing", "/key", "/w", "/"} {
			if v.name == "ANY_ENDPOINT" && (p == "/missing" || p == "/key" || p == "/") {
				g.get(p, distribution(), label(v.name+" "+p))
			} else {
				g.get(p, repeat(4), label(v.name+" "+p))
			}
		}
	}
}

func (s *set) priorities() {
	const feature = "cluster.priority"
	check := `
  health_checks:
  - {timeout: 0.3s, interval: 0.2s, no_traffic_interval: 0.2s, unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {}}
`
	g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: prio-1}}",
		Clusters: assigned("prio-1", "", locality("priority: 0", "o1"), locality("priority: 1", "o2"))})
	g.get("/", repeat(4), label("the first priority"))
	g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: prio-2}}",
		Clusters: assigned("prio-2", check, locality("priority: 0", "dead"), locality("priority: 1", "o2"))})
	g.get("/", repeat(4), pauseFirst(), label("the second priority"))
	g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: prio-3}}",
		Clusters: assigned("prio-3", "", locality("priority: 0", "o1 , health_status: UNHEALTHY"), locality("priority: 1", "o2"))})
	g.get("/", repeat(4), label("an unhealthy priority"))
	g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: prio-4}}",
		Clusters: assigned("prio-4", "", locality("priority: 0", "o1", "o3 , health_status: UNHEALTHY"), locality("priority: 1", "o2"))})
	g.get("/", distribution(), label("half of the first priority"))
	for i, v := range []struct{ name, status string }{{"all", "UNHEALTHY"}, {"draining", "DRAINING"}, {"degraded", "DEGRADED"}, {"timeout", "TIMEOUT"}, {"healthy", "HEALTHY"}} {
		name := fmt.Sprintf("status-%d", i)
		g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: " + name + "}}",
			Clusters: assigned(name, "", locality("", "o1 , health_status: "+v.status))})
		g.get("/", repeat(3), label("the only host is "+v.status))
		name += "-b"
		g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: " + name + "}}",
			Clusters: assigned(name, "", locality("", "o1 , health_status: "+v.status, "o2", "o3"))})
		g.get("/", distribution(), label("one of three hosts is "+v.status))
		name += "-c"
		g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: " + name + "}}",
			Clusters: assigned(name, "  common_lb_config: {healthy_panic_threshold: {value: 0}}\n", locality("", "o1 , health_status: "+v.status))})
		g.get("/", repeat(3), label("without panic, the only host is "+v.status))
	}
}

func (s *set) outliers() {
	const feature = "cluster.outlier"
	for i, v := range []variant{
		{"consecutive_5xx", "consecutive_5xx: 3"},
		{"consecutive_gateway_failure", "consecutive_gateway_failure: 3, enforcing_consecutive_gateway_failure: 100, consecutive_5xx: 1000"},
		{"not enforced", "consecutive_5xx: 3, enforcing_consecutive_5xx: 0"},
		{"max_ejection_percent", "consecutive_5xx: 3, max_ejection_percent: 100"},
		{"local origin", "split_external_local_origin_errors: true, consecutive_local_origin_failure: 3, enforcing_consecutive_local_origin_failure: 100"},
	} {
		detection := "  outlier_detection: {" + v.yaml + ", interval: 60s, base_ejection_time: 60s}\n"
		for _, steps := range []string{"500", "503", "404"} {
			name := fmt.Sprintf("outlier-%d-%s", i, steps)
			g := s.toCluster(feature, name, "", detection, "o1", "o2")
			g.get("/", repeat(20), field("x-o-at", "o1="+steps), counts(), labelf("%s, one host responds %s", v.name, steps))
			g.get("/", repeat(10), counts(), labelf("%s, after %s", v.name, steps))
		}
		name := fmt.Sprintf("outlier-%d-reset", i)
		g := s.toCluster(feature, name, "", detection, "o1", "o2")
		g.get("/", repeat(20), field("x-o-at", "o1=reset"), counts(), labelf("%s, one host resets", v.name))
		g.get("/", repeat(10), counts(), labelf("%s, after resets", v.name))
	}
	g := s.toCluster(feature, "outlier-single", "", "  outlier_detection: {consecutive_5xx: 2, interval: 60s, base_ejection_time: 60s}\n", "o1")
	g.get("/", repeat(6), field("x-o-at", "o1=503"), counts(), label("the only host"))
}

func (s *set) healthChecks() {
	const feature = "cluster.health_check"
	const times = "timeout: 0.3s, interval: 0.2s, no_traffic_interval: 0.2s, unhealthy_threshold: 1, healthy_threshold: 1"
	for i, v := range []struct{ name, check, origin string }{
		{"HTTP", "http_health_check: {path: /h}", "o1"},
		{"HTTP with another status", "http_health_check: {path: /h, expected_statuses: [{start: 300, end: 400}]}", "o1"},
		{"HTTP with a host", "http_health_check: {path: /h, host: check.test, request_headers_to_add: [{header: {key: x-hc, value: '1'}}]}", "o1"},
		{"HTTP with a method", "http_health_check: {path: /h, method: HEAD}", "o1"},
		{"HTTP with a header that fails", "http_health_check: {path: /h, request_headers_to_add: [{header: {key: x-o-status, value: '503'}}]}", "o1"},
		{"TCP", "tcp_health_check: {}", "o1"},
		{"TCP with bytes", "tcp_health_check: {send: {text: '616263'}, receive: [{text: '6563686f'}]}", "t1"},
		{"TCP with other bytes", "tcp_health_check: {send: {text: '616263'}, receive: [{text: '7a7a7a7a'}]}", "t1"},
		{"a dead host", "tcp_health_check: {}", "dead"},
	} {
		name := fmt.Sprintf("checked-%d", i)
		g := s.toCluster(feature, name, "", "  common_lb_config: {healthy_panic_threshold: {value: 0}}\n  health_checks: [{"+times+", "+v.check+"}]\n", v.origin)
		g.get("/", pauseFirst(), timeout(6*time.Second), label(v.name))
	}
}

func (s *set) breakers() {
	const feature = "cluster.circuit_breaker"
	for i, v := range []variant{
		{"max_requests 0", "max_requests: 0"},
		{"max_connections 0", "max_connections: 0"},
		{"max_pending_requests 0", "max_pending_requests: 0"},
		{"max_connections 1", "max_connections: 1, max_pending_requests: 0"},
		{"max_requests 1", "max_requests: 1"},
		{"high priority only", "priority: HIGH, max_requests: 0"},
	} {
		thresholds := "  circuit_breakers: {thresholds: [{" + v.yaml + "}]}\n"
		g := s.toCluster(feature, fmt.Sprintf("limited-%d", i), "", thresholds, "o1")
		g.get("/", label(v.name))
		g.get("/", repeat(3), label(v.name+" three times"))
		g.h2(label(v.name + " h2"))
		g.h2(field("content-type", "application/grpc"), method("POST"), body(""), label(v.name+" grpc"))
		g = s.toCluster(feature, fmt.Sprintf("limited-%d-h", i), "priority: HIGH", thresholds, "o1")
		g.get("/", label(v.name+" of a high priority"))
	}
}

func (s *set) clusterTypes() {
	const feature = "cluster.type"
	named := func(kind, name, hostname string) string {
		return strings.Replace(strings.Replace(cluster(name, "  dns_lookup_family: V4_ONLY\n", "o1"), "STATIC", kind, 1), "address: 127.0.0.1", "address: "+hostname, 1)
	}
	for i, v := range []struct{ kind, hostname string }{
		{"STRICT_DNS", "localhost"}, {"LOGICAL_DNS", "localhost"}, {"STRICT_DNS", "127.0.0.1"}, {"STRICT_DNS", "does-not-exist.invalid"},
	} {
		name := fmt.Sprintf("named-%d", i)
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: " + name + "}}", Clusters: named(v.kind, name, v.hostname)})
		g.get("/", label(v.kind+" "+v.hostname), timeout(8*time.Second))
	}
	g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: combined}}", Clusters: `
- name: combined
  connect_timeout: 1s
  lb_policy: CLUSTER_PROVIDED
  cluster_type:
    name: envoy.clusters.aggregate
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
      clusters: [none, o2]`})
	g.get("/", repeat(3))
}
