package e2e

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// filters returns a feature for each HTTP stream filter.
func (p *protocolPair) filters() []feature {
	return []feature{
		p.faultAbort(), p.faultDelay(), p.headerMutation(), p.payloadLimit(), p.healthcheck(), p.healthOfUpstreams(), p.healthOfClusters(), p.dubboStream(),
		p.compressor(), p.gzip(), p.decompressor(), p.basicAuth(), p.buffer(), p.cdnLoop(),
		p.cors(), p.csrf(), p.ipAccess(), p.rbac(), p.headerToMetadata(), p.localRateLimit(), p.mirror(), p.faultTolerance(), p.jwtAuthn(),
		p.extAuthz("http", httpAuthz, p.authz[0]), p.extAuthz("grpc", grpcAuthz, p.authz[1]),
		p.adaptiveConcurrency(),
		p.flowControl(),
		p.peerMetadata(), p.istioStats(),
	}
}

func (p *protocolPair) faultAbort() feature {
	abort := func(status int) object { return object{"abort": object{"status": status, "percentage": 100}} }
	return feature{
		name:    "fault-abort",
		filters: list{streamFilter("fault", abort(503))},
		routes: []object{
			routeWithFilter("/teapot", "fault", abort(418)),
			routeWithFilter("/none", "fault", object{}),
			routeWithFilter("/conditional", "fault", abort(418).with(object{"headers": list{object{"name": "end-user", "value": "jason"}}})),
		},
		cases: []requestCase{
			{name: "any request", path: "/", status: 503, code: "14", reason: "fault_injected"},
			{name: "with body", method: "POST", path: "/", requestBody: "lost", status: 503, code: "14", reason: "fault_injected"},
			{name: "route with another status", path: "/teapot", status: 418, code: "2", reason: "fault_injected"},
			{name: "route without the filter", path: "/none", status: 200, code: "0"},
			{name: "matching header", path: "/conditional", fields: []string{"End-User: jason"}, status: 418, code: "2", reason: "fault_injected"},
			{name: "other header value", path: "/conditional", fields: []string{"End-User: sonja"}, status: 200, code: "0"},
		},
	}
}

func (p *protocolPair) faultDelay() feature {
	const short = 100 * time.Millisecond
	delay := object{"delay": object{"fixed_delay": short.String(), "percentage": 100}}
	return feature{
		name:    "fault-delay",
		filters: list{streamFilter("fault", delay)},
		routes: []object{
			routeWithFilter("/abort", "fault", delay.with(object{"abort": object{"status": 504, "percentage": 100}})),
			routeTo("/late", "late", object{"timeout": short.String()}),
		},
		clusters: list{cluster("late", nil, p.hanging)},
		cases: []requestCase{
			{name: "delay", path: "/", status: 200, code: "0", minDuration: short},
			{name: "with body", method: "POST", path: "/", requestBody: "kept", status: 200, code: "0", body: "kept", minDuration: short},
			{name: "abort after the delay", path: "/abort", status: 504, code: "14", reason: "fault_injected", minDuration: short},
			{name: "timeout after the delay", path: "/late", status: 504, code: "14", reason: "upstream_timeout", minDuration: short},
		},
	}
}

func (p *protocolPair) headerMutation() feature {
	field := func(key, value string) object { return object{"header": object{"key": key, "value": value}} }
	return feature{
		name: "header_mutation",
		filters: list{streamFilter("header_mutation", object{
			"request_headers_to_add": list{
				field("X-Caller", "%downstream_remote_ip%"),
				field("X-Present", "replaced").with(object{"append": false}),
				field("X-Appended", "added"),
			},
			"request_headers_to_remove":  list{"X-Secret"},
			"response_headers_to_add":    list{field("X-Out", "%upstream_cluster%")},
			"response_headers_to_remove": list{"x-inner"},
		})},
		routes: []object{routeWithFilter("/own", "header_mutation", object{"request_headers_to_add": list{field("X-Own", "yes")}})},
		cases: []requestCase{
			{
				name: "request and response headers", path: "/", status: 200, code: "0",
				fields: []string{"X-Present: before", "X-Appended: before", "X-Secret: s"},
				wantHeaders: map[string]string{
					"Got-X-Caller": "127.0.0.1", "Got-X-Present": "replaced", "Got-X-Appended": "before, added", "Got-X-Secret": "",
					"X-Out": "app", "X-Inner": "",
				},
			},
			{
				name: "route with its own config", path: "/own", fields: []string{"X-Secret: s"}, status: 200, code: "0",
				wantHeaders: map[string]string{"Got-X-Own": "yes", "Got-X-Caller": "", "Got-X-Secret": "s", "X-Out": "", "X-Inner": "secret"},
			},
		},
	}
}

// payloadLimit verifies limits on bodies. A gRPC body is five bytes longer than its message.
func (p *protocolPair) payloadLimit() feature {
	const eleven = "a message.."
	return feature{
		name:    "payload_limit",
		filters: list{streamFilter("payload_limit", object{"max_entity_size": 10})},
		routes: []object{
			routeWithFilter("/status", "payload_limit", object{"max_entity_size": 10, "http_status": 509}),
			routeWithFilter("/none", "payload_limit", object{}),
			routeWithFilter("/limit-16", "payload_limit", object{"max_entity_size": 16}),
		},
		cases: []requestCase{
			{name: "below the limit", method: "POST", path: "/", requestBody: "ten bytes.", status: 200, body: "ten bytes."},
			{name: "above the limit", method: "POST", path: "/", requestBody: eleven, status: 413, code: "8", reason: "body_too_large"},
			{name: "chunked below the limit", method: "POST", path: "/limit-16", requestBody: eleven, chunked: true, status: 200, code: "0", body: eleven},
			{name: "chunked above the limit", method: "POST", path: "/", requestBody: eleven, chunked: true, status: 413, code: "8", reason: "body_too_large"},
			{name: "route with another status", method: "POST", path: "/status", requestBody: eleven, status: 509, code: "8", reason: "body_too_large"},
			{name: "route without the filter", method: "POST", path: "/none", requestBody: eleven, status: 200, code: "0", body: eleven},
		},
	}
}

// basicAuth verifies users, and other users of a route.
func (p *protocolPair) basicAuth() feature {
	users := func(hash string) object { return object{"users": object{"inline_string": "alice:{SHA}" + hash}} }
	return feature{
		name:    "basic_auth",
		filters: list{streamFilter("basic_auth", users("W6ph5Mm5Pz8GgiULbPgzG37mj9g=").with(object{"forward_username_header": "x-user"}))},
		routes:  []object{routeWithFilter("/admin", "basic_auth", users("0DPiKuNIrrVmD8IUCuw1hQxNqZc="))},
		cases: []requestCase{
			{name: "valid", path: "/", fields: []string{"Authorization: Basic YWxpY2U6cGFzc3dvcmQ=", "X-User: root"}, status: 200, code: "0", wantHeaders: map[string]string{"Got-X-User": "alice"}},
			{name: "wrong password", path: "/admin", fields: []string{"Authorization: Basic YWxpY2U6cGFzc3dvcmQ="}, status: 401, code: "16", reason: "unauthenticated"},
			{name: "missing", path: "/", status: 401, code: "16", reason: "unauthenticated"},
		},
	}
}

// buffer verifies limits on bodies that are read first. A gRPC body is five bytes longer than its
// message.
func (p *protocolPair) buffer() feature {
	const eleven = "a message.."
	return feature{
		name:    "buffer",
		filters: list{streamFilter("buffer", object{"max_request_bytes": 10})},
		routes: []object{
			routeWithFilter("/off", "buffer", object{"disabled": true}),
			routeWithFilter("/limit-16", "buffer", object{"max_request_bytes": 16}),
		},
		cases: []requestCase{
			{name: "without a body", path: "/", status: 200},
			{name: "below the limit", method: "POST", path: "/", requestBody: "ten bytes.", status: 200, body: "ten bytes."},
			{name: "above the limit", method: "POST", path: "/", requestBody: eleven, status: 413, code: "8", reason: "body_too_large"},
			{name: "chunked below the limit", method: "POST", path: "/limit-16", requestBody: eleven, chunked: true, status: 200, code: "0", body: eleven},
			{name: "chunked above the limit", method: "POST", path: "/", requestBody: eleven, chunked: true, status: 413, code: "8", reason: "body_too_large"},
			{name: "route without the filter", method: "POST", path: "/off", requestBody: eleven, status: 200, code: "0", body: eleven},
		},
	}
}

// cdnLoop verifies that a request passes once.
func (p *protocolPair) cdnLoop() feature {
	return feature{
		name:    "cdn_loop",
		filters: list{streamFilter("cdn_loop", object{"cdn_id": "me.test"})},
		cases: []requestCase{
			{name: "first pass", path: "/", fields: []string{"Cdn-Loop: other.test"}, status: 200, code: "0", wantHeaders: map[string]string{"Got-Cdn-Loop": "other.test,me.test"}},
			{name: "loop", path: "/", fields: []string{"Cdn-Loop: me.test"}, status: 502, code: "14", reason: "denied"},
			{name: "malformed", path: "/", fields: []string{"Cdn-Loop: a b"}, status: 400, code: "13", reason: "denied"},
		},
	}
}

func (p *protocolPair) healthcheck() feature {
	app := map[string]string{"X-App": "app"}
	return feature{
		name:    "healthcheck",
		filters: list{streamFilter("healthcheck", object{"endpoint": "/healthz"})},
		cases: []requestCase{
			{name: "health", path: "/healthz?verbose", status: 200, body: "ok\n", wantHeaders: map[string]string{"X-App": ""}},
			{name: "HEAD", method: "HEAD", path: "/healthz", status: 200, wantHeaders: map[string]string{"X-App": ""}},
			{name: "other method", method: "PUT", path: "/healthz", status: 200, code: "0", wantHeaders: app},
			{name: "other path", path: "/healthz/db", status: 200, code: "0", wantHeaders: app},
		},
	}
}

func (p *protocolPair) dubboStream() feature {
	return feature{
		name:    "dubbo_stream",
		filters: list{streamFilter("dubbo_stream", object{"pod_labels_file": "/etc/istio/pod/labels"})},
		cases: []requestCase{
			{name: "HTTP is unchanged", path: "/shop/buy?a", fields: []string{"Service: kept"}, status: 200, code: "0",
				wantHeaders: map[string]string{"X-App": "app", "Got-Service": "kept"}},
		},
	}
}

// TestEveryStreamFilterIsCovered verifies that (*protocolPair).filters has every stream filter of
// the registry. The title of a filter's README.md is the name of the filter.
func TestEveryStreamFilterIsCovered(t *testing.T) {
	t.Parallel()
	covered := make(map[string]bool)
	for _, f := range new(protocolPair).filters() {
		for _, config := range f.filters {
			covered[config.(object)["type"].(string)] = true
		}
	}
	registry, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "cmd/weft/registry.go"), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, spec := range registry.Imports {
		_, dir, ok := strings.Cut(strings.Trim(spec.Path.Value, `"`), "/pkg/filter/stream/")
		if !ok {
			continue
		}
		found++
		text, err := os.ReadFile(filepath.Join(root, "pkg/filter/stream", dir, "README.md"))
		if err != nil {
			t.Error(err)
			continue
		}
		title, _, _ := strings.Cut(string(text), "\n")
		if name := strings.TrimPrefix(title, "# "); !covered[name] {
			t.Errorf("(*protocolPair).filters lacks the filter %s", name)
		}
	}
	if found < 10 {
		t.Errorf("the registry has only %d stream filters, want at least 10", found)
	}
}
