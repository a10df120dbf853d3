package envoy

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/child"
	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/certs"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/compare"
	"github.com/weft-proxy/weft/test/envoy/origin"
	"github.com/weft-proxy/weft/test/netns"
	"github.com/weft-proxy/weft/test/ports"
)

// proxy is one of the two proxies, with its own origins.
type proxy struct {
	name       string
	network    *netns.Namespace // of the proxy, its origins and clients; nil: that of this process
	dir        string           // of its files
	startArgs  []string
	checkArgs  []string // the file is the last argument
	addresses  cases.Addresses
	origins    *origin.Set
	process    *child.Process
	normalizer *compare.Normalizer

	anonymous sync.Mutex // held by the running anonymous case
}

// newProxy starts the origins of a proxy.
func newProxy(t *testing.T, name, certificates string, network *netns.Namespace, free *ports.Range, startArgs, checkArgs []string) *proxy {
	t.Helper()
	p := &proxy{name: name, network: network, dir: t.TempDir(), startArgs: startArgs, checkArgs: checkArgs}
	certificate, err := certs.Load(certificates, certs.Origin)
	if err != nil {
		t.Fatal(err)
	}
	err = p.do(func() (err error) {
		p.origins, err = origin.Listen(free.Free, certificate)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.origins.Close(); err != nil {
			t.Error(err)
		}
	})
	p.addresses = cases.Addresses{
		Admin: freePort(t, free), Dead: freePort(t, free), Origins: p.origins.Ports(),
		Logs: filepath.Join(p.dir, "logs"), Listeners: map[string]int{}, Certs: certificates,
	}
	if err := os.Mkdir(p.addresses.Logs, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func freePort(t *testing.T, free *ports.Range) int {
	t.Helper()
	port, err := free.Free("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// do calls f in the network of the proxy.
func (p *proxy) do(f func() error) error {
	if p.network == nil {
		return f()
	}
	return p.network.Do(f)
}

// programs holds the paths of the proxies.
type programs struct{ envoy, weft string }

// findPrograms finds Envoy and builds Weft. It skips the test if there is no Envoy.
func findPrograms(t *testing.T) programs {
	t.Helper()
	return programs{envoy: envoyProgram(t), weft: buildWeft(t)}
}

// newProxies returns Envoy and Weft, which are not running yet.
func (paths programs) newProxies(t *testing.T, free *ports.Range) (envoy, weftProxy *proxy) {
	t.Helper()
	return paths.newProxiesIn(t, nil, nil, free)
}

// newProxiesIn is newProxies with a network for each proxy.
func (paths programs) newProxiesIn(t *testing.T, envoyNetwork, weftNetwork *netns.Namespace, free *ports.Range) (envoy, weftProxy *proxy) {
	t.Helper()
	common := []string{paths.envoy, "--concurrency", "1", "--disable-hot-restart", "-l", "error"}
	certificates := t.TempDir()
	if err := certs.Write(certificates); err != nil {
		t.Fatal(err)
	}
	envoy = newProxy(t, "envoy", certificates, envoyNetwork, free,
		append(common[:len(common):len(common)], "--file-flush-interval-msec", "50", "-c"),
		append(common[:len(common):len(common)], "--mode", "validate", "-c"))
	weftProxy = newProxy(t, "weft", certificates, weftNetwork, free, []string{paths.weft, "start", "-c"}, []string{paths.weft, "check"})
	return envoy, weftProxy
}

// writeBootstrap writes a file with groups and returns its path.
func (p *proxy) writeBootstrap(t *testing.T, name string, groups []*cases.Group) string {
	t.Helper()
	text, err := cases.Bootstrap(groups, &p.addresses)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checks limits the number of concurrent checks.
var checks = make(chan struct{}, runtime.NumCPU())

// check returns the messages about the groups that the proxy rejects. If it rejects several groups
// together, check splits them.
func (p *proxy) check(t *testing.T, groups []*cases.Group) map[string]string {
	t.Helper()
	if len(groups) == 0 {
		return nil
	}
	path := p.writeBootstrap(t, fmt.Sprintf("check-%s-%d.json", groups[0].Name, len(groups)), groups)
	checks <- struct{}{}
	out, err := exec.CommandContext(t.Context(), p.checkArgs[0], append(p.checkArgs[1:len(p.checkArgs):len(p.checkArgs)], path)...).CombinedOutput()
	<-checks
	if err == nil {
		return nil
	}
	if len(groups) == 1 {
		return map[string]string{groups[0].Name: checkMessage(string(out), path)}
	}
	var halves sync.WaitGroup
	results := make([]map[string]string, 2)
	for i, half := range [][]*cases.Group{groups[:len(groups)/2], groups[len(groups)/2:]} {
		halves.Go(func() { results[i] = p.check(t, half) })
	}
	halves.Wait()
	merged := map[string]string{}
	for _, result := range results {
		maps.Copy(merged, result)
	}
	return merged
}

// checkMessage returns the errors in the output of a check.
func checkMessage(out, path string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "warning:") {
			lines = append(lines, strings.TrimSpace(strings.ReplaceAll(line, path, "FILE")))
		}
	}
	text := strings.TrimSpace(strings.Join(lines, "\n"))
	return logPrefix.ReplaceAllString(text[:min(len(text), 700)], "")
}

// logPrefix matches time and thread of a log line of Envoy.
var logPrefix = regexp.MustCompile(`(?m)^\[\d{4}-[^]]*\]\[\d+\]`)

// start starts the proxy with groups, and waits until it listens.
func (p *proxy) start(t *testing.T, groups []*cases.Group, free *ports.Range) {
	t.Helper()
	for _, g := range groups {
		p.addresses.Listeners[g.Name] = freePort(t, free)
	}
	p.normalizer = compare.NewNormalizer(p.addresses.Listeners, p.addresses.Origins)
	p.startFile(t, p.writeBootstrap(t, "bootstrap.json", groups), func() bool {
		return p.isReady() && p.listens(groups[0]) && p.listens(groups[len(groups)-1])
	})
}

// startFile starts the proxy with a file, and waits until it is ready.
func (p *proxy) startFile(t *testing.T, path string, ready func() bool) {
	t.Helper()
	command := exec.Command
	if p.network != nil {
		command = p.network.Command
	}
	cmd := command(p.startArgs[0], append(p.startArgs[1:len(p.startArgs):len(p.startArgs)], path)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+p.dir)
	p.process = child.Start(t, p.name, cmd)
	p.process.Await(t, time.Minute, 20*time.Millisecond, ready)
}

func (p *proxy) isReady() bool {
	out := client.Run(p.addresses.Admin, &client.Script{
		Kind: client.HTTP1, Method: "GET", Path: "/ready", Host: "127.0.0.1", Dial: p.dialFrom("127.0.0.1"),
	}, "ready")
	return len(out.Responses) == 1 && out.Responses[0].Status == http.StatusOK
}

// dialFrom returns a function that connects from an address of 127.0.0.0/8 to a port of 127.0.0.1, in
// the network of the proxy.
func (p *proxy) dialFrom(address string) func(port int) (net.Conn, error) {
	return func(port int) (conn net.Conn, err error) {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 3 * time.Second}
		err = p.do(func() (err error) {
			conn, err = dialer.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
			return err
		})
		return conn, err
	}
}

func (p *proxy) listens(g *cases.Group) bool {
	conn, err := p.dialFrom("127.0.0.1")(p.addresses.Listeners[g.Name])
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// run runs a case and returns what client and origins received.
//
//arch:clock health checks of a real process take real time
func (p *proxy) run(g *cases.Group, c *cases.Case) compare.View {
	time.Sleep(c.Wait)
	ids := []string{c.ID}
	script, port := c.Script, p.addresses.Listeners[g.Name]
	if c.Admin {
		port = p.addresses.Admin
	}
	if script.TLS != nil {
		session := *script.TLS
		session.Dir = p.addresses.Certs
		script.TLS = &session
	}
	if c.Anonymous {
		p.anonymous.Lock()
		defer p.anonymous.Unlock()
		ids = append(ids, "")
		p.origins.Take("")
	}
	out := client.Run(port, &script, c.ID)
	return compare.NewView(c, out, p.origins.Take(ids...), p.normalizer)
}

// stop stops the proxy and returns the lines of its access logs by case.
func (p *proxy) stop(t *testing.T) map[string][]string {
	t.Helper()
	p.process.MustSignal(t, syscall.SIGTERM)
	select {
	case <-p.process.Done():
	case <-time.After(20 * time.Second):
		t.Errorf("%s still runs 20 seconds after SIGTERM", p.name)
	}
	lines := map[string][]string{}
	for group := range p.addresses.Listeners {
		text, err := os.ReadFile(p.addresses.LogPath(group))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			id, _, _ := strings.Cut(string(line), " ")
			lines[id] = append(lines[id], string(line))
		}
	}
	return lines
}
