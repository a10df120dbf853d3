package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weft-proxy/weft/test/xds/control"
)

// sidecarPair runs the sidecars of configs/dubbo_provider.json and dubbo_consumer.json, which share
// a registry in a directory.
type sidecarPair struct {
	t                                *testing.T
	registry                         string // address
	stateFile                        string // state file of the consumer's sidecar
	providerExample, consumerExample *example
	providerEnv, consumerEnv         []string
	provider, consumer               *weft
}

func newSidecarPair(t *testing.T, app string) *sidecarPair {
	t.Helper()
	dir := t.TempDir()
	p := &sidecarPair{
		t: t, registry: "file:" + filepath.Join(dir, "registry"),
		providerExample: loadExample(t, "dubbo_provider.json"), consumerExample: loadExample(t, "dubbo_consumer.json"),
	}
	p.providerExample.replace(`"withdraw_wait": "2s"`, `"withdraw_wait": "200ms"`)
	p.providerEnv = []string{"REGISTRY_ADDRESS=" + p.registry, "STATE_DIR=" + dir, "APP_ADDRESS=" + app}
	p.stateFile = filepath.Join(dir, "weft-dubbo-consumer.json")
	p.consumerEnv = []string{"REGISTRY_ADDRESS=" + p.registry, "STATE_DIR=" + dir}
	p.startProvider()
	p.startConsumer()
	return p
}

func (p *sidecarPair) startProvider() {
	p.provider = p.providerExample.run("dubbo_provider.json", p.providerEnv...)
}

func (p *sidecarPair) startConsumer() {
	p.consumer = p.consumerExample.run("dubbo_consumer.json", p.consumerEnv...)
}

// helloService is the interface that the tests publish and call.
const helloService = "com.example.Hello"

// callAPI sends a request about helloService to an API, and fails the test unless it succeeds.
func (p *sidecarPair) callAPI(e *example, port, path string) {
	p.t.Helper()
	p.sendAPI(e, port, path, `{"service": {"interface": "`+helloService+`", "methods": ["say"], "version": "1.0.0", "port": "20880"}}`)
}

// sendAPI sends a request to an API, and fails the test unless it succeeds.
func (p *sidecarPair) sendAPI(e *example, port, path, body string) {
	p.t.Helper()
	got := sendRequest(p.t, newClient(p.t), "POST", "http://"+e.address(port)+path, body, "Content-Type: application/json")
	var response struct {
		Number int    `json:"err_no"`
		Text   string `json:"err_msg"`
	}
	if err := json.Unmarshal([]byte(got.body), &response); err != nil || got.status != http.StatusOK || response.Number != 0 {
		p.t.Fatalf("POST %s = %d %s; want 200, 0", path, got.status, got.body)
	}
}

func (p *sidecarPair) publish()     { p.t.Helper(); p.callAPI(p.providerExample, "22222", "/pub") }
func (p *sidecarPair) unpublish()   { p.t.Helper(); p.callAPI(p.providerExample, "22222", "/unpub") }
func (p *sidecarPair) subscribe()   { p.t.Helper(); p.callAPI(p.consumerExample, "22223", "/sub") }
func (p *sidecarPair) unsubscribe() { p.t.Helper(); p.callAPI(p.consumerExample, "22223", "/unsub") }

// call calls the service through both sidecars.
func (p *sidecarPair) call() dubboResponse {
	p.t.Helper()
	return newConsumer(p.t, p.consumerExample.address("20881")).call(invocation{service: helloService, method: "say", version: "1.0.0"})
}

// Texts of responses: of the provider, or of local replies of the consumer's sidecar.
const (
	successText       = "hello"
	noHealthyHostText = "no healthy host"
	noRouteText       = "no route"
)

// await calls until the response contains text. Every earlier response must contain previous.
func (p *sidecarPair) await(text, previous string) {
	p.t.Helper()
	eventually(p.t, "calls get "+text, func() bool {
		got := p.call()
		if strings.Contains(got.text, text) {
			return true
		}
		if !strings.Contains(got.text, previous) {
			p.t.Errorf("response %d %q, want %q before %q", got.status, got.text, previous, text)
		}
		return false
	})
}

// services returns the output of weft services in one line.
func (p *sidecarPair) services(e *example, port string) string {
	p.t.Helper()
	stdout, stderr, status := command(p.t, "services", "--api", e.address(port))
	if status != 0 || stderr != "" {
		p.t.Fatalf("weft services: exit status %d: %s; want 0, none", status, stderr)
	}
	return strings.Join(strings.Fields(stdout), " ")
}

// sidecarPairExample runs both files. Calls pass through both sidecars once one application has
// published the service and the other has subscribed to it.
func sidecarPairExample(t *testing.T) {
	app := startProvider(t, successText, nil)
	pair := newSidecarPair(t, app.address)
	if got := pair.call(); got.status != dubboNotFound || !strings.Contains(got.text, noRouteText) {
		t.Errorf("before publish and subscribe: %d %q; want no route", got.status, got.text)
	}
	pair.subscribe()
	if got := pair.call(); got.status == dubboOK || !strings.Contains(got.text, noHealthyHostText) {
		t.Errorf("before publish: %d %q; want no healthy host", got.status, got.text)
	}
	pair.publish()
	pair.await(successText, noHealthyHostText)
	if app.calls.Load() == 0 {
		t.Error("the provider got no call")
	}
	for _, want := range []string{"memory " + pair.registry, " connected ", helloService + ":1.0.0 memory", "registered", "at 127.0.0.1:" + portOnly(pair.providerExample.address("20080"))} {
		if text := pair.services(pair.providerExample, "22222"); !strings.Contains(text, want) {
			t.Errorf("weft services of the provider lacks %q:\n%s", want, text)
		}
	}
	for _, want := range []string{helloService + ":1.0.0 memory", "received", "1: " + pair.providerExample.address("20080")} {
		if text := pair.services(pair.consumerExample, "22223"); !strings.Contains(text, want) {
			t.Errorf("weft services of the consumer lacks %q:\n%s", want, text)
		}
	}
	explanation, _, _ := command(t, "explain", "--admin", pair.consumerExample.address("34941"), "--dubbo", helloService+"/say", "--version", "1.0.0")
	for _, want := range []string{"dubbo", helloService + ":1.0.0", pair.providerExample.address("20080")} {
		if !strings.Contains(explanation, want) {
			t.Errorf("weft explain lacks %q:\n%s", want, explanation)
		}
	}
	pair.unpublish()
	pair.await(noHealthyHostText, successText)
	pair.publish()
	pair.await(successText, noHealthyHostText)
	pair.unsubscribe()
	if got := pair.call(); !strings.Contains(got.text, noRouteText) {
		t.Errorf("after unsubscribe: %d %q; want no route", got.status, got.text)
	}
}

// TestSubscriptionWithoutVersion verifies that a subscription without a version finds a provider
// with one.
func TestSubscriptionWithoutVersion(t *testing.T) {
	t.Parallel()
	app := startProvider(t, successText, nil)
	pair := newSidecarPair(t, app.address)
	pair.publish()
	pair.sendAPI(pair.consumerExample, "22223", "/sub", `{"service": {"interface": "`+helloService+`", "methods": ["say"]}}`)
	pair.await(successText, noHealthyHostText)
	for version, want := range map[string]string{"": successText, "0.0.0": successText, "2.0.0": noRouteText} {
		call := invocation{service: helloService, method: "say", version: version}
		if got := newConsumer(t, pair.consumerExample.address("20881")).call(call); !strings.Contains(got.text, want) {
			t.Errorf("call of version %q: %d %q, want %q", version, got.status, got.text, want)
		}
	}
	pair.sendAPI(pair.consumerExample, "22223", "/unsub", `{"service": {"interface": "`+helloService+`", "methods": ["say"]}}`)
	pair.await(noRouteText, successText)
}

func portOnly(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// TestServicesSurviveRestart verifies that publications and subscriptions survive restarts of
// their sidecars, and that calls succeed until the sidecar of a stopping provider is unregistered.
func TestServicesSurviveRestart(t *testing.T) {
	t.Parallel()
	app := startProvider(t, successText, nil)
	pair := newSidecarPair(t, app.address)
	pair.publish()
	pair.subscribe()
	pair.await(successText, noHealthyHostText)

	// The consumer's sidecar is killed. It restores its subscriptions when it starts again.
	eventually(t, "the subscription is saved", func() bool {
		state, err := os.ReadFile(pair.stateFile)
		return err == nil && bytes.Contains(state, []byte(helloService))
	})
	pair.consumer.signal(syscall.SIGKILL)
	<-pair.consumer.exited
	pair.startConsumer()
	pair.await(successText, noHealthyHostText)

	// The provider's sidecar drains. It unregisters before it stops accepting connections.
	pair.provider.signal(syscall.SIGTERM)
	pair.await(noHealthyHostText, successText)
	if status := pair.provider.awaitExit(waitTimeout); status != 0 {
		t.Errorf("the provider's sidecar exited with status %d, want 0", status)
	}
	pair.startProvider()
	pair.await(successText, noHealthyHostText)

	// Reloads keep publications and subscriptions.
	for _, w := range []*weft{pair.consumer, pair.provider} {
		from := w.stderr.Len()
		w.signal(syscall.SIGHUP)
		w.stderr.await(t, from, "configuration applied")
	}
	if got := pair.call(); got.status != dubboOK {
		t.Errorf("after a reload: %d %q, want %d", got.status, got.text, dubboOK)
	}
}

// providerExample runs a provider's sidecar alone. It verifies the errors of the API, and that the
// API, /config_dump and metrics show a publication.
func providerExample(t *testing.T) {
	e := loadExample(t, "dubbo_provider.json")
	e.replace(`"withdraw_wait": "2s"`, `"withdraw_wait": "100ms"`)
	dir := t.TempDir()
	w := e.run("dubbo_provider.json", "REGISTRY_ADDRESS=file:"+filepath.Join(dir, "registry"), "STATE_DIR="+dir)
	w.admin = e.address("34940")
	web, url := newClient(t), "http://"+e.address("22222")

	got := sendRequest(t, web, "POST", url+"/pub", `{"service": {"methods": ["say"]}}`, "Content-Type: application/json")
	if got.status != 200 || !strings.Contains(got.body, `"err_no":1`) || !strings.Contains(got.body, "service.interface") {
		t.Errorf("request without an interface: %d %s", got.status, got.body)
	}
	got = sendRequest(t, web, "POST", url+"/pub", "interface="+helloService+"&methods=say&version=1.0.0", "Content-Type: application/x-www-form-urlencoded")
	if strings.TrimSpace(got.body) != `{"err_no":0,"err_msg":"publish success"}` {
		t.Errorf("form request: %d %s, want success", got.status, got.body)
	}
	if got = sendRequest(t, web, "GET", url+"/services/"+helloService+":1.0.0", ""); !strings.Contains(got.body, "dubbo://"+e.address("20080")+"/"+helloService+"?") {
		t.Errorf("the publications are %s, want the URL of the service", got.body)
	}
	if dump := w.adminGet("/config_dump"); !strings.Contains(dump, `"key": "`+helloService+`:1.0.0"`) && !strings.Contains(dump, `"key":"`+helloService+`:1.0.0"`) {
		t.Errorf("/config_dump lacks the service:\n%s", dump)
	}
	for name, want := range map[string]float64{
		"weft_discovery_published": 1, "weft_discovery_published_registered": 1, "weft_discovery_registries_connected": 1, "weft_discovery_api_calls_total": 2,
	} {
		if got := w.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	w.signal(syscall.SIGTERM)
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestServiceNameConflictsWithCluster verifies that Weft rejects a subscription or a reload after
// which a service and a cluster of the file would have the same name.
func TestServiceNameConflictsWithCluster(t *testing.T) {
	t.Parallel()
	e := loadExample(t, "dubbo_consumer.json")
	dir := t.TempDir()
	e.replace("${REGISTRY_ADDRESS:-file:/tmp/weft-dubbo-registry}", "file:"+filepath.Join(dir, "registry"))
	e.replace("${STATE_DIR:-/tmp}", dir)
	withCluster := func(name string) string {
		return strings.Replace(e.text, `"extends": [{`, `"cluster_manager": {"clusters": [{"name": "`+name+`", "hosts": []}]}, "extends": [{`, 1)
	}
	path := writeFile(t, "config.json", withCluster("com.example.Static"))
	w := launchWeft(t, launchOptions{args: []string{"start", "-c", path}})
	w.awaitReady()
	subscribe := func(name string) string {
		return sendRequest(t, newClient(t), "POST", "http://"+e.address("22223")+"/sub", `{"service": {"interface": "`+name+`", "methods": ["say"]}}`).body
	}
	if got := subscribe("com.example.Static"); !strings.Contains(got, `"err_no":1`) || !strings.Contains(got, "service.interface: cluster \\\"com.example.Static\\\": the file also defines this name") {
		t.Errorf("service with the name of a cluster of the file: %s, want an error about service.interface", got)
	}
	if got := subscribe("com.example.Dynamic"); !strings.Contains(got, `"err_no":0`) {
		t.Errorf("other service: %s, want success", got)
	}
	reload := func(text, want string) {
		t.Helper()
		from := w.stderr.Len()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.signal(syscall.SIGHUP)
		w.stderr.await(t, from, want)
	}
	reload(withCluster("com.example.Dynamic"), "cluster \\\"com.example.Dynamic\\\": a Dubbo service of the application also defines this name")
	reload(e.text, "configuration applied")
	reload(strings.Replace(e.text, `"application": "consumer"`, `"application": "other"`, 1), `"a change takes effect after a restart" key=dubbo_registry`)
	response := newConsumer(t, e.address("20881")).call(invocation{service: "com.example.Dynamic", method: "say"})
	if !strings.Contains(response.text, noHealthyHostText) {
		t.Errorf("after reloads: %d %q; want no healthy host", response.status, response.text)
	}
}

// TestServicesWithControlPlane verifies that subscribed services work next to resources of a
// control plane, and continue to work when these change.
func TestServicesWithControlPlane(t *testing.T) {
	t.Parallel()
	app := startProvider(t, successText, nil)
	pair := newSidecarPair(t, app.address)
	pair.consumer.signal(syscall.SIGKILL)
	<-pair.consumer.exited

	resources := loadExample(t, "../test/xds/sample/resources.json")
	path := writeFile(t, "resources.json", resources.text)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = control.Serve(ctx, ln, path, slog.New(slog.DiscardHandler)) })
	defer wg.Wait()
	defer cancel()
	xdsConfig, err := os.ReadFile(filepath.Join(root, "configs", "xds.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, xdsKeys, _ := strings.Cut(string(xdsConfig), `"node":`)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	xdsKeys = strings.Replace(strings.TrimSuffix(strings.TrimSpace(xdsKeys), "}"), "18000", port, 1)
	pair.consumerExample.replace(`"extends": [{`, `"node":`+xdsKeys+`, "extends": [{`)
	pair.startConsumer()

	awaitBody := func(text string) {
		t.Helper()
		eventually(t, "the control plane's listener responds "+text, func() bool {
			got, err := tryRequest(t.Context(), newClient(t), "GET", "http://"+resources.address("2090")+"/hello", "")
			return err == nil && got.body == text
		})
	}
	pair.publish()
	pair.subscribe()
	pair.await(successText, noHealthyHostText)
	awaitBody("Hello from the control plane.\n")
	resources.replace("Hello from the control plane", "Hello again")
	if err := os.WriteFile(path, []byte(resources.text), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitBody("Hello again.\n")
	if got := pair.call(); got.text != successText {
		t.Errorf("after an xDS update: %d %q; want %q", got.status, got.text, successText)
	}
	pair.unsubscribe()
	if got := pair.call(); !strings.Contains(got.text, noRouteText) {
		t.Errorf("after unsubscribe: %d %q; want no route", got.status, got.text)
	}
	awaitBody("Hello again.\n")
}
