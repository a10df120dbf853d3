package cases

// headerActions adds groups whose routes, virtual hosts and route configurations change headers.
func (s *set) headerActions() {
	const feature = "action.headers"
	for _, action := range []string{
		"APPEND_IF_EXISTS_OR_ADD", "ADD_IF_ABSENT", "OVERWRITE_IF_EXISTS_OR_ADD", "OVERWRITE_IF_EXISTS",
	} {
		for _, value := range []string{"n", ""} {
			for _, keep := range []string{"true", "false"} {
				option := "{header: {key: x-a, value: '" + value + "'}, append_action: " + action + ", keep_empty_value: " + keep + "}"
				g := s.add(Group{Feature: feature, Routes: "- match: {prefix: /}\n  route: {cluster: o1}\n  request_headers_to_add: [" + option +
					"]\n  response_headers_to_add: [" + option + "]\n"})
				g.get("/", label(option))
				g.get("/", field("x-a", "o"), field("x-o-h", "x-a: o"), label(option+" present"))
				g.get("/", field("x-a", "o"), field("x-a", "p"), field("x-o-h", "x-a: o|x-a: p"), label(option+" present twice"))
				g.get("/", field("x-a", ""), field("x-o-h", "x-a: "), label(option+" present and empty"))
			}
		}
	}
	levels := func(specific string) Group {
		return Group{
			Feature: feature,
			RouteConfig: specific + `
request_headers_to_add: [{header: {key: x-a, value: config}}, {header: {key: x-o, value: config}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]
request_headers_to_remove: [x-rc]
response_headers_to_add: [{header: {key: x-a, value: config}}, {header: {key: x-o, value: config}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]
response_headers_to_remove: [x-rc]`,
			HostFields: `
request_headers_to_add: [{header: {key: x-a, value: host}}, {header: {key: x-o, value: host}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]
request_headers_to_remove: [x-rh]
response_headers_to_add: [{header: {key: x-a, value: host}}, {header: {key: x-o, value: host}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]
response_headers_to_remove: [x-rh]`,
			Routes: `
- match: {prefix: /}
  route: {cluster: o1}
  request_headers_to_add: [{header: {key: x-a, value: route}}, {header: {key: x-o, value: route}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]
  request_headers_to_remove: [x-rr, x-a-client]
  response_headers_to_add: [{header: {key: x-a, value: route}}, {header: {key: x-o, value: route}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]
  response_headers_to_remove: [x-rr]`,
		}
	}
	for _, specific := range []string{"", "most_specific_header_mutations_wins: true"} {
		g := s.add(levels(specific))
		g.get("/", label("levels "+specific))
		g.get("/", fields(pairs("x-a", "client", "x-o", "client", "x-rc", "1", "x-rh", "1", "x-rr", "1")),
			field("x-o-h", "x-a: up|x-o: up|x-rc: 1|x-rh: 1|x-rr: 1"), label("levels with present headers "+specific))
		g.h2(field("x-a", "client"), label("levels h2 "+specific))
	}
	g := s.add(Group{Feature: feature, Routes: `
- match: {prefix: /}
  route: {cluster: o1}
  request_headers_to_remove: [user-agent, accept, cookie]
  response_headers_to_remove: [content-type, server, set-cookie, x-envoy-upstream-service-time]`})
	g.get("/", fields(pairs("User-Agent", "u", "Accept", "*/*", "Cookie", "a=b")), field("x-o-h", "Set-Cookie: a=1|Server: s"))
	g.h2(fields(pairs("user-agent", "u", "cookie", "a=b", "cookie", "c=d")), field("x-o-h", "Set-Cookie: a=1|Set-Cookie: b=2"))
	for _, v := range []string{
		"request_headers_to_add: [{header: {key: Host, value: x.test}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]",
		"request_headers_to_add: [{header: {key: ':path', value: /x}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]",
		"request_headers_to_remove: [host]",
		"request_headers_to_remove: [':authority']",
		"request_headers_to_add: [{header: {key: x-mixed-CASE, value: V}}]",
		"request_headers_to_add: [{header: {key: te, value: trailers}}]",
		"request_headers_to_add: [{header: {key: connection, value: x}}]",
	} {
		g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: o1}, " + v + "}\n"})
		g.get("/", label(v))
		g.h2(label("h2 " + v))
	}
}

// headerFormats adds header values with command operators.
func (s *set) headerFormats() {
	for _, format := range []string{
		"%PROTOCOL%", "%REQ(x-in)%", "%REQ(x-in?:path)%", "%REQ(x-long):3%", "%RESPONSE_CODE%", "%UPSTREAM_CLUSTER%", "%ROUTE_NAME%",
		"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "%DOWNSTREAM_LOCAL_ADDRESS%", "%DOWNSTREAM_LOCAL_PORT%", "%UPSTREAM_HOST%",
		"%REQUESTED_SERVER_NAME%", "%HOSTNAME_NOT_AN_OPERATOR_IN_TEXT", "100%%", "a%%b%PROTOCOL%c", "%RESP(x-out)%", "%RESPONSE_FLAGS%",
		"%START_TIME(%Y)%", "%METADATA(ROUTE:ns:key)%", "%DYNAMIC_METADATA(ns:key)%", "%PATH(WQ:ORIG)%", "%QUERY_PARAM(q)%",
		"%VIRTUAL_CLUSTER_NAME%", "%RESPONSE_CODE_DETAILS%", "%BYTES_RECEIVED%", "%CONNECTION_ID_NOT%", "%ENVIRONMENT(NOT_SET_ANYWHERE)%",
		"%REQ(missing)%", "%FILTER_STATE(x)%", "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%", "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
		"%STREAM_ID%", "%HOSTNAME%", "%GRPC_STATUS%", "%TRAILER(x)%", "%UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
	} {
		add := "[{header: {key: x-f, value: '" + format + "'}}]"
		g := s.add(Group{Feature: "action.headers.format", Routes: "- name: r1\n  match: {prefix: /}\n  metadata: {filter_metadata: {ns: {key: v}}}\n  route: {cluster: o1}\n  request_headers_to_add: " +
			add + "\n  response_headers_to_add: " + add + "\n"})
		g.get("/p?q=1", fields(pairs("x-in", "in", "x-long", "abcdef", "x-o-h", "x-out: out")), label(format))
		g.h2(path("/p"), label("h2 "+format))
	}
}
