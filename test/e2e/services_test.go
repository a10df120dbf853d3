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

// meeting is the two sidecars of configs/dubbo_provider.json and dubbo_consumer.json, which share a
// registry in a directory.
type meeting struct {
	t                      *testing.T
	registry               string // address
	kept                   string // state file of the consumer's sidecar
	providing, calling     *example
	providerEnv, callerEnv []string
	provider, caller       *weft
}

func meet(t *testing.T, app string) *meeting {
	t.Helper()
	dir := t.TempDir()
	m := &meeting{
		t: t, registry: "file:" + filepath.Join(dir, "registry"),
		providing: openExample(t, "dubbo_provider.json"), calling: openExample(t, "dubbo_consumer.json"),
	}
	m.providing.replace(`"withdraw_wait": "2s"`, `"withdraw_wait": "200ms"`)
	m.providerEnv = []string{"REGISTRY_ADDRESS=" + m.registry, "STATE_DIR=" + dir, "APP_ADDRESS=" + app}
	m.kept = filepath.Join(dir, "weft-dubbo-consumer.json")
	m.callerEnv = []string{"REGISTRY_ADDRESS=" + m.registry, "STATE_DIR=" + dir}
	m.startProvider()
	m.startCaller()
	return m
}

func (m *meeting) startProvider() {
	m.provider = m.providing.run("dubbo_provider.json", m.providerEnv...)
}

func (m *meeting) startCaller() { m.caller = m.calling.run("dubbo_consumer.json", m.callerEnv...) }

// theService is the interface that the tests publish and call.
const theService = "com.example.Hello"

// say sends a request about theService to an API, and fails the test unless it succeeds.
func (m *meeting) say(e *example, port, path string) {
	m.t.Helper()
	m.tell(e, port, path, `{"service": {"interface": "`+theService+`", "methods": ["say"], "version": "1.0.0", "port": "20880"}}`)
}

// tell sends a request to an API, and fails the test unless it succeeds.
func (m *meeting) tell(e *example, port, path, body string) {
	m.t.Helper()
	got := ask(m.t, client(m.t), "POST", "http://"+e.at(port)+path, body, "Content-Type: application/json")
	var answer struct {
		Number int    `json:"err_no"`
		Text   string `json:"err_msg"`
	}
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != http.StatusOK || answer.Number != 0 {
		m.t.Fatalf("POST %s = %d %s", path, got.status, got.body)
	}
}

func (m *meeting) publish()     { m.t.Helper(); m.say(m.providing, "22222", "/pub") }
func (m *meeting) unpublish()   { m.t.Helper(); m.say(m.providing, "22222", "/unpub") }
func (m *meeting) subscribe()   { m.t.Helper(); m.say(m.calling, "22223", "/sub") }
func (m *meeting) unsubscribe() { m.t.Helper(); m.say(m.calling, "22223", "/unsub") }

// call calls the service through both sidecars.
func (m *meeting) call() said {
	m.t.Helper()
	return consume(m.t, m.calling.at("20881")).call(invocation{service: theService, method: "say", version: "1.0.0"})
}

// Texts of responses: of the provider, or of local replies of the consumer's sidecar.
const (
	served     = "hello"
	noProvider = "no healthy host"
	noService  = "no route"
)

// await calls until the response contains text. Every response until then must contain before.
func (m *meeting) await(text, before string) {
	m.t.Helper()
	eventually(m.t, "calls are answered with "+text, func() bool {
		got := m.call()
		if strings.Contains(got.text, text) {
			return true
		}
		if !strings.Contains(got.text, before) {
			m.t.Errorf("a call is answered %d %q, want first %q and then %q", got.status, got.text, before, text)
		}
		return false
	})
}

// services returns the output of weft services in one line.
func (m *meeting) services(e *example, port string) string {
	m.t.Helper()
	stdout, stderr, status := command(m.t, "services", "--api", e.at(port))
	if status != 0 || stderr != "" {
		m.t.Fatalf("weft services: exit status %d: %s", status, stderr)
	}
	return strings.Join(strings.Fields(stdout), " ")
}

// meetingExample runs both files. Calls pass through both sidecars once one application has
// published the service and the other has subscribed to it.
func meetingExample(t *testing.T) {
	app := provide(t, served, nil)
	m := meet(t, app.address)
	if got := m.call(); got.status != dubboNotFound || !strings.Contains(got.text, noService) {
		t.Errorf("before anything is said a call is answered %d %q", got.status, got.text)
	}
	m.subscribe()
	if got := m.call(); got.status == dubboOK || !strings.Contains(got.text, noProvider) {
		t.Errorf("before anything is published a call is answered %d %q", got.status, got.text)
	}
	m.publish()
	m.await(served, noProvider)
	if app.calls.Load() == 0 {
		t.Error("the provider was not called")
	}
	for _, want := range []string{"memory " + m.registry, " connected ", theService + ":1.0.0 memory", "registered", "at 127.0.0.1:" + portOnly(m.providing.at("20080"))} {
		if text := m.services(m.providing, "22222"); !strings.Contains(text, want) {
			t.Errorf("weft services of the provider lacks %q:\n%s", want, text)
		}
	}
	for _, want := range []string{theService + ":1.0.0 memory", "received", "1: " + m.providing.at("20080")} {
		if text := m.services(m.calling, "22223"); !strings.Contains(text, want) {
			t.Errorf("weft services of the consumer lacks %q:\n%s", want, text)
		}
	}
	explained, _, _ := command(t, "explain", "--admin", m.calling.at("34941"), "--dubbo", theService+"/say", "--version", "1.0.0")
	for _, want := range []string{"dubbo", theService + ":1.0.0", m.providing.at("20080")} {
		if !strings.Contains(explained, want) {
			t.Errorf("weft explain lacks %q:\n%s", want, explained)
		}
	}
	m.unpublish()
	m.await(noProvider, served)
	m.publish()
	m.await(served, noProvider)
	m.unsubscribe()
	if got := m.call(); !strings.Contains(got.text, noService) {
		t.Errorf("of what is not subscribed any more a call is answered %d %q", got.status, got.text)
	}
}

// TestAnInterfaceIsCalledInTheVersionsThatThereAre verifies that a subscription without a version
// finds a provider with one.
func TestAnInterfaceIsCalledInTheVersionsThatThereAre(t *testing.T) {
	t.Parallel()
	app := provide(t, served, nil)
	m := meet(t, app.address)
	m.publish()
	m.tell(m.calling, "22223", "/sub", `{"service": {"interface": "`+theService+`", "methods": ["say"]}}`)
	m.await(served, noProvider)
	for version, want := range map[string]string{"": served, "0.0.0": served, "2.0.0": noService} {
		call := invocation{service: theService, method: "say", version: version}
		if got := consume(t, m.calling.at("20881")).call(call); !strings.Contains(got.text, want) {
			t.Errorf("a call of version %q is answered %d %q, want %q", version, got.status, got.text, want)
		}
	}
	m.tell(m.calling, "22223", "/unsub", `{"service": {"interface": "`+theService+`", "methods": ["say"]}}`)
	m.await(noService, served)
}

func portOnly(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// TestServicesOutliveTheirSidecars verifies that publications and subscriptions survive restarts of
// their sidecars, and that calls succeed until a stopping provider's sidecar has been withdrawn.
func TestServicesOutliveTheirSidecars(t *testing.T) {
	t.Parallel()
	app := provide(t, served, nil)
	m := meet(t, app.address)
	m.publish()
	m.subscribe()
	m.await(served, noProvider)

	// The consumer's sidecar is killed. It restores its subscriptions when it starts again.
	eventually(t, "what is subscribed is kept", func() bool {
		kept, err := os.ReadFile(m.kept)
		return err == nil && bytes.Contains(kept, []byte(theService))
	})
	m.caller.signal(syscall.SIGKILL)
	<-m.caller.ended
	m.startCaller()
	m.await(served, noProvider)

	// The provider's sidecar drains. Consumers learn it before it stops accepting.
	m.provider.signal(syscall.SIGTERM)
	m.await(noProvider, served)
	if status := m.provider.awaitExit(patience); status != 0 {
		t.Errorf("the provider's sidecar ends with %d", status)
	}
	m.startProvider()
	m.await(served, noProvider)

	// Both reload their files and lose nothing.
	for _, w := range []*weft{m.caller, m.provider} {
		from := w.stderr.Len()
		w.signal(syscall.SIGHUP)
		w.stderr.await(t, from, "configuration applied")
	}
	if got := m.call(); got.status != dubboOK {
		t.Errorf("after a reload a call is answered %d %q", got.status, got.text)
	}
}

// providerExample runs a provider's sidecar alone. It verifies the errors of the API, and that the
// API, /config_dump and metrics show a publication.
func providerExample(t *testing.T) {
	e := openExample(t, "dubbo_provider.json")
	e.replace(`"withdraw_wait": "2s"`, `"withdraw_wait": "100ms"`)
	dir := t.TempDir()
	w := e.run("dubbo_provider.json", "REGISTRY_ADDRESS=file:"+filepath.Join(dir, "registry"), "STATE_DIR="+dir)
	w.admin = e.at("34940")
	web, url := client(t), "http://"+e.at("22222")

	got := ask(t, web, "POST", url+"/pub", `{"service": {"methods": ["say"]}}`, "Content-Type: application/json")
	if got.status != 200 || !strings.Contains(got.body, `"err_no":1`) || !strings.Contains(got.body, "service.interface") {
		t.Errorf("a call without an interface is answered %d %s", got.status, got.body)
	}
	got = ask(t, web, "POST", url+"/pub", "interface="+theService+"&methods=say&version=1.0.0", "Content-Type: application/x-www-form-urlencoded")
	if strings.TrimSpace(got.body) != `{"err_no":0,"err_msg":"publish success"}` {
		t.Errorf("a form is answered %d %s", got.status, got.body)
	}
	if got = ask(t, web, "GET", url+"/services/"+theService+":1.0.0", ""); !strings.Contains(got.body, "dubbo://"+e.at("20080")+"/"+theService+"?") {
		t.Errorf("what is published is %s", got.body)
	}
	if dump := w.get("/config_dump"); !strings.Contains(dump, `"key": "`+theService+`:1.0.0"`) && !strings.Contains(dump, `"key":"`+theService+`:1.0.0"`) {
		t.Errorf("the page of the configuration does not have the service:\n%s", dump)
	}
	for name, want := range map[string]float64{
		"weft_discovery_published": 1, "weft_discovery_published_registered": 1, "weft_discovery_registries_connected": 1, "weft_discovery_api_calls_total": 2,
	} {
		if got := w.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	w.signal(syscall.SIGTERM)
	if status := w.awaitExit(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestServicesAndTheFileDoNotClash verifies that a service cannot have the name of a cluster of the
// file, neither on a subscription nor on a reload.
func TestServicesAndTheFileDoNotClash(t *testing.T) {
	t.Parallel()
	e := openExample(t, "dubbo_consumer.json")
	dir := t.TempDir()
	e.replace("${REGISTRY_ADDRESS:-file:/tmp/weft-dubbo-registry}", "file:"+filepath.Join(dir, "registry"))
	e.replace("${STATE_DIR:-/tmp}", dir)
	withCluster := func(name string) string {
		return strings.Replace(e.text, `"extends": [{`, `"cluster_manager": {"clusters": [{"name": "`+name+`", "hosts": []}]}, "extends": [{`, 1)
	}
	path := writeFile(t, "config.json", withCluster("com.example.Fixed"))
	w := launch(t, launchOptions{args: []string{"start", "-c", path}})
	w.awaitReady()
	subscribe := func(name string) string {
		return ask(t, client(t), "POST", "http://"+e.at("22223")+"/sub", `{"service": {"interface": "`+name+`", "methods": ["say"]}}`).body
	}
	if got := subscribe("com.example.Fixed"); !strings.Contains(got, `"err_no":1`) || !strings.Contains(got, "service.interface: the file defines cluster") {
		t.Errorf("a service with the name of a cluster of the file is answered %s", got)
	}
	if got := subscribe("com.example.Free"); !strings.Contains(got, `"err_no":0`) {
		t.Errorf("another one is answered %s", got)
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
	reload(withCluster("com.example.Free"), "the file defines cluster \\\"com.example.Free\\\"")
	reload(e.text, "configuration applied")
	reload(strings.Replace(e.text, `"application": "consumer"`, `"application": "other"`, 1), `"a change takes effect after a restart" key=dubbo_registry`)
	said := consume(t, e.at("20881")).call(invocation{service: "com.example.Free", method: "say"})
	if !strings.Contains(said.text, noProvider) {
		t.Errorf("after reloads a call is answered %d %q", said.status, said.text)
	}
}

// TestServicesLieBelowTheControlPlane verifies that subscribed services work next to resources of a
// control plane, and stay when these change.
func TestServicesLieBelowTheControlPlane(t *testing.T) {
	t.Parallel()
	app := provide(t, served, nil)
	m := meet(t, app.address)
	m.caller.signal(syscall.SIGKILL)
	<-m.caller.ended

	resources := openExample(t, "../test/xds/sample/resources.json")
	path := writeFile(t, "resources.json", resources.text)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = control.Serve(ctx, ln, path, slog.New(slog.DiscardHandler)) })
	defer serving.Wait()
	defer cancel()
	plane, err := os.ReadFile(filepath.Join(root, "configs", "xds.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, keys, _ := strings.Cut(string(plane), `"node":`)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	keys = strings.Replace(strings.TrimSuffix(strings.TrimSpace(keys), "}"), "18000", port, 1)
	m.calling.replace(`"extends": [{`, `"node":`+keys+`, "extends": [{`)
	m.startCaller()

	says := func(text string) {
		t.Helper()
		eventually(t, "the control plane's listener says "+text, func() bool {
			got, err := try(t.Context(), client(t), "GET", "http://"+resources.at("2090")+"/hello", "")
			return err == nil && got.body == text
		})
	}
	m.publish()
	m.subscribe()
	m.await(served, noProvider)
	says("Hello from the control plane.\n")
	resources.replace("Hello from the control plane", "Hello again")
	if err := os.WriteFile(path, []byte(resources.text), 0o600); err != nil {
		t.Fatal(err)
	}
	says("Hello again.\n")
	if got := m.call(); got.text != served {
		t.Errorf("after a change of the control plane's a call is answered %d %q", got.status, got.text)
	}
	m.unsubscribe()
	if got := m.call(); !strings.Contains(got.text, noService) {
		t.Errorf("of what is not subscribed any more a call is answered %d %q", got.status, got.text)
	}
	says("Hello again.\n")
}
