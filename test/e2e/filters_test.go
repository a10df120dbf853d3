package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// filterProxy runs a proxy with stream filters and routes in front of an upstream that describes
// the request in its response.
func filterProxy(t *testing.T, filters list, routes ...object) (url string) {
	t.Helper()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-App", "1")
		w.Header().Add("X-App", "2")
		describeRequest(w, r)
	})
	front := freeAddress()
	startWeft(t, setup{
		listeners: list{httpListener("front", front, object{"stream_filters": filters})},
		tables:    list{routeTable("front", append(routes, routeTo("/", "app"))...)},
		clusters:  list{cluster("app", nil, app.address), cluster("other", nil, app.address)},
	}.config())
	return "http://" + front
}

// routeWithFilter returns a route with a configuration of a filter.
func routeWithFilter(prefix, name string, config object) object {
	return routeTo(prefix, "app").with(object{"per_filter_config": object{name: config}})
}

// TestFaultDelays verifies the fixed delay and that a route can override it.
func TestFaultDelays(t *testing.T) {
	t.Parallel()
	delay := func(percentage int) object {
		return object{"delay": object{"fixed_delay": "1s", "percentage": percentage}}
	}
	url := filterProxy(t, list{streamFilter("fault", delay(100))},
		routeWithFilter("/never", "fault", delay(0)), routeWithFilter("/none", "fault", object{}))
	for path, want := range map[string]bool{"/": true, "/never": false, "/none": false} {
		got := sendRequest(t, newClient(t), "GET", url+path, "")
		if got.status != 200 || (got.took >= time.Second) != want {
			t.Errorf("%s: %d after %v, want a delay %v", path, got.status, got.took, want)
		}
	}
}

func TestFaultAborts(t *testing.T) {
	t.Parallel()
	abort := func(status, percentage int) object {
		return object{"abort": object{"status": status, "percentage": percentage}}
	}
	url := filterProxy(t, list{streamFilter("fault", abort(503, 100))},
		routeWithFilter("/teapot", "fault", abort(418, 100)),
		routeWithFilter("/default", "fault", object{"abort": object{"percentage": 100}}),
		routeWithFilter("/never", "fault", abort(418, 0)),
		routeWithFilter("/half", "fault", abort(418, 50)),
		routeWithFilter("/both", "fault", object{"delay": object{"fixed_delay": "100ms", "percentage": 100}, "abort": object{"status": 504, "percentage": 100}}),
	)
	for path, want := range map[string]int{"/": 503, "/teapot": 418, "/default": 503, "/never": 200, "/both": 504} {
		got := sendRequest(t, newClient(t), "GET", url+path, "")
		if got.status != want || (path == "/both" && got.took < 100*time.Millisecond) {
			t.Errorf("%s: %d after %v, want %d", path, got.status, got.took, want)
		}
	}
	c, aborted := newClient(t), 0
	for range 100 {
		if sendRequest(t, c, "GET", url+"/half", "").status == 418 {
			aborted++
		}
	}
	// 20 and 80 are six standard deviations from the mean.
	if aborted < 20 || aborted > 80 {
		t.Errorf("aborted %d of 100 requests, want about 50", aborted)
	}
}

func TestFaultMatchesHeadersAndCluster(t *testing.T) {
	t.Parallel()
	config := func(extra object) object {
		return object{"abort": object{"status": 418, "percentage": 100}}.with(extra)
	}
	url := filterProxy(t, list{streamFilter("fault", config(object{"headers": list{
		object{"name": "end-user", "value": "jason"},
		object{"name": "version", "value": "v[0-9]+", "regex": true},
	}}))},
		routeWithFilter("/cluster", "fault", config(object{"upstream_cluster": "app"})),
		routeWithFilter("/another", "fault", config(object{"upstream_cluster": "other"})),
	)
	for _, c := range []struct {
		name, path string
		fields     []string
		want       int
	}{
		{"both headers", "/", []string{"End-User: jason", "Version: v12"}, 418},
		{"one header", "/", []string{"End-User: jason"}, 200},
		{"other value", "/", []string{"End-User: sonja", "Version: v12"}, 200},
		{"value with the same prefix", "/", []string{"End-User: jason", "Version: v12beta"}, 200},
		{"same cluster", "/cluster", nil, 418},
		{"other cluster", "/another", nil, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := sendRequest(t, newClient(t), "GET", url+c.path, "", c.fields...); got.status != c.want {
				t.Errorf("%d, want %d", got.status, c.want)
			}
		})
	}
}

func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	url := filterProxy(t, list{streamFilter("payload_limit", object{"max_entity_size": 100})},
		routeWithFilter("/status", "payload_limit", object{"max_entity_size": 10, "http_status": 509}),
		routeWithFilter("/large", "payload_limit", object{"max_entity_size": 200_000}),
		routeWithFilter("/none", "payload_limit", object{"max_entity_size": 0}),
	)
	for _, c := range []struct {
		path string
		size int
		want int
	}{
		{"/", 0, 200}, {"/", 100, 200}, {"/", 101, 413}, {"/", 1 << 20, 413},
		{"/status", 10, 200}, {"/status", 11, 509},
		{"/large", 200_000, 200}, {"/large", 200_001, 413},
		{"/none", 1 << 20, 200},
	} {
		body := strings.Repeat("x", c.size)
		if got := sendRequest(t, newClient(t), "POST", url+c.path, body); got.status != c.want {
			t.Errorf("%s with %d bytes: %d, want %d", c.path, c.size, got.status, c.want)
		}
		got, err := postChunked(t, url+c.path, body)
		if err != nil || got.status != c.want {
			t.Errorf("%s with %d bytes in chunks: %d, %v; want %d", c.path, c.size, got.status, err, c.want)
		}
	}
}

// postChunked posts content without a Content-Length.
func postChunked(t *testing.T, url, content string) (httpResponse, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, struct{ io.Reader }{strings.NewReader(content)})
	if err != nil {
		t.Fatal(err)
	}
	response, err := newClient(t).Do(request)
	if err != nil {
		return httpResponse{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return httpResponse{status: response.StatusCode, header: response.Header, body: string(body)}, err
}

func TestHeaderMutation(t *testing.T) {
	t.Parallel()
	field := func(key, value string) object { return object{"header": object{"key": key, "value": value}} }
	url := filterProxy(t, list{streamFilter("header_mutation", object{
		"request_headers_to_add": list{
			field("X-Caller", "%downstream_remote_ip% %method%"),
			field("X-There", "replaced").with(object{"append": false}),
			field("X-More", "added"),
		},
		"request_headers_to_remove":  list{"X-Secret"},
		"response_headers_to_add":    list{field("X-Status", "%response_code%"), field("X-Twice", "second").with(object{"append": true})},
		"response_headers_to_remove": list{"x-app"},
	})},
		routeWithFilter("/override", "header_mutation", object{"request_headers_to_add": list{field("X-Override", "yes")}}),
		routeWithFilter("/none", "header_mutation", object{}),
	)
	got := sendRequest(t, newClient(t), "GET", url+"/", "", "X-There: before", "X-More: before", "X-Secret: s")
	for _, want := range []string{"X-Caller: 127.0.0.1 GET\r\n", "X-There: replaced\r\n", "X-More: before\r\nX-More: added\r\n"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the upstream did not get %q:\n%s", want, got.body)
		}
	}
	if strings.Contains(got.body, "X-There: before") || strings.Contains(got.body, "X-Secret") {
		t.Errorf("the upstream got\n%s", got.body)
	}
	if h := got.header; h.Get("X-Status") != "200" || h.Get("X-App") != "" {
		t.Errorf("the client got %v, want X-Status: 200 and no X-App", h)
	}
	got = sendRequest(t, newClient(t), "GET", url+"/override", "", "X-Secret: s")
	if !strings.Contains(got.body, "X-Override: yes\r\n") || strings.Contains(got.body, "X-Caller") || !strings.Contains(got.body, "X-Secret") || len(got.header["X-App"]) != 2 {
		t.Errorf("route with a configuration: %v\n%s", got.header, got.body)
	}
	if got := sendRequest(t, newClient(t), "GET", url+"/none", ""); strings.Contains(got.body, "X-Caller") || got.header.Get("X-Status") != "" {
		t.Errorf("route with an empty configuration: %v\n%s", got.header, got.body)
	}
}

// TestFiltersRunInOrder verifies that filters run in the configured order: a filter sees the
// changes of those before it.
func TestFiltersRunInOrder(t *testing.T) {
	t.Parallel()
	mutation := streamFilter("header_mutation", object{
		"request_headers_to_add":  list{object{"header": object{"key": "x-fail", "value": "yes"}}},
		"response_headers_to_add": list{object{"header": object{"key": "x-mutated", "value": "yes"}}},
	})
	fault := streamFilter("fault", object{"abort": object{"status": 418, "percentage": 100}, "headers": list{object{"name": "x-fail", "value": "yes"}}})
	if got := sendRequest(t, newClient(t), "GET", filterProxy(t, list{mutation, fault}), ""); got.status != 418 || got.header.Get("X-Mutated") != "yes" {
		t.Errorf("mutation before fault: %d %v; want 418, \"yes\"", got.status, got.header)
	}
	if got := sendRequest(t, newClient(t), "GET", filterProxy(t, list{fault, mutation}), ""); got.status != 200 {
		t.Errorf("fault before mutation: %d, want 200", got.status)
	}
}

// TestNamedFilterChains verifies the older form of stream filters: a top-level list with the name
// of the listener.
func TestNamedFilterChains(t *testing.T) {
	t.Parallel()
	s, front := simpleProxy("127.0.0.1:1")
	s.extra = object{"stream_filters": list{object{"name": "front", "stream_filters": list{
		streamFilter("fault", object{"abort": object{"status": 418, "percentage": 100}})}}}}
	startWeft(t, s.config())
	if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.status != 418 {
		t.Errorf("%d, want 418", got.status)
	}
}
