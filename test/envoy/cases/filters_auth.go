package cases

import "encoding/base64"

// smallFilters adds the groups about basic_auth, buffer and cdn_loop, and about jwt_authn in routes.
func (s *set) smallFilters() {
	s.basicAuth()
	s.buffers()
	s.cdnLoops()
	s.jwtRequirements()
}

func (s *set) basicAuth() {
	const users = `users: {inline_string: 'u:{SHA}UWuXg/ylF+7L0dBk2i0WUxCxl1k='}`
	const other = `users: {inline_string: 'w:{SHA}UWuXg/ylF+7L0dBk2i0WUxCxl1k='}`
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, v := range []variant{
		{"users", users},
		{"forward", users + "\nforward_username_header: x-user"},
		{"allow missing", users + "\nallow_missing: true"},
		{"header", users + "\nauthentication_header: x-auth"},
	} {
		g := s.add(Group{
			Feature: "basic_auth", Filters: filter("basic_auth", "basic_auth.v3.BasicAuth", v.yaml),
			Routes: "- match: {prefix: /w}\n  route: {cluster: o1}\n" + indent("  ", perRoute("basic_auth", "basic_auth.v3.BasicAuthPerRoute", other)) +
				"- {match: {prefix: /}, route: {cluster: o1}}",
		})
		g.get("/p?q=1", label(v.name+" missing"))
		for _, value := range []string{
			basic("u:p"), basic("u:test"), basic("w:test"), basic("u"), "Basic ???", "basic dTp0ZXN0", "Bearer x", "Basic  dTp0ZXN0",
		} {
			g.get("/", field("Authorization", value), field("X-User", "root"), labelf("%s %s", v.name, value))
		}
		g.get("/w", field("Authorization", basic("w:test")), label(v.name+" route"))
		g.get("/w", field("Authorization", basic("u:test")), label(v.name+" route, other user"))
		g.get("/", field("X-Auth", basic("u:test")), label(v.name+" X-Auth"))
		g.h2(field("content-type", "application/grpc"), method("POST"), body(""), label(v.name+" grpc"))
	}
}

func (s *set) buffers() {
	g := s.add(Group{
		Feature: "buffer", Filters: filter("buffer", "buffer.v3.Buffer", "max_request_bytes: 10"),
		Routes: "- match: {prefix: /off}\n  route: {cluster: o1}\n" + indent("  ", perRoute("buffer", "buffer.v3.BufferPerRoute", "disabled: true")) +
			"- match: {prefix: /large}\n  route: {cluster: o1}\n" + indent("  ", perRoute("buffer", "buffer.v3.BufferPerRoute", "buffer: {max_request_bytes: 100}")) +
			"- {match: {prefix: /}, route: {cluster: o1}}",
	})
	for _, p := range []string{"/", "/off", "/large"} {
		g.get(p)
		for _, text := range []string{"", "ten bytes.", "eleven byte"} {
			g.get(p, method("POST"), body(text), labelf("%s %d bytes", p, len(text)))
			g.h2(path(p), method("POST"), body(text), labelf("HTTP/2 %s %d bytes", p, len(text)))
		}
	}
}

func (s *set) cdnLoops() {
	for _, v := range []variant{{"never", "cdn_id: me.test"}, {"once", "cdn_id: me.test\nmax_allowed_occurrences: 1"}} {
		g := s.add(Group{Feature: "cdn_loop", Filters: filter("cdn_loop", "cdn_loop.v3.CdnLoopConfig", v.yaml)})
		g.get("/", label(v.name+" first"))
		for _, value := range []string{
			"other.test", "me.test", "me.test, me.test", `me.test;a=b, me.test;c="d,e"`, "x,,y", "me.test:80", "[::1]:80", "a b c", "me.test;", `"q"`,
		} {
			g.get("/", field("CDN-Loop", value), labelf("%s %s", v.name, value))
		}
		g.get("/", field("CDN-Loop", "a"), field("CDN-Loop", "me.test"), label(v.name+" two fields"))
	}
}

func (s *set) jwtRequirements() {
	route := func(path, config string) string {
		return "- match: {prefix: " + path + "}\n  route: {cluster: o1}\n" + indent("  ", perRoute("jwt_authn", "jwt_authn.v3.PerRouteConfig", config))
	}
	g := s.add(Group{
		Feature: "jwt_authn", Filters: filter("jwt_authn", "jwt_authn.v3.JwtAuthentication", `
providers:
  p:
    issuer: i
    local_jwks: {inline_string: '{"keys":[{"kty":"oct","k":"AAAA","alg":"HS256"}]}'}
rules: [{match: {prefix: /}, requires: {provider_name: p}}]
requirement_map: {missing: {allow_missing: {}}, any: {allow_missing_or_failed: {}}, p: {provider_name: p}}`),
		Routes: route("/missing", "requirement_name: missing") + route("/any", "requirement_name: any") + route("/p", "requirement_name: p") +
			route("/disabled", "disabled: true") + "- {match: {prefix: /}, route: {cluster: o1}}",
	})
	for _, p := range []string{"/missing", "/any", "/p?x=1", "/disabled", "/"} {
		g.get(p)
		g.get(p, field("Authorization", "Bearer x.y.z"), label(p+" invalid token"))
	}
}
