package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// filtered runs a proxy with stream filters and routes in front of an upstream that describes the
// request in its response.
func filtered(t *testing.T, filters list, routes ...object) (url string) {
	t.Helper()
	app := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-App", "1")
		w.Header().Add("X-App", "2")
		sayRequest(w, r)
	})
	front := free()
	run(t, setup{
		listeners: list{listen("front", front, object{"stream_filters": filters})},
		tables:    list{table("front", append(routes, to("/", "app"))...)},
		clusters:  list{cluster("app", nil, app.address), cluster("other", nil, app.address)},
	}.config())
	return "http://" + front
}

// own returns a route with its own configuration of a filter.
func own(prefix, name string, config object) object {
	return to(prefix, "app").with(object{"per_filter_config": object{name: config}})
}

// TestFaultDelays verifies the fixed delay and that a route can override it.
func TestFaultDelays(t *testing.T) {
	t.Parallel()
	delay := func(percentage int) object {
		return object{"delay": object{"fixed_delay": "1s", "percentage": percentage}}
	}
	url := filtered(t, list{filterOf("fault", delay(100))},
		own("/never", "fault", delay(0)), own("/none", "fault", object{}))
	for path, want := range map[string]bool{"/": true, "/never": false, "/none": false} {
		got := ask(t, client(t), "GET", url+path, "")
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
	url := filtered(t, list{filterOf("fault", abort(503, 100))},
		own("/teapot", "fault", abort(418, 100)),
		own("/default", "fault", object{"abort": object{"percentage": 100}}),
		own("/never", "fault", abort(418, 0)),
		own("/half", "fault", abort(418, 50)),
		own("/both", "fault", object{"delay": object{"fixed_delay": "100ms", "percentage": 100}, "abort": object{"status": 504, "percentage": 100}}),
	)
	for path, want := range map[string]int{"/": 503, "/teapot": 418, "/default": 503, "/never": 200, "/both": 504} {
		got := ask(t, client(t), "GET", url+path, "")
		if got.status != want || (path == "/both" && got.took < 100*time.Millisecond) {
			t.Errorf("%s: %d after %v, want %d", path, got.status, got.took, want)
		}
	}
	c, aborted := client(t), 0
	for range 100 {
		if ask(t, c, "GET", url+"/half", "").status == 418 {
			aborted++
		}
	}
	// 20 and 80 are six standard deviations from the mean.
	if aborted < 20 || aborted > 80 {
		t.Errorf("of 100 requests at 50 percent %d were aborted", aborted)
	}
}

func TestFaultChoosesRequests(t *testing.T) {
	t.Parallel()
	config := func(more object) object {
		return object{"abort": object{"status": 418, "percentage": 100}}.with(more)
	}
	url := filtered(t, list{filterOf("fault", config(object{"headers": list{
		object{"name": "end-user", "value": "jason"},
		object{"name": "version", "value": "v[0-9]+", "regex": true},
	}}))},
		own("/cluster", "fault", config(object{"upstream_cluster": "app"})),
		own("/another", "fault", config(object{"upstream_cluster": "other"})),
	)
	for _, c := range []struct {
		name, path string
		fields     []string
		want       int
	}{
		{"both fields", "/", []string{"End-User: jason", "Version: v12"}, 418},
		{"one of them", "/", []string{"End-User: jason"}, 200},
		{"another value", "/", []string{"End-User: sonja", "Version: v12"}, 200},
		{"a value that only begins so", "/", []string{"End-User: jason", "Version: v12beta"}, 200},
		{"the cluster", "/cluster", nil, 418},
		{"another cluster", "/another", nil, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ask(t, client(t), "GET", url+c.path, "", c.fields...); got.status != c.want {
				t.Errorf("%d, want %d", got.status, c.want)
			}
		})
	}
}

func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	url := filtered(t, list{filterOf("payload_limit", object{"max_entity_size": 100})},
		own("/status", "payload_limit", object{"max_entity_size": 10, "http_status": 509}),
		own("/large", "payload_limit", object{"max_entity_size": 200_000}),
		own("/none", "payload_limit", object{"max_entity_size": 0}),
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
		content := strings.Repeat("x", c.size)
		if got := ask(t, client(t), "POST", url+c.path, content); got.status != c.want {
			t.Errorf("%s with %d bytes: %d, want %d", c.path, c.size, got.status, c.want)
		}
		got, err := inChunks(t, url+c.path, content)
		if err != nil || got.status != c.want {
			t.Errorf("%s with %d bytes in chunks: %d, %v; want %d", c.path, c.size, got.status, err, c.want)
		}
	}
}

// inChunks posts content without a Content-Length.
func inChunks(t *testing.T, url, content string) (answer, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, struct{ io.Reader }{strings.NewReader(content)})
	if err != nil {
		t.Fatal(err)
	}
	response, err := client(t).Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, body: string(body)}, err
}

func TestHeaderMutation(t *testing.T) {
	t.Parallel()
	field := func(key, value string) object { return object{"header": object{"key": key, "value": value}} }
	url := filtered(t, list{filterOf("header_mutation", object{
		"request_headers_to_add": list{
			field("X-Caller", "%downstream_remote_ip% %method%"),
			field("X-There", "replaced").with(object{"append": false}),
			field("X-More", "added"),
		},
		"request_headers_to_remove":  list{"X-Secret"},
		"response_headers_to_add":    list{field("X-Status", "%response_code%"), field("X-Twice", "second").with(object{"append": true})},
		"response_headers_to_remove": list{"x-app"},
	})},
		own("/own", "header_mutation", object{"request_headers_to_add": list{field("X-Own", "yes")}}),
		own("/none", "header_mutation", object{}),
	)
	got := ask(t, client(t), "GET", url+"/", "", "X-There: before", "X-More: before", "X-Secret: s")
	for _, want := range []string{"X-Caller: 127.0.0.1 GET\r\n", "X-There: replaced\r\n", "X-More: before\r\nX-More: added\r\n"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the application did not get %q:\n%s", want, got.body)
		}
	}
	if strings.Contains(got.body, "X-There: before") || strings.Contains(got.body, "X-Secret") {
		t.Errorf("the application got\n%s", got.body)
	}
	if h := got.header; h.Get("X-Status") != "200" || h.Get("X-App") != "" {
		t.Errorf("the caller got %v", h)
	}
	got = ask(t, client(t), "GET", url+"/own", "", "X-Secret: s")
	if !strings.Contains(got.body, "X-Own: yes\r\n") || strings.Contains(got.body, "X-Caller") || !strings.Contains(got.body, "X-Secret") || len(got.header["X-App"]) != 2 {
		t.Errorf("on a route with settings of its own: %v\n%s", got.header, got.body)
	}
	if got := ask(t, client(t), "GET", url+"/none", ""); strings.Contains(got.body, "X-Caller") || got.header.Get("X-Status") != "" {
		t.Errorf("on a route without any: %v\n%s", got.header, got.body)
	}
}

// TestFiltersRunInTheirOrder verifies that filters run in the configured order: a filter sees the
// changes of those before it.
func TestFiltersRunInTheirOrder(t *testing.T) {
	t.Parallel()
	mutation := filterOf("header_mutation", object{
		"request_headers_to_add":  list{object{"header": object{"key": "x-fail", "value": "yes"}}},
		"response_headers_to_add": list{object{"header": object{"key": "x-mutated", "value": "yes"}}},
	})
	fault := filterOf("fault", object{"abort": object{"status": 418, "percentage": 100}, "headers": list{object{"name": "x-fail", "value": "yes"}}})
	if got := ask(t, client(t), "GET", filtered(t, list{mutation, fault}), ""); got.status != 418 || got.header.Get("X-Mutated") != "yes" {
		t.Errorf("the mutation first: %d %v", got.status, got.header)
	}
	if got := ask(t, client(t), "GET", filtered(t, list{fault, mutation}), ""); got.status != 200 {
		t.Errorf("the fault first: %d", got.status)
	}
}

// TestNamedChainsOfFilters verifies the older form, a top-level list of filters with the name of
// the listener.
func TestNamedChainsOfFilters(t *testing.T) {
	t.Parallel()
	s, front := simple("127.0.0.1:1")
	s.more = object{"stream_filters": list{object{"name": "front", "stream_filters": list{
		filterOf("fault", object{"abort": object{"status": 418, "percentage": 100}})}}}}
	run(t, s.config())
	if got := ask(t, client(t), "GET", "http://"+front, ""); got.status != 418 {
		t.Errorf("%d, want 418", got.status)
	}
}
