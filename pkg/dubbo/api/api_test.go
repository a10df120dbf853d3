package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/dubbo/api"
)

// testAPI is an API server with a fake Discovery.
type testAPI struct {
	t      *testing.T
	url    string
	client *http.Client

	mu    sync.Mutex
	calls []string // guarded by mu; the recorded calls, as "publish {…}"
	opErr error    // guarded by mu; the error that calls return
	count []string // guarded by mu
}

func (a *testAPI) endpoint(name string) api.Operation {
	return func(_ context.Context, r dubbo.Request) error {
		text, err := json.Marshal(r)
		if err != nil {
			a.t.Error(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls = append(a.calls, name+" "+string(text))
		return a.opErr
	}
}

// startAPI starts an API server on a loopback port, or as change configures it.
func startAPI(t *testing.T, change func(*api.Options)) *testAPI {
	t.Helper()
	a := &testAPI{t: t, client: &http.Client{Transport: &http.Transport{}}}
	o := api.Options{
		Address: "127.0.0.1:0",
		Publish: a.endpoint("publish"), Unpublish: a.endpoint("unpublish"), Subscribe: a.endpoint("subscribe"), Unsubscribe: a.endpoint("unsubscribe"),
		Services: func() dubbo.Status {
			return dubbo.Status{
				Published:  []dubbo.PublishedStatus{{Key: "g/com.example.A:1.0", URL: "dubbo://10.0.0.1:1/com.example.A"}, {Key: "com.example.B"}},
				Subscribed: []dubbo.ReferenceStatus{{Key: "com.example.B"}, {Key: "com.example.C"}},
			}
		},
		Count: func(path string, o api.Result) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.count = append(a.count, fmt.Sprint(path, " ", o))
		},
	}
	if change != nil {
		change(&o)
	}
	s, err := api.Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		a.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	a.url = "http://" + s.Addrs()[0].String()
	return a
}

// send sends a request with fields as "name: value", and returns the status and body of the
// response.
func (a *testAPI) send(method, path, body string, fields ...string) (int, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	resp, err := a.client.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

const (
	asJSON    = "Content-Type: application/json"
	asForm    = "Content-Type: application/x-www-form-urlencoded"
	validBody = `{"registry":{"type":"zookeeper","addr":"127.0.0.1:2181"},"service":{"interface":"com.example.User","methods":["GetUser"]}}`
)

func TestResponsesOfCalls(t *testing.T) {
	a := startAPI(t, nil)
	for path, want := range map[string][2]string{
		"/pub":   {"publish", "publish success"},
		"/unpub": {"unpublish", "unpub success"},
		"/sub":   {"subscribe", "subscribe success"},
		"/unsub": {"unsubscribe", "unsubscribe success"},
	} {
		status, body := a.send("POST", path, validBody, asJSON)
		if text := `{"err_no":0,"err_msg":"` + want[1] + `"}`; status != 200 || body != text {
			t.Errorf("POST %s = %d %s, want 200 %s", path, status, body, text)
		}
		if last := a.calls[len(a.calls)-1]; last != want[0]+" "+validBody {
			t.Errorf("POST %s calls %s, want %s", path, last, want[0]+" "+validBody)
		}
	}
	slices.Sort(a.count)
	if diff := cmp.Diff([]string{"/pub 0", "/sub 0", "/unpub 0", "/unsub 0"}, a.count); diff != "" {
		t.Error(diff)
	}
}

func TestStrictStatus(t *testing.T) {
	tests := []struct {
		name   string
		fails  error
		status int
		text   string
	}{
		{"invalid field", &dubbo.FieldError{Field: "service.port", Reason: "no port"}, 400, "service.port: no port"},
		{"not found", fmt.Errorf("com.example.User: %w", dubbo.ErrNotFound), 404, "publish fail, err: com.example.User: not published or subscribed"},
		{"pending", fmt.Errorf("no connection: %w", dubbo.ErrPending), 503, "publish fail, err: no connection: pending: Weft performs the request when the registry is available"},
		{"timeout", context.DeadlineExceeded, 504, "publish fail, err: context deadline exceeded"},
		{"rejected by the registry", errors.New("no auth"), 502, "publish fail, err: no auth"},
	}
	for _, strict := range []bool{false, true} {
		a := startAPI(t, func(o *api.Options) { o.StrictStatus = strict })
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, strict %t", tt.name, strict), func(t *testing.T) {
				a.opErr = tt.fails
				want := tt.status
				if !strict {
					want = 200
				}
				status, body := a.send("POST", "/pub", validBody, asJSON)
				if text := `{"err_no":1,"err_msg":"` + tt.text + `"}`; status != want || body != text {
					t.Errorf("POST /pub = %d %s, want %d %s", status, body, want, text)
				}
			})
		}
	}
}

func TestBodyFormats(t *testing.T) {
	a := startAPI(t, nil)
	const fullBody = `{"registry":{"type":"zookeeper","addr":"a:1","username":"u","password":"p"},` +
		`"service":{"interface":"com.example.User","methods":["a","b"],"group":"g","version":"1.0","name":"app","port":"20880","parameters":{"a.timeout":"5","weight":"200"}}}`
	tests := []struct{ name, path, body, contentType string }{
		{"JSON", "/pub", fullBody, asJSON},
		{"JSON with the content type of a form, as curl -d sends", "/pub", fullBody, asForm},
		{"JSON without a content type", "/pub", " " + fullBody, "X: y"},
		{"JSON with a charset", "/pub", fullBody, asJSON + "; charset=utf-8"},
		{"alias of parameters", "/pub", strings.Replace(fullBody, `"parameters"`, `"params"`, 1), asJSON},
		{"keys in another case", "/pub", strings.NewReplacer(`"interface"`, `"Interface"`, `"registry"`, `"Registry"`, `"addr"`, `"ADDR"`).Replace(fullBody), asJSON},
		{"unknown keys", "/pub", strings.Replace(fullBody, `"service":{`, `"more":[{}],"service":{"timeout":{"x":1},`, 1), asJSON},
		{"numbers for strings", "/pub", strings.NewReplacer(`"20880"`, `20880`, `"200"`, `200`, `"1.0"`, `1.0`).Replace(fullBody), asJSON},
		{"methods as one string", "/pub", strings.Replace(fullBody, `["a","b"]`, `"a, b"`, 1), asJSON},
		{
			"form", "/pub", "type=Zookeeper&addr=a:1&username=u&password=p&interface=com.example.User&methods=a&methods=b&group=g&version=1.0&name=app&port=20880" +
				"&parameters.weight=200&params.a.timeout=5&x=y", asForm,
		},
		{
			"form with full names", "/pub", "registry.type=zookeeper&registry.addr=a:1&Registry.UserName=u&registry.password=p&service.interface=com.example.User" +
				"&service.methods=a,b&service.group=g&service.version=1.0&service.name=app&service.port=20880&service.parameters.weight=200&Service.Parameters.a.timeout=5&other.x=y", asForm,
		},
		{
			"query", "/pub?Type=zookeeper&Addr=a:1&UserName=u&Password=p&Interface=com.example.User&Methods[]=a&Methods[]=b&Group=g&Version=1.0&Name=app&Port=20880" +
				"&parameters.weight=200&parameters.a.timeout=5", "", "X: y",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, body := a.send("POST", tt.path, tt.body, tt.contentType)
			if status != 200 || body != `{"err_no":0,"err_msg":"publish success"}` {
				t.Fatalf("POST %s = %d %s, want 200 and success", tt.path, status, body)
			}
			if diff := cmp.Diff("publish "+fullBody, a.calls[len(a.calls)-1]); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidBodies(t *testing.T) {
	a := startAPI(t, func(o *api.Options) { o.StrictStatus = true })
	tests := []struct {
		name, body, contentType string
		status                  int
		text                    string
	}{
		{"empty body", "", asJSON, 400, "the body is empty"},
		{"invalid JSON", `{"service": {]}`, asJSON, 400, "the body is not valid JSON: byte 14: invalid character ']' looking for beginning of object key string"},
		{"truncated JSON", `{"service": {`, asJSON, 400, "the body is not valid JSON: unexpected EOF"},
		{"two objects", `{} {}`, asJSON, 400, "the body is not valid JSON: unexpected data after the object"},
		{"list", `[]`, asJSON, 400, "the body: found a list, expected an object"},
		{"wrong type of a field", `{"service": {"interface": ["a"]}}`, asJSON, 400, "service.interface: found a list, expected a string"},
		{"wrong type of an object", `{"registry": "zookeeper"}`, asJSON, 400, `registry: found the string \"zookeeper\", expected an object`},
		{"wrong type of an element", `{"service": {"methods": ["a", {}]}}`, asJSON, 400, "service.methods[1]: found an object, expected a string"},
		{"null element", `{"service": {"methods": ["a", null]}}`, asJSON, 400, "service.methods[1]: found null, expected a string"},
		{"wrong type of methods", `{"service": {"methods": true}}`, asJSON, 400, "service.methods: found true, expected a list of strings"},
		{"wrong type of a parameter", `{"service": {"parameters": {"weight": [1]}}}`, asJSON, 400, "service.parameters.weight: found a list, expected a string"},
		{"wrong type of parameters", `{"service": {"parameters": [1]}}`, asJSON, 400, "service.parameters: found a list, expected an object"},
		{"invalid form", "a=%zz", asForm, 400, `the body is not a valid form: invalid URL escape \"%zz\"`},
		{"unsupported content type", "<a/>", "Content-Type: text/xml", 415, `Content-Type: found \"text/xml\", expected application/json or application/x-www-form-urlencoded`},
		{"body too large", validBody + strings.Repeat(" ", 256<<10), asJSON, 413, "the body has more than 262144 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, body := a.send("POST", "/sub", tt.body, tt.contentType)
			if text := `{"err_no":1,"err_msg":"` + tt.text + `"}`; status != tt.status || body != text {
				t.Errorf("POST /sub = %d %s, want %d %s", status, body, tt.status, text)
			}
		})
	}
	if len(a.calls) > 0 {
		t.Errorf("operations that ran: %q, want none", a.calls)
	}
	if slices.ContainsFunc(a.count, func(s string) bool { return s != "/sub 1" }) || len(a.count) != len(tests) {
		t.Errorf("counted %q, want \"/sub 1\" for each of %d calls", a.count, len(tests))
	}
}

func TestAccessControl(t *testing.T) {
	unguarded := startAPI(t, nil)
	guarded := startAPI(t, func(o *api.Options) { o.Token = "secret" })
	tests := []struct {
		name   string
		port   *testAPI
		fields []string
		status int
	}{
		{"address", unguarded, nil, 200},
		{"localhost", unguarded, []string{"Host: LocalHost:22222"}, 200},
		{"IPv6 address", unguarded, []string{"Host: [::1]:22222"}, 200},
		{"foreign host name (DNS rebinding)", unguarded, []string{"Host: attacker.example"}, 403},
		{"foreign address", unguarded, []string{"Host: 10.0.0.1:22222"}, 403},
		{"web page", unguarded, []string{"Origin: http://127.0.0.1:22222"}, 403},
		{"sandboxed page", unguarded, []string{"Origin: null"}, 403},
		{"image on a page", unguarded, []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"entered address", unguarded, []string{"Sec-Fetch-Site: none"}, 200},
		{"token", guarded, []string{"Authorization: Bearer secret"}, 200},
		{"scheme in lower case", guarded, []string{"Authorization: bearer  secret"}, 200},
		{"missing token", guarded, nil, 401},
		{"wrong token", guarded, []string{"Authorization: Bearer secre"}, 401},
		{"wrong scheme", guarded, []string{"Authorization: Basic secret"}, 401},
		{"empty token", guarded, []string{"Authorization: Bearer "}, 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			callsBefore := len(tt.port.calls)
			if status, body := tt.port.send("POST", "/pub", validBody, append(tt.fields, asJSON)...); status != tt.status || (status != 200) != strings.Contains(body, `"err_no":1`) {
				t.Errorf("POST /pub = %d %s, want %d", status, body, tt.status)
			}
			if status, body := tt.port.send("GET", "/services", "", tt.fields...); status != tt.status {
				t.Errorf("GET /services = %d %s, want %d", status, body, tt.status)
			}
			if calls := len(tt.port.calls) - callsBefore; (calls == 1) != (tt.status == 200) {
				t.Errorf("%d operations ran, want one only if the status is 200", calls)
			}
		})
	}
}

func TestServices(t *testing.T) {
	a := startAPI(t, nil)
	tests := []struct {
		path   string
		status int
		keys   string
	}{
		{"/services", 200, "g/com.example.A:1.0 com.example.B | com.example.B com.example.C"},
		{"/services/com.example.B", 200, "com.example.B | com.example.B"},
		{"/services/g/com.example.A:1.0", 200, "g/com.example.A:1.0 | "},
		{"/services/g%2Fcom.example.A%3A1.0", 200, "g/com.example.A:1.0 | "},
		{"/services/com.example.D", 404, " | "},
	}
	for _, tt := range tests {
		status, body := a.send("GET", tt.path, "")
		var s dubbo.Status
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		var published, subscribed []string
		for i := range s.Published {
			published = append(published, s.Published[i].Key)
		}
		for i := range s.Subscribed {
			subscribed = append(subscribed, s.Subscribed[i].Key)
		}
		if keys := strings.Join(published, " ") + " | " + strings.Join(subscribed, " "); status != tt.status || keys != tt.keys {
			t.Errorf("GET %s = %d %s, want %d %s", tt.path, status, keys, tt.status, tt.keys)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	a := startAPI(t, nil)
	for _, tt := range []struct {
		method, path string
		status       int
	}{{"GET", "/pub", 405}, {"POST", "/services", 405}, {"DELETE", "/unsub", 405}, {"GET", "/", 404}} {
		if status, body := a.send(tt.method, tt.path, ""); status != tt.status || !strings.HasPrefix(body, `{"err_no":1,`) {
			t.Errorf("%s %s = %d %s, want %d", tt.method, tt.path, status, body, tt.status)
		}
	}
}

func TestSocketPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	// A process that was killed leaves its socket file.
	staleSocket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	staleSocket.SetUnlinkOnClose(false)
	_ = staleSocket.Close() // its file stays
	a := startAPI(t, func(o *api.Options) { o.Address, o.Socket = "", path })
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v, want 0600", info.Mode(), err)
	}
	a.url = "http://anything.example"
	a.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	if status, body := a.send("POST", "/pub", validBody, asJSON); status != 200 || !strings.Contains(body, "publish success") {
		t.Errorf("POST /pub = %d %s, want 200 and success", status, body)
	}
	if _, err := api.Listen(t.Context(), api.Options{Socket: path}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Listen on an address in use = %v, want \"address already in use\"", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(t.Context(), api.Options{Address: "127.0.0.1:0", Socket: file}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("Listen at a file = %v, want \"not a socket\"", err)
	}
}

// TestShutdownEndsCalls verifies that calls in flight get their response when the server
// stops.
func TestShutdownEndsCalls(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	s, err := api.Listen(t.Context(), api.Options{Address: "127.0.0.1:0", Publish: func(context.Context, dubbo.Request) error {
		close(started)
		<-release
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	responses := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	go func() {
		resp, err := client.Post("http://"+s.Addrs()[0].String()+"/pub", "application/json", strings.NewReader(validBody))
		if err != nil {
			responses <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		responses <- string(text)
	}()
	<-started
	cancel()
	close(release)
	if got := <-responses; !strings.Contains(got, "publish success") {
		t.Errorf("the response is %s, want success", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close after Run = %v, want nil", err)
	}
}

// BenchmarkCall measures the cost of a call without that of the operation.
func BenchmarkCall(b *testing.B) {
	s, err := api.Listen(b.Context(), api.Options{Address: "127.0.0.1:0", Token: "t0ken", Publish: func(context.Context, dubbo.Request) error { return nil }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{}}
	url := "http://" + s.Addrs()[0].String() + "/pub"
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(validBody))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer t0ken")
		resp, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), "success") {
			b.Fatalf("%s, %v, want success", text, err)
		}
		_ = resp.Body.Close() // already read
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
