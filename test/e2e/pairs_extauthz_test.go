package e2e

// extAuthz returns the feature of one type of authorization service. In gRPC, the body that the
// service gets has five bytes before the message.
func (p *protocolPair) extAuthz(name string, filter func(cluster string, extra object) object, address string) feature {
	withBody := object{"with_request_body": object{"max_request_bytes": 16, "allow_partial_message": true}}
	return feature{
		name:    "ext-authz-" + name,
		filters: list{streamFilter("ext_authz", filter("authz-"+name, nil))},
		routes: []object{
			routeWithFilter("/public", "ext_authz", object{"disabled": true}),
			routeWithFilter("/with-body", "ext_authz", object{"check_settings": withBody}),
			routeWithFilter("/exact", "ext_authz", filter("authz-"+name, object{"with_request_body": object{"max_request_bytes": 16}})),
			routeWithFilter("/open", "ext_authz", filter("dead", object{"failure_mode_allow": true, "failure_mode_allow_header_add": true})),
			routeWithFilter("/closed", "ext_authz", filter("dead", object{"status_on_error": object{"code": 503}})),
		},
		clusters: list{cluster("authz-"+name, nil, address)},
		cases: []requestCase{
			{name: "allowed", path: "/", fields: []string{"X-Token: good", "X-User: root", "X-Forged: yes"}, status: 200, code: "0",
				wantHeaders: map[string]string{"X-App": "app", "Got-X-User": "ann", "Got-X-Forged": "", "X-Session": "new"}},
			{name: "with body", method: "POST", path: "/", requestBody: "kept", fields: []string{"X-Token: good"}, status: 200, code: "0", body: "kept"},
			{name: "denied", method: "POST", path: "/", requestBody: "lost", fields: []string{"X-Token: tea"}, status: 418, code: "7", reason: "denied",
				wantHeaders: map[string]string{"X-Why": "tea", "X-App": ""}},
			{name: "body of the denied response", path: "/", fields: []string{"X-Token: tea"}, status: 418, body: "no tea", reason: "denied"},
			{name: "no token", path: "/", status: 401, code: "16", reason: "unauthenticated", wantHeaders: map[string]string{"X-Why": "token", "X-App": ""}},
			{name: "service error", path: "/", fields: []string{"X-Token: error"}, status: 403, code: "7", reason: "denied", wantHeaders: map[string]string{"X-App": ""}},
			{name: "service unavailable", path: "/closed", fields: []string{"X-Token: good"}, status: 503, code: "7", reason: "denied", wantHeaders: map[string]string{"X-App": ""}},
			{name: "service unavailable, failure_mode_allow", path: "/open", status: 200, code: "0", wantHeaders: map[string]string{"Got-X-Envoy-Auth-Failure-Mode-Allowed": "true"}},
			{name: "route without checks", path: "/public", status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app", "X-Session": ""}},
			{name: "body", method: "POST", path: "/with-body", requestBody: "as good as", status: 200, code: "0", body: "as good as"},
			{name: "partial body", method: "POST", path: "/with-body", requestBody: "good, and more than 16", chunked: true, status: 200, code: "0", body: "good, and more than 16"},
			{name: "body too large for the check", method: "POST", path: "/exact", requestBody: "good, and more than 16", status: 413, code: "8", reason: "body_too_large"},
		},
	}
}
