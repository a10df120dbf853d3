package cases

import (
	"regexp"
	"time"
)

// admin adds the groups about the admin port: its pages, and the statistics of a group.
func (s *set) admin() {
	s.statistics()
	s.adminPages()
}

// page adds a case that requests a page of the admin port.
func (g *Group) page(path string, options ...option) {
	g.get(path, append([]option{func(c *Case) { c.Admin, c.Host, c.ResponseOnly = true, "127.0.0.1", true }}, options...)...)
}

// adminPages adds the pages whose content differs between any two processes: only the status, the
// type of the content and, for JSON, its keys matter.
func (s *set) adminPages() {
	g := s.add(Group{Feature: "admin.pages"})
	g.get("/", label("a request, so that there are statistics"))
	for _, path := range []string{
		"/", "/help", "/certs", "/clusters", "/clusters?format=json", "/config_dump", "/config_dump?include_eds", "/config_dump?resource=static_clusters",
		"/config_dump?mask=bootstrap", "/config_dump?name_regex=o1", "/contention", "/hot_restart_version", "/init_dump", "/listeners", "/listeners?format=json",
		"/logging", "/memory", "/ready", "/runtime", "/server_info", "/stats", "/stats?format=json", "/stats?usedonly", "/stats?filter=server.live",
		"/stats/prometheus", "/stats?format=prometheus", "/stats/recentlookups", "/nope", "/stats?type=Counters", "/stats?type=Gauges",
	} {
		g.page(path, shape(), label("page "+path))
	}
	for _, path := range []string{
		"/healthcheck/ok", "/reset_counters", "/logging?level=error", "/runtime_modify?a=b", "/logging", "/nope",
	} {
		g.page(path, method("POST"), body(""), shape(), alone(), label("POST "+path))
	}
	for _, path := range []string{"/healthcheck/fail", "/reset_counters", "/runtime_modify?a=b"} {
		g.page(path, shape(), label("GET instead of POST "+path))
	}
	g.page("/ready", method("HEAD"), shape(), label("HEAD /ready"))
}

// shape compares the keys of a body in JSON, and no other body.
func shape() option { return func(c *Case) { c.Shape = true } }

// statistics adds requests, and then one case for each statistic of Envoy that they change.
func (s *set) statistics() {
	g := s.add(Group{Feature: "admin.stats", Listener: "stat_prefix: counted", Routes: `
- {match: {prefix: /redirect}, redirect: {path_redirect: /}}
- {match: {prefix: /retry}, route: {cluster: counted, retry_policy: {retry_on: 5xx}}}
- {match: {prefix: /timeout}, route: {cluster: counted, timeout: 0.2s}}
- {match: {prefix: /direct}, direct_response: {status: 204}}
- {match: {prefix: /app}, route: {cluster: counted}}`, Clusters: cluster("counted", "", "o1")})
	for range 3 {
		g.get("/app")
	}
	g.get("/app", method("POST"), body("abcdef"))
	g.get("/app", field("x-o-status", "404"))
	g.get("/app", field("x-o-status", "301"))
	g.get("/app", field("x-o-status", "500"))
	g.get("/app", field("x-o-seq", "reset"))
	g.get("/retry", field("x-o-seq", "503,200"))
	g.get("/timeout", field("x-o-delay", "600"))
	g.get("/redirect")
	g.get("/direct")
	g.get("/unknown")
	g.get("/app", repeat(3), label("three requests on a connection"))
	g.raw("GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", timeout(time.Second), label("malformed"))
	g.h2(path("/app"))
	g.h2(path("/app"), field("content-type", "application/grpc"), method("POST"), body("\x00\x00\x00\x00\x00"))
	g.get("/app", label("the last request"), closeWait(300*time.Millisecond))
	for _, name := range connectionManagerStatistics() {
		g.statistic("http.admin.stats.1." + name)
	}
	for _, name := range clusterStatistics() {
		g.statistic("cluster.counted." + name)
	}
	for _, name := range listenerStatistics() {
		g.statistic("listener.counted." + name)
	}
	for _, name := range serverStatistics() {
		g.statistic(name, func(c *Case) { c.Statistic = StatisticName })
	}
}

// statistic adds a case for one statistic.
func (g *Group) statistic(name string, options ...option) {
	value := func(c *Case) { c.Statistic = StatisticValue }
	g.page("/stats?filter=^"+regexp.QuoteMeta(name)+"$", append([]option{value, label(name)}, options...)...)
}

// alone runs a case while no other group runs.
func alone() option { return func(c *Case) { c.Alone = true } }
