package proxy

import (
	"net/http"
	"testing"
)

// TestRepliesToGRPCOverHTTP1 verifies that local replies to gRPC requests equal those of Envoy:
// status 200 and the gRPC status in a header.
func TestRepliesToGRPCOverHTTP1(t *testing.T) {
	app := origin(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	abortRoute := func(path, fault string) string {
		return `{"match": {"path": "` + path + `"}, "direct_response": {"status": 200}, "per_filter_config": {"fault": {"abort": {` + fault + `, "percentage": 100}}}},`
	}
	_, front := setup{
		filters: `{"type": "fault", "config": {}}, {"type": "rbac", "config": {}}`,
		routes: abortRoute("/f503", `"status": 503`) + abortRoute("/f418", `"status": 418`) + abortRoute("/f400", `"status": 400`) + abortRoute("/f429", `"status": 429`) + abortRoute("/g5", `"grpc_status": 5`) + `
			{"match": {"path": "/rbac"}, "direct_response": {"status": 200}, "per_filter_config": {"rbac": {"rules": {"policies": {}}}}},
			{"match": {"path": "/direct"}, "direct_response": {"status": 201, "body": "hi"}},
			{"match": {"path": "/app"}, "route": {"cluster_name": "app"}}`,
		clusters: cluster("app", app),
	}.run(t)
	for _, test := range []struct {
		path, contentType string
		status            int
		code              string
	}{
		{"/f503", "application/grpc", 200, "14"},
		{"/f418", "application/grpc+proto", 200, "2"},
		{"/f400", "application/grpc", 200, "13"},
		{"/f429", "application/grpc", 200, "14"},
		{"/g5", "application/grpc", 200, "5"},
		{"/rbac", "application/grpc", 200, "7"},
		{"/none", "application/grpc", 200, "12"},
		{"/direct", "application/grpc", 200, "2"},
		{"/app", "application/grpc", 503, ""},
		{"/f418", "application/grpc;x", 418, ""},
		{"/f418", "application/grpc-web", 418, ""},
		{"/f418", "text/plain", 418, ""},
		{"/g5", "text/plain", 404, ""},
	} {
		got := dialClient(t, front).roundTrip(get(test.path, "Content-Type: "+test.contentType))
		if code := got.Header.Get("grpc-status"); got.StatusCode != test.status || code != test.code {
			t.Errorf("%s, %s: %d with grpc-status %q, want %d with %q", test.path, test.contentType, got.StatusCode, code, test.status, test.code)
		}
		if test.code != "" && (got.body != "" || got.Header.Get("grpc-message") == "") {
			t.Errorf("%s, %s: body %q, grpc-message %q; want no body and a grpc-message", test.path, test.contentType, got.body, got.Header.Get("grpc-message"))
		}
	}
}
