package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// accessLog runs traffic through a listener with two access logs, text and JSON, and returns their
// lines after Weft has exited.
func accessLog(t *testing.T, format string, fields object, traffic func(front string, app *origin)) (text []string, objects []map[string]any) {
	t.Helper()
	dir := t.TempDir()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Response", "response body")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "twelve bytes")
	})
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front, object{"access_logs": list{
			object{"log_path": filepath.Join(dir, "text"), "log_format": format},
			object{"log_path": filepath.Join(dir, "json"), "json_format": fields},
		}})},
		tables: list{routeTable("front",
			object{"name": "direct", "match": object{"prefix": "/direct"}, "direct_response": object{"status": 418, "body": "tea"}},
			routeTo("/dead", "dead"),
			routeTo("/old/", "app", object{"prefix_rewrite": "/new/"}).with(object{"name": "moved"}),
		)},
		clusters: list{cluster("app", nil, app.address), cluster("dead", nil, "127.0.0.1:1")},
	}.config())
	traffic(front, app)
	w.signal(sigterm)
	w.awaitExit(waitTimeout)
	text = rotatedLines(t, filepath.Join(dir, "text"))[0]
	for _, line := range rotatedLines(t, filepath.Join(dir, "json"))[0] {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		objects = append(objects, o)
	}
	return text, objects
}

func TestAccessLogFields(t *testing.T) {
	t.Parallel()
	names := []string{
		"protocol", "version", "listener", "method", "scheme", "authority", "path", "original_path", "request_uri", "query",
		"request_arg_b", "request_header_x-id", "cookie_session", "downstream_local_address", "downstream_remote_ip",
		"bytes_received", "bytes_sent", "route", "upstream_cluster", "upstream_host", "attempts",
		"response_code", "response_flag", "response_reason", "response_header_x-response",
	}
	fields := object{"start": "%start_time%", "duration": "%duration%", "sentence": "%method% of %response_code%"}
	for _, name := range names {
		fields[name] = "%" + name + "%"
	}
	format := "%" + strings.Join(names, "%|%") + "%|"
	var front, host string
	startTime := time.Now()
	text, objects := accessLog(t, format, fields, func(address string, app *origin) {
		front, host = address, app.address
		sendRequest(t, newClient(t), "POST", "http://"+front+"/old/thing?a=1&b=two", "content", "Host: shop.example", "X-Id: 7", "Cookie: a=b; session=s1")
	})
	want := map[string]string{
		"protocol": "Http1", "version": "HTTP/1.1", "listener": "front", "method": "POST", "scheme": "http", "authority": "shop.example",
		"path": "/new/thing", "original_path": "/old/thing", "request_uri": "/old/thing?a=1&b=two", "query": "a=1&b=two",
		"request_arg_b": "two", "request_header_x-id": "7", "cookie_session": "s1", "downstream_local_address": front, "downstream_remote_ip": "127.0.0.1",
		"bytes_received": "7", "bytes_sent": "12", "route": "moved", "upstream_cluster": "app", "upstream_host": host, "attempts": "1",
		"response_code": "202", "response_flag": "-", "response_reason": "-", "response_header_x-response": "response body",
	}
	numbers := map[string]bool{"bytes_received": true, "bytes_sent": true, "attempts": true, "response_code": true}
	if len(text) != 1 || len(objects) != 1 {
		t.Fatalf("%d text lines and %d JSON lines for one request; want one each", len(text), len(objects))
	}
	values := strings.Split(text[0], "|")
	for i, name := range names {
		if values[i] != want[name] {
			t.Errorf("text: %s is %q, want %q", name, values[i], want[name])
		}
		encoded, _ := json.Marshal(objects[0][name])
		expected, _ := json.Marshal(want[name])
		switch {
		case want[name] == "-":
			expected = []byte("null")
		case numbers[name]:
			expected = []byte(want[name])
		}
		if string(encoded) != string(expected) {
			t.Errorf("JSON: %s is %s, want %s", name, encoded, expected)
		}
	}
	if got := objects[0]["sentence"]; got != "POST of 202" {
		t.Errorf("JSON: the value with surrounding text is %v, want \"POST of 202\"", got)
	}
	start, err := time.ParseInLocation("2006/01/02 15:04:05.000", objects[0]["start"].(string), time.Local)
	if err != nil || start.Before(startTime.Add(-time.Second)) || start.After(time.Now()) {
		t.Errorf("start_time is %v, %v; want the time of the request", objects[0]["start"], err)
	}
}

func TestAccessLogLocalReplyReason(t *testing.T) {
	t.Parallel()
	text, _ := accessLog(t, "%path% %response_code% %response_flag% %response_reason% %route% %upstream_host% %bytes_sent%", object{"a": "b"}, func(front string, _ *origin) {
		c := newClient(t)
		for _, path := range []string{"/direct", "/dead", "/none"} {
			sendRequest(t, c, "GET", "http://"+front+path, "")
		}
		dialRaw(t, front).send("BROKEN\n\n").readToEnd()
	})
	want := []string{
		`^/direct 418 - - direct - 3$`,
		`^/dead 502 UF connect_failure \S+ 127\.0\.0\.1:1 \d+$`,
		`^/none 404 NR no_route - - \d+$`,
		`^- 400 DPE malformed_request - - \d+$`,
	}
	if len(text) != len(want) {
		t.Fatalf("lines %q, want %d", text, len(want))
	}
	// A line is written after the response, so the lines of two connections are in any order.
	for _, pattern := range want {
		if !slices.ContainsFunc(text, regexp.MustCompile(pattern).MatchString) {
			t.Errorf("no line matches %s: %q", pattern, text)
		}
	}
}

// TestAccessLogEscapesRequestData verifies that data of a request cannot end a line or a value of
// the log.
func TestAccessLogEscapesRequestData(t *testing.T) {
	t.Parallel()
	const evil = `"},{"admin":"yes" \ %method% ` + "\t\x01\x7f\xff" + ` é`
	text, objects := accessLog(t, "[%request_header_x-evil%]", object{"evil": "%request_header_x-evil%", "with": "<%request_header_x-evil%>"}, func(front string, _ *origin) {
		c := dialRaw(t, front)
		// net/http does not send some of these bytes, and Weft may reject them too.
		c.send("GET /direct HTTP/1.1\nHost: a\nX-Evil: " + strings.NewReplacer("\x01", "", "\x7f", "").Replace(evil) + "\n\n").readResponse("GET")
		dialRaw(t, front).send("GET /direct?\x01 HTTP/1.1\nHost: a\nX-Evil: " + evil + "\n\n").readToEnd()
	})
	if len(text) != 2 || len(objects) != 2 {
		t.Fatalf("lines %q, objects %v; want two of each", text, objects)
	}
	for _, o := range objects {
		if len(o) != 2 || o["admin"] != nil {
			t.Errorf("the JSON object has the members %v, want two without admin", o)
		}
	}
	// The lines of two connections are in any order, and only the request that was parsed has the
	// header.
	value := objects[0]["evil"]
	if value == nil {
		value = objects[1]["evil"]
	}
	if got, _ := value.(string); !strings.HasPrefix(got, `"},{"admin":"yes" \ %method%`) || !strings.HasSuffix(got, "é") {
		t.Errorf("the value is %q, want the escaped data", got)
	}
}

// TestAccessLogDefaultLine verifies the line of an access log without a format.
func TestAccessLogDefaultLine(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("hello"))
	s, front := simpleProxy(app.address)
	s.listeners = list{httpListener("front", front, object{"access_logs": list{object{}}})}
	w := startWeft(t, s.config())
	from := w.stdout.Len()
	sendRequest(t, newClient(t), "POST", "http://"+front+"/", "abc")
	line := w.stdout.await(t, from, "\n")
	want := `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d) 127\.0\.0\.1:\d+ POST ` + regexp.QuoteMeta(front) + ` / HTTP/1\.1 200 - 3 5 \d+\.\d{3} \S+ ` +
		regexp.QuoteMeta(app.address) + ` \S+$`
	if !regexp.MustCompile(want).MatchString(line) {
		t.Errorf("line %q does not match %s", line, want)
	}
}
