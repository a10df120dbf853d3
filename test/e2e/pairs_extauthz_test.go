package e2e

// extAuthz returns the feature of one kind of authorization service. In gRPC, the body that the
// service gets has five bytes before the message.
func (p *protocolPair) extAuthz(name string, filter func(cluster string, more object) object, address string) feature {
	told := object{"with_request_body": object{"max_request_bytes": 16, "allow_partial_message": true}}
	return feature{
		name:    "ext-authz-" + name,
		filters: list{streamFilter("ext_authz", filter("authz-"+name, nil))},
		routes: []object{
			routeWithFilter("/public", "ext_authz", object{"disabled": true}),
			routeWithFilter("/content", "ext_authz", object{"check_settings": told}),
			routeWithFilter("/exact", "ext_authz", filter("authz-"+name, object{"with_request_body": object{"max_request_bytes": 16}})),
			routeWithFilter("/open", "ext_authz", filter("dead", object{"failure_mode_allow": true, "failure_mode_allow_header_add": true})),
			routeWithFilter("/closed", "ext_authz", filter("dead", object{"status_on_error": object{"code": 503}})),
		},
		clusters: list{cluster("authz-"+name, nil, address)},
		cases: []requestCase{
			{name: "who may", path: "/", fields: []string{"X-Token: good", "X-User: root", "X-Forged: yes"}, status: 200, code: "0",
				wantHeaders: map[string]string{"X-App": "app", "Got-X-User": "ann", "Got-X-Forged": "", "X-Session": "begun"}},
			{name: "with content", method: "POST", path: "/", requestBody: "kept", fields: []string{"X-Token: good"}, status: 200, code: "0", body: "kept"},
			{name: "who may not", method: "POST", path: "/", requestBody: "lost", fields: []string{"X-Token: tea"}, status: 418, code: "7", reason: "denied",
				wantHeaders: map[string]string{"X-Why": "tea", "X-App": ""}},
			{name: "the words of a refusal", path: "/", fields: []string{"X-Token: tea"}, status: 418, body: "no tea", reason: "denied"},
			{name: "who is not known", path: "/", status: 401, code: "16", reason: "unauthenticated", wantHeaders: map[string]string{"X-Why": "token", "X-App": ""}},
			{name: "the service fails", path: "/", fields: []string{"X-Token: error"}, status: 403, code: "7", reason: "denied", wantHeaders: map[string]string{"X-App": ""}},
			{name: "it is not there", path: "/closed", fields: []string{"X-Token: good"}, status: 503, code: "7", reason: "denied", wantHeaders: map[string]string{"X-App": ""}},
			{name: "it is not there, and need not be", path: "/open", status: 200, code: "0", wantHeaders: map[string]string{"Got-X-Envoy-Auth-Failure-Mode-Allowed": "true"}},
			{name: "a route without checks", path: "/public", status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app", "X-Session": ""}},
			{name: "by the content", method: "POST", path: "/content", requestBody: "as good as", status: 200, code: "0", body: "as good as"},
			{name: "by the beginning", method: "POST", path: "/content", requestBody: "good, and more than 16", chunked: true, status: 200, code: "0", body: "good, and more than 16"},
			{name: "too much to tell", method: "POST", path: "/exact", requestBody: "good, and more than 16", status: 413, code: "8", reason: "body_too_large"},
		},
	}
}
