package cases

import (
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// policy returns rules with one policy.
func policy(action, permissions, principals string) string {
	return "rules:\n  action: " + action + "\n  policies:\n    p:\n      permissions: [" + permissions + "]\n      principals: [" + principals + "]\n"
}

const (
	rbacMessage = "rbac.v3.RBAC"
	anyone      = "{any: true}"
	isAdmin     = "{header: {name: x-r, string_match: {exact: admin}}}"
	isPathA     = "{url_path: {path: {exact: /a}}}"
	isPathBelow = "{url_path: {path: {prefix: /a}}}"
	isLoopback  = "{address_prefix: 127.0.0.0, prefix_len: 8}"
)

func (s *set) rbac() {
	for _, action := range []string{"ALLOW", "DENY"} {
		s.rbacAction(action)
	}
	add := func(config string) *Group {
		return s.add(Group{Feature: "rbac", Filters: filter("rbac", rbacMessage, config)})
	}
	add("shadow_"+policy("DENY", anyone, anyone)).get("/", label("shadow"))
	add(policy("LOG", anyone, anyone)).get("/", label("LOG"))
	add("").get("/", label("no rules"))

	const perRouteMessage = "rbac.v3.RBACPerRoute"
	g := s.add(Group{Feature: "rbac", Filters: filter("rbac", rbacMessage, policy("DENY", anyone, anyone)), Routes: "" +
		"- match: {prefix: /x}\n  route: {cluster: o1}\n" + indent("  ", perRoute("rbac", perRouteMessage, "")) +
		"- match: {prefix: /y}\n  route: {cluster: o1}\n" + indent("  ", perRoute("rbac", perRouteMessage,
		"rbac:\n"+indent("  ", policy("ALLOW", anyone, anyone)))) +
		"- {match: {prefix: /}, route: {cluster: o1}}\n"})
	for _, p := range []string{"/x", "/y", "/z"} {
		g.get(p, label("per route "+p))
	}
	g.h2(path("/z"), host("x"))
	g.h2(field("content-type", "application/grpc"), path("/z"), method("POST"), body(""))
}

// rbacAction adds a group for each kind of permission and principal.
func (s *set) rbacAction(action string) {
	for _, v := range []struct{ name, permissions, principals string }{
		{"any", anyone, anyone},
		{"path exact", isPathA, anyone},
		{"path prefix", isPathBelow, anyone},
		{"path regex", "{url_path: {path: {safe_regex: {regex: /a.*}}}}", anyone},
		{"method", "{header: {name: ':method', string_match: {exact: GET}}}", anyone},
		{"header", isAdmin, anyone},
		{"header absent", "{header: {name: x-r, present_match: false}}", anyone},
		{"not", "{not_rule: " + isAdmin + "}", anyone},
		{"and", "{and_rules: {rules: [{header: {name: x-r, present_match: true}}, " + isPathA + "]}}", anyone},
		{"or", "{or_rules: {rules: [{header: {name: x-r, present_match: true}}, " + isPathA + "]}}", anyone},
		{"ip", anyone, "{direct_remote_ip: " + isLoopback + "}"},
		{"remote ip", anyone, "{remote_ip: {address_prefix: 9.9.9.9, prefix_len: 32}}"},
		{"source ip", anyone, "{source_ip: " + isLoopback + "}"},
		{"principal header", anyone, isAdmin},
		{"authenticated", anyone, "{authenticated: {}}"},
		{"not id", anyone, "{not_id: " + isAdmin + "}"},
		{"dest port", "{destination_port: 1}", anyone},
		{"dest ip", "{destination_ip: " + isLoopback + "}", anyone},
		{"sni", "{requested_server_name: {exact: a}}", anyone},
		{"metadata", "{metadata: {filter: f, path: [{key: a}], value: {string_match: {exact: x}}}}", anyone},
		{"principal path", anyone, isPathBelow},
	} {
		g := s.add(Group{Feature: "rbac", Filters: filter("rbac", rbacMessage, policy(action, v.permissions, v.principals))})
		for _, r := range []struct {
			path   string
			fields []wire.Field
		}{
			{"/a", nil},
			{"/a?x", nil},
			{"/b", nil},
			{"/A", nil},
			{"/a/b", pairs("x-r", "admin")},
			{"/b", pairs("x-r", "user", "x-r", "admin")},
			{"/b", pairs("x-r", "admin", "x-r", "user")},
			{"/b", pairs("X-Forwarded-For", "9.9.9.9")},
			{"/b/../a", nil},
			{"/%61", nil},
			{"//a", nil},
			{"/a%2f", nil},
		} {
			g.get(r.path, fields(r.fields), labelf("%s %s %s %s", action, v.name, r.path, describe(r.fields)))
		}
	}
}
