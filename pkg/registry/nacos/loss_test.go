package nacos_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/nacos"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
)

func TestContractWithFakeServer(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, registrytest.Fixture{
		Open:    nacos.New,
		Options: func(t *testing.T) registry.Options { return registry.Options{Address: newFakeServer(t).address()} },
	})
}

func TestFailover(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fail func(*fakeServer)
	}{
		{"server stopped", func(server *fakeServer) { server.CloseClientConnections(); server.Listener.Close() }},
		{"status 503", func(server *fakeServer) {
			server.respondWith("/nacos/v1/ns/instance/list", http.StatusServiceUnavailable, "server is DOWN")
		}},
		{"status 500", func(server *fakeServer) {
			server.respondWith("/nacos/v1/ns/instance/list", http.StatusInternalServerError, "caused: null")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first, second := newFakeServer(t), newFakeServer(t)
			second.services, second.mu = first.services, first.mu // a cluster
			session := open(t, registry.Options{Address: first.address() + "," + second.address()})
			session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
			sub := session.NewSubscriber(greeter())
			sub.Await("the provider", registrytest.At("10.0.0.1:1"))
			tt.fail(first)
			second.update(func() {
				second.put(greeterList, "10.0.0.2", "1", map[string]string{"protocol": "dubbo", "interface": "com.example.Greeter"})
			})
			sub.Await("the other provider", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
			if s := session.State(); !s.Connected || s.SessionCount != 1 {
				t.Errorf("the state is %+v, want one session", s)
			}
		})
	}
}

func TestForgottenInstanceIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t)
	session := open(t, registry.Options{Address: server.address(), SessionTimeout: 3 * time.Second})
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	session.MustRegister(registrytest.Provider(t, "com.example.Other", "10.0.0.1:1"))
	server.update(func() { clear(server.services) })
	session.Await("another session", func(s registry.State) bool { return s.Connected && s.SessionCount == 2 })
	sub := session.NewSubscriber(greeter())
	sub.Await("the provider", registrytest.At("10.0.0.1:1"))
	session.NewSubscriber(registry.Service{Interface: "com.example.Other"}).Await("the provider", registrytest.At("10.0.0.1:1"))
	if s := session.State(); s.SessionCount != 2 {
		t.Errorf("%d sessions, want 2: instances lost together count as one loss", s.SessionCount)
	}
}

func TestInvalidResponsesChangeNothing(t *testing.T) {
	t.Parallel()
	const list, names, listener = "/nacos/v1/ns/instance/list", "/nacos/v1/ns/service/list", "/nacos/v1/cs/configs/listener"
	for _, tt := range []struct {
		name, path string
		status     int
		text       string
	}{
		{"not JSON", list, 200, "<html>"},
		{"truncated", list, 200, `{"hosts":[{"ip":"10.0.0.9"`},
		{"no hosts", list, 200, `{"name":"x"}`},
		{"invalid hosts", list, 200, `{"hosts":{}}`},
		{"invalid instances", list, 200, `{"hosts":[{"ip":"10.0.0.9","port":70000},{"port":1},{"ip":7}]}`},
		{"too large", list, 200, `{"hosts":[` + strings.Repeat(" ", 17<<20) + `]}`},
		{"status 403", list, 403, "no right"},
		{"redirect", list, 302, ""},
		{"service list without count", names, 200, `{"doms":[]}`},
		{"service list with status 500", names, 500, `{"count":0}`},
		{"invalid list of configurations", listener, 200, "x%"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newFakeServer(t)
			session := open(t, registry.Options{Address: server.address()})
			session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
			sub := session.NewSubscriber(greeter())
			sub.Await("the provider", registrytest.At("10.0.0.1:1"))
			server.respondWith(tt.path, tt.status, tt.text)
			method := http.MethodGet
			if tt.path == listener {
				method = http.MethodPost
			}
			server.await(method+" "+tt.path, 3)
			sub.Never("while the responses are invalid", registrytest.Any)
			server.update(func() {
				server.interrupt = nil
				server.put(greeterList, "10.0.0.2", "1", map[string]string{"protocol": "dubbo", "interface": "com.example.Greeter"})
			})
			sub.Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
		})
	}
}

// await waits until the server has received n further requests with this method and path.
func (f *fakeServer) await(request string, n int) {
	f.t.Helper()
	deadline, ticker := time.After(registrytest.Timeout), time.NewTicker(10*time.Millisecond)
	defer ticker.Stop()
	for before := f.requestCount(request); f.requestCount(request) < before+n; {
		select {
		case <-ticker.C:
		case <-deadline:
			f.t.Fatalf("%s got %d requests, want %d", request, f.requestCount(request)-before, n)
		}
	}
}

func TestRejectedTokenIsReplaced(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t)
	server.token = "first"
	session := open(t, registry.Options{Address: server.address(), Username: "u", Password: "p"})
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	server.update(func() { server.token = "second" })
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.2:1"))
	session.NewSubscriber(greeter()).Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	server.update(func() {
		if server.logins != 2 {
			t.Errorf("%d logins, want 2: the requests share a token", server.logins)
		}
	})
	if s := session.State(); !s.Connected || s.SessionCount != 1 {
		t.Errorf("the state is %+v, want one session", s)
	}
}

func TestRejectedPasswordIsReported(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t)
	server.token = "t"
	session := open(t, registry.Options{Address: server.address(), Username: "u", Password: "secret"})
	ctx, cancel := context.WithTimeout(t.Context(), registrytest.Timeout)
	defer cancel()
	err := session.Register(ctx, registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	if err == nil || !strings.Contains(err.Error(), "unknown user!") || strings.Contains(err.Error(), "secret") {
		t.Errorf("Register = %v, want the error of the server without the password", err)
	}
	if s := session.State(); s.Connected || !strings.Contains(s.LastError, "unknown user!") {
		t.Errorf("state = %+v, want disconnected with the error of the server", s)
	}
}

func TestRegistrationsWaitForServer(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t)
	server.respondWith("/nacos/v1/ns/instance", http.StatusServiceUnavailable, "starting")
	session := open(t, registry.Options{Address: server.address()})
	done := make(chan error, 1)
	go func() {
		done <- session.Register(t.Context(), registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	}()
	server.await("POST /nacos/v1/ns/instance", 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := session.Register(ctx, registrytest.Provider(t, "com.example.Greeter", "10.0.0.2:1")); err == nil {
		t.Error("Register succeeded although the server responds with 503")
	}
	server.respondWith("", 0, "")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	session.NewSubscriber(greeter()).Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
}

func TestCloseDoesNotWaitForFrozenServer(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t)
	session := open(t, registry.Options{Address: server.address()})
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	server.update(func() {
		server.interrupt = func(http.ResponseWriter, *http.Request) bool { <-release; return true }
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	session.Close(ctx)
	if s := session.State(); s.Connected {
		t.Errorf("state after Close = %+v, want disconnected", s)
	}
}

func TestOperatorChangesApply(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t)
	session := open(t, registry.Options{Address: server.address()})
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.2:1", "weight=50"))
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.3:1"))
	sub := session.NewSubscriber(greeter())
	sub.Await("all providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"))
	server.update(func() {
		instances := server.services[greeterList]
		instances["10.0.0.1:1"]["enabled"] = false
		instances["10.0.0.2:1"]["weight"] = 0.5
		instances["10.0.0.3:1"]["healthy"] = false
	})
	snap := sub.Await("the healthy providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
	slices.SortFunc(snap.Providers, func(a, b registry.URL) int { return strings.Compare(a.Host, b.Host) })
	if got := snap.Providers[0].Get("enabled"); got != "false" {
		t.Errorf("enabled=%q for an instance that is disabled in Nacos, want \"false\"", got)
	}
	if got := snap.Providers[1].Get("weight"); got != "25" {
		t.Errorf("weight=%q, want half of 50", got)
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		options registry.Options
		want    string
	}{
		{registry.Options{Address: ""}, "host:port"},
		{registry.Options{Address: "a:1,"}, "host:port"},
		{registry.Options{Address: "a:b:c"}, "too many colons"},
		{registry.Options{Address: "a:x"}, "host:port"},
		{registry.Options{Address: "u@a:1"}, "host:port"},
		{registry.Options{Address: "a:1/x?y"}, "not a valid path"},
		{registry.Options{Address: "a:1", Root: "a/b/c"}, "not a valid name"},
		{registry.Options{Address: "a:1", Root: "a b"}, "not a valid name"},
		{registry.Options{Address: "a:1", SessionTimeout: time.Second}, "session"},
	} {
		if _, err := nacos.New(tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want an error with %q", tt.options, err, tt.want)
		}
	}
}

func TestCloseUnregisters(t *testing.T) {
	server := newFakeServer(t)
	before := goleak.IgnoreCurrent()
	session := open(t, registry.Options{Address: server.address()})
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	session.NewSubscriber(greeter()).Await("the provider", registrytest.At("10.0.0.1:1"))
	session.CloseSession()
	server.update(func() {
		if n := len(server.services[greeterList]); n != 0 {
			t.Errorf("%d instances remain, want 0", n)
		}
	})
	goleak.VerifyNone(t, before)
}
