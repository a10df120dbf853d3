//go:build !race

// These tests use real servers, which take a minute to start and do not exercise races. Under the
// race detector the fake server is used instead (loss_test.go).

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

// post sends a request to the API, as people and other programs do.
func post(t *testing.T, s *server.Server, path string, form url.Values) {
	t.Helper()
	if err := ask(t.Context(), s, http.MethodPost, path, form); err != nil {
		t.Fatal(err)
	}
}

func ask(ctx context.Context, s *server.Server, method, path string, form url.Values) error {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+s.Address()+"/nacos/v1"+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // already read
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s, %s", method, path, answer.Status, body)
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
	p := open(t, registry.Options{Address: s.Address(), SessionTimeout: 3 * time.Second})
	p.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.1:1"))
	f := p.NewSubscriber(greeter())
	f.Await("the provider", registrytest.At("10.0.0.1:1"))

	s.Kill()
	p.Await("away", isDisconnected)
	f.Never("of a server that is away", registrytest.Any)
	s.Restart()
	before := time.Now()
	p.Await("another session", func(st registry.State) bool { return st.Connected && st.Sessions > 1 })
	open(t, registry.Options{Address: s.Address()}).NewSubscriber(greeter()).Await("the provider again", registrytest.At("10.0.0.1:1"))
	t.Logf("registered again, and found by others, %v after the server served", time.Since(before))

	s.Pause()
	p.Await("away", isDisconnected)
	s.Resume()
	p.Await("connected", registrytest.Connected)
	p.MustRegister(registrytest.Provider(t, "com.example.Greeter", "10.0.0.2:1"))
	f.Await("both", registrytest.At("10.0.0.1:1", "10.0.0.2:1"))
}

// testKilledProcess verifies that the providers of a process without heartbeats disappear after its
// session.
func testKilledProcess(t *testing.T, s *server.Server) {
	f := open(t, registry.Options{Address: s.Address()}).NewSubscriber(greeter())
	post(t, s, "/ns/instance", url.Values{
		"serviceName": {greeterList}, "ip": {"10.0.0.9"}, "port": {"1"}, "ephemeral": {"true"},
		"metadata": {`{"protocol":"dubbo","interface":"com.example.Greeter","preserved.heart.beat.interval":"500","preserved.heart.beat.timeout":"1000","preserved.ip.delete.timeout":"600000"}`},
	})
	life, die := context.WithCancel(t.Context())
	var process sync.WaitGroup
	process.Go(func() {
		beats := time.NewTicker(200 * time.Millisecond)
		defer beats.Stop()
		for {
			err := ask(life, s, http.MethodPut, "/ns/instance/beat", url.Values{"serviceName": {"DEFAULT_GROUP@@" + greeterList}, "ip": {"10.0.0.9"}, "port": {"1"}})
			if err != nil && life.Err() == nil {
				t.Error(err)
			}
			select {
			case <-beats.C:
			case <-life.Done():
				return
			}
		}
	})
	defer process.Wait()
	defer die()
	f.Await("the provider", registrytest.At("10.0.0.9:1"))
	die()
	f.Await("nobody", registrytest.Empty)
}

// testConfigurations verifies that rules, mappings, instances of applications and metadata are read as
// Dubbo stores them in Nacos.
func testConfigurations(t *testing.T, s *server.Server) {
	p := open(t, registry.Options{Address: s.Address()})
	f := p.NewSubscriber(registry.Service{Interface: "com.example.Greeter", Version: "1.0.0"})
	f.Await("nothing", registrytest.Empty)

	const document = "configVersion: v2.7\nenabled: true\nconfigs: []\n# ü\n"
	publish(t, s, "com.example.Greeter:1.0.0:.configurators", "dubbo", document)
	v := f.Await("a rule", func(v registry.Snapshot) bool { return len(v.Configurators) == 1 })
	if u := v.Configurators[0]; u.Protocol != "override" || u.Get("yaml") != document || u.Get("scope") != "service" ||
		u.Get("config") != "com.example.Greeter:1.0.0:.configurators" {
		t.Errorf("the rule is %s", u)
	}
	publish(t, s, "com.example.Greeter:1.0.0:.configurators", "dubbo", "enabled: false")
	f.Await("the rule changed", func(v registry.Snapshot) bool {
		return len(v.Configurators) == 1 && strings.Contains(v.Configurators[0].Get("yaml"), "false")
	})

	publish(t, s, "com.example.Greeter", "mapping", "app-a,app-b")
	post(t, s, "/ns/instance", url.Values{
		"serviceName": {"app-a"}, "ip": {"10.0.0.5"}, "port": {"20880"},
		"metadata": {`{"dubbo.metadata.revision":"abc","dubbo.metadata.storage-type":"remote"}`},
	})
	publish(t, s, "app-a.tag-router", "dubbo", "tags: []")
	v = f.Await("an instance and a rule of its application", func(v registry.Snapshot) bool { return len(v.Instances) == 1 && len(v.Routers) == 1 })
	if i := v.Instances[0]; i.Application != "app-a" || i.Host != "10.0.0.5" || i.Port != 20880 || i.Weight != 1 || !i.Healthy || !i.Enabled ||
		i.Metadata["dubbo.metadata.revision"] != "abc" {
		t.Errorf("the instance is %+v", i)
	}
	if u := v.Routers[0]; u.Protocol != "tag" || u.Get("scope") != "application" {
		t.Errorf("the rule is %s", u)
	}

	publish(t, s, "app-a", "abc", `{"app":"app-a"}`)
	// Nacos returns a configuration only a moment after it was written.
	limit, look := time.After(registrytest.Timeout), time.NewTicker(50*time.Millisecond)
	defer look.Stop()
	for {
		text, err := p.Metadata(t.Context(), "app-a", "abc")
		if !errors.Is(err, registry.ErrNoMetadata) {
			if err != nil || string(text) != `{"app":"app-a"}` {
				t.Errorf("metadata are %q, %v", text, err)
			}
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatal(err)
		}
	}
}
