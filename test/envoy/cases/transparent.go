package cases

// Transparent returns groups whose clients connect to the address of an origin. A packet filter
// redirects the connections to the listener. They are not part of All.
func Transparent() []*Group {
	s := &set{area: ClustersAndTCP}
	const original = `
listener_filters:
- name: envoy.filters.listener.original_dst
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst}`
	destination := func(name, fields string) string {
		return "\n- name: " + name + "\n  type: ORIGINAL_DST\n  connect_timeout: 1s\n  lb_policy: CLUSTER_PROVIDED\n" + fields
	}
	requests := func(g *Group) {
		for _, name := range []string{"o1", "o2"} {
			g.get("/", to(name), label("HTTP/1.1 to "+name))
			g.get("/", to(name), repeat(2), label("twice to "+name))
			g.h2(to(name), label("HTTP/2 to "+name))
		}
	}
	requests(s.add(Group{Feature: "transparent", Listener: original, Clusters: destination("passthrough", ""), Routes: `
- match: {prefix: /}
  route: {cluster: passthrough}
  request_headers_to_add: [{header: {key: x-local, value: '%DOWNSTREAM_LOCAL_ADDRESS%'}}]`}))
	requests(s.add(Group{Feature: "transparent", Listener: original + "\nuse_original_dst: true"}))
	requests(s.add(Group{Feature: "transparent", Listener: original, Routes: "- {match: {prefix: /}, route: {cluster: o3}}"}))
	g := s.add(Group{Feature: "transparent", Listener: original, Clusters: destination("by-header", `
  original_dst_lb_config: {use_http_header: true}
`), Routes: "- {match: {prefix: /}, route: {cluster: by-header}}"})
	g.get("/", to("o1"), field("x-envoy-original-dst-host", "127.0.0.1:1"), label("a host in the header that is down"))
	g.get("/", to("o1"), field("x-envoy-original-dst-host", "malformed"), label("a malformed host in the header"))
	g.get("/", to("o1"), label("no host in the header"))
	g = s.add(Group{Feature: "transparent", Listener: original, Clusters: destination("bytes", ""), NetworkFilters: tcpProxy("cluster: bytes")})
	g.tcp("bytes", []string{"one", "two"}, to("t1"))
	g.tcp("half-close", []string{"one"}, to("t1"), halfClose())
	for i, g := range s.groups {
		g.name(i + 1)
	}
	return s.groups
}

// to lets the client connect to an origin.
func to(origin string) option { return func(c *Case) { c.Destination = origin } }
