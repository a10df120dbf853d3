//go:build !race

// These tests use real servers, which start slowly and do not exercise races. Under the
// race detector, only the tests with the fake server run (fake_test.go).

package nacos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/nacos"
)

// post sends a POST request to the API and fails the test on an error.
func post(t *testing.T, s *server.Server, path string, form url.Values) {
	t.Helper()
	if err := sendRequest(t.Context(), s, http.MethodPost, path, form); err != nil {
		t.Fatal(err)
	}
}

func sendRequest(ctx context.Context, s *server.Server, method, path string, form url.Values) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Address()+"/nacos/v1"+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s, %s", method, path, resp.Status, body)
	}
	return err
}

func publish(t *testing.T, s *server.Server, id, group, content string) {
	t.Helper()
	post(t, s, "/cs/configs", url.Values{"dataId": {id}, "group": {group}, "content": {content}})
}

// TestServerRestart kills the server, and verifies that the session recovers when the server
// returns with its configurations but without its instances.
func TestServerRestart(t *testing.T) {
	s := server.Start(t, server.Options{})
	session := open(t, registry.Options{Address: s.Address(), SessionTimeout: 3 * time.Second})
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	sub := session.NewSubscriber(greeter())
	sub.Await("the provider", registrytest.At("10.0.0.1:1"))

	s.Kill()
	session.Await("disconnected", isDisconnected)
	sub.Never("while the server is unavailable", registrytest.Any)
	s.Restart()
	before := time.Now()
	session.Await("another session", func(st registry.State) bool { return st.Connected && st.SessionCount > 1 })
	open(t, registry.Options{Address: s.Address()}).NewSubscriber(greeter()).Await("the provider again", registrytest.At("10.0.0.1:1"))
	t.Logf("registered again %v after the restart", time.Since(before))

	s.Pause()
	session.Await("disconnected", isDisconnected)
	s.Resume()
	session.Await("connected", registrytest.Connected)
	session.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.2:1"))
	sub.Await("both providers", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
}

// testKilledProcess verifies that the providers of a process without heartbeats disappear after the
// session timeout.
func testKilledProcess(t *testing.T, s *server.Server) {
	sub := open(t, registry.Options{Address: s.Address()}).NewSubscriber(greeter())
	post(t, s, "/ns/instance", url.Values{
		"serviceName": {greeterList}, "ip": {"10.0.0.9"}, "port": {"1"}, "ephemeral": {"true"},
		"metadata": {`{"protocol":"dubbo","interface":"com.example.Greeter","preserved.heart.beat.interval":"500","preserved.heart.beat.timeout":"1000","preserved.ip.delete.timeout":"600000"}`},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			err := sendRequest(ctx, s, http.MethodPut, "/ns/instance/beat", url.Values{"serviceName": {"DEFAULT_GROUP@@" + greeterList}, "ip": {"10.0.0.9"}, "port": {"1"}})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	defer wg.Wait()
	defer cancel()
	sub.Await("the provider", registrytest.At("10.0.0.9:1"))
	cancel()
	sub.Await("no providers", registrytest.Empty)
}

// testConfigurations verifies that rules, mappings, instances of applications and metadata are read
// as Dubbo stores them in Nacos.
func testConfigurations(t *testing.T, s *server.Server) {
	session := open(t, registry.Options{Address: s.Address()})
	sub := session.NewSubscriber(registry.Service{Interface: "com.example.Greeter", Version: "1.0.0"})
	sub.Await("no providers", registrytest.Empty)

	const document = "configVersion: v2.7\nenabled: true\nconfigs: []\n# ü\n"
	publish(t, s, "com.example.Greeter:1.0.0:.configurators", "dubbo", document)
	snap := sub.Await("one rule", func(snap registry.Snapshot) bool { return len(snap.Configurators) == 1 })
	if u := snap.Configurators[0]; u.Protocol != "override" || u.Get("yaml") != document || u.Get("scope") != "service" ||
		u.Get("config") != "com.example.Greeter:1.0.0:.configurators" {
		t.Errorf("rule = %s, want an override of scope service with the document", u)
	}
	publish(t, s, "com.example.Greeter:1.0.0:.configurators", "dubbo", "enabled: false")
	sub.Await("the changed rule", func(snap registry.Snapshot) bool {
		return len(snap.Configurators) == 1 && strings.Contains(snap.Configurators[0].Get("yaml"), "false")
	})

	publish(t, s, "com.example.Greeter", "mapping", "app-a,app-b")
	post(t, s, "/ns/instance", url.Values{
		"serviceName": {"app-a"}, "ip": {"10.0.0.5"}, "port": {"20880"},
		"metadata": {`{"dubbo.metadata.revision":"abc","dubbo.metadata.storage-type":"remote"}`},
	})
	publish(t, s, "app-a.tag-router", "dubbo", "tags: []")
	snap = sub.Await("one instance and a rule of its application", func(snap registry.Snapshot) bool { return len(snap.Instances) == 1 && len(snap.Routers) == 1 })
	if i := snap.Instances[0]; i.Application != "app-a" || i.Host != "10.0.0.5" || i.Port != 20880 || i.Weight != 1 || !i.Healthy || !i.Enabled ||
		i.Metadata["dubbo.metadata.revision"] != "abc" {
		t.Errorf("instance = %+v, want a healthy app-a at 10.0.0.5:20880 with revision abc", i)
	}
	if u := snap.Routers[0]; u.Protocol != "tag" || u.Get("scope") != "application" {
		t.Errorf("rule = %s, want a tag rule of scope application", u)
	}

	publish(t, s, "app-a", "abc", `{"app":"app-a"}`)
	// Nacos returns a configuration only a moment after it was written.
	deadline, ticker := time.After(registrytest.Timeout), time.NewTicker(50*time.Millisecond)
	defer ticker.Stop()
	for {
		text, err := session.Metadata(t.Context(), "app-a", "abc")
		if !errors.Is(err, registry.ErrNoMetadata) {
			if err != nil || string(text) != `{"app":"app-a"}` {
				t.Errorf("metadata = %q, %v, want {\"app\":\"app-a\"}", text, err)
			}
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}
