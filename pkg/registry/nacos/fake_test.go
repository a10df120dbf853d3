package nacos_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
)

// fakeServer is a server that responds like Nacos 2.1.1, or incorrectly if a test requires it. The
// same contract tests run against a real server.
type fakeServer struct {
	*httptest.Server
	t *testing.T

	mu         *sync.Mutex
	services   map[string]map[string]map[string]any // guarded by mu; instances by address, by service
	requests   map[string]int                       // guarded by mu; number of requests by method and path
	configs    map[string]string                    // guarded by mu; texts by group and name
	ignoresCAS bool                                 // guarded by mu; ignores Casmd5, like Nacos before 2.2
	token      string                               // guarded by mu; "": no login required
	logins     int                                  // guarded by mu
	interrupt  func(w http.ResponseWriter, r *http.Request) bool
}

func newFakeServer(t *testing.T) *fakeServer {
	f := &fakeServer{t: t, mu: &sync.Mutex{}, services: map[string]map[string]map[string]any{}, configs: map[string]string{}, requests: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeServer) address() string { return strings.TrimPrefix(f.URL, "http://") }

// update modifies the server under its lock.
func (f *fakeServer) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// respondWith makes the server respond to requests of a path with a status and a text; the path ""
// restores normal responses.
func (f *fakeServer) respondWith(path string, status int, text string) {
	f.update(func() {
		f.interrupt = func(w http.ResponseWriter, r *http.Request) bool {
			if path == "" || r.URL.Path != path {
				return false
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text)) // the client may have disconnected
			return true
		}
	})
}

func (f *fakeServer) requestCount(request string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[request]
}

func (f *fakeServer) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests[r.Method+" "+r.URL.Path]++
	if f.interrupt != nil && f.interrupt(w, r) {
		return
	}
	if r.URL.Path == "/nacos/v1/auth/login" {
		f.logins++
		if r.FormValue("username") != "u" || r.FormValue("password") != "p" {
			http.Error(w, "unknown user!", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"accessToken":%q,"tokenTtl":18000,"globalAdmin":true}`, f.token)
		return
	}
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		http.Error(w, "token expired!", http.StatusForbidden)
		return
	}
	service, address := r.FormValue("serviceName"), r.FormValue("ip")+":"+r.FormValue("port")
	if _, suffix, hasGroup := strings.Cut(service, "@@"); hasGroup {
		service = suffix
	}
	if strings.HasPrefix(r.URL.Path, "/nacos/v1/cs/") {
		f.serveConfig(w, r)
		return
	}
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/nacos/v1/") {
	case "POST ns/instance":
		var metadata map[string]string
		if err := json.Unmarshal([]byte(r.FormValue("metadata")), &metadata); err != nil {
			f.t.Errorf("the metadata %q: %v", r.FormValue("metadata"), err)
		}
		f.put(service, r.FormValue("ip"), r.FormValue("port"), metadata)
		fmt.Fprint(w, "ok")
	case "DELETE ns/instance":
		delete(f.services[service], address)
		fmt.Fprint(w, "ok")
	case "PUT ns/instance/beat":
		code := 10200
		if f.services[service][address] == nil {
			code = 20404
		}
		fmt.Fprintf(w, `{"clientBeatInterval":5000,"code":%d,"lightBeatEnabled":true}`, code)
	case "GET ns/instance/list":
		hosts := []map[string]any{}
		for _, address := range slices.Sorted(maps.Keys(f.services[service])) {
			hosts = append(hosts, f.services[service][address])
		}
		f.write(w, map[string]any{"name": "DEFAULT_GROUP@@" + service, "cacheMillis": 10000, "hosts": hosts})
	case "GET ns/service/list":
		f.write(w, map[string]any{"count": len(f.services), "doms": slices.Sorted(maps.Keys(f.services))})
	default:
		http.Error(w, "not found", http.StatusNotImplemented)
	}
}

// put adds an instance. The caller holds mu.
func (f *fakeServer) put(service, ip, port string, metadata map[string]string) {
	n, err := strconv.Atoi(port)
	if err != nil {
		f.t.Errorf("the port %q: %v", port, err)
	}
	if f.services[service] == nil {
		f.services[service] = map[string]map[string]any{}
	}
	f.services[service][ip+":"+port] = map[string]any{
		"instanceId": ip + "#" + port, "ip": ip, "port": n, "weight": 1.0, "healthy": true, "enabled": true, "metadata": metadata,
	}
}

func (f *fakeServer) write(w http.ResponseWriter, resp any) {
	if err := json.NewEncoder(w).Encode(resp); err != nil {
		f.t.Error(err)
	}
}

const greeterList = "providers:com.example.Greeter::"

func greeter() registry.Service { return registry.Service{Interface: "com.example.Greeter"} }
