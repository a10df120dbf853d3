package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTwoVersionsInOneProcess verifies calls of a process that provides two versions at one
// address, next to a process that provides one of them. The consumer subscribes to the interface.
func TestTwoVersionsInOneProcess(t *testing.T) {
	t.Parallel()
	const both, second = "both versions", "second version"
	first, other := startProvider(t, both, nil), startProvider(t, second, nil)
	registry := "REGISTRY_ADDRESS=file:" + filepath.Join(t.TempDir(), "registry")
	m := &sidecarPair{t: t, providerExample: loadExample(t, "dubbo_provider.json"), consumerExample: loadExample(t, "dubbo_consumer.json")}
	m.providerExample.replace(`"withdraw_wait": "2s"`, `"withdraw_wait": "200ms"`)
	m.providerExample.text = replaceLine(m.providerExample.text, `"server_port":`) // consumers bypass this sidecar
	m.provider = m.providerExample.run("dubbo_provider.json", registry, "STATE_DIR="+t.TempDir())
	m.consumer = m.consumerExample.run("dubbo_consumer.json", registry, "STATE_DIR="+t.TempDir())
	about := func(p *provider, version string) string {
		return `{"service": {"interface": "` + helloService + `", "methods": ["say"], "version": "` + version + `", "port": "` + portOnly(p.address) + `"}}`
	}
	call := func(version string) string {
		t.Helper()
		return newConsumer(t, m.consumerExample.address("20881")).call(invocation{service: helloService, method: "say", version: version}).text
	}
	await := func(version, want string) {
		t.Helper()
		eventually(t, "version "+version+" gets "+want, func() bool { return strings.Contains(call(version), want) })
	}

	m.sendAPI(m.consumerExample, "22223", "/sub", `{"service": {"interface": "`+helloService+`"}}`)
	m.sendAPI(m.providerExample, "22222", "/pub", about(first, "1.0.0"))
	await("1.0.0", both)
	m.sendAPI(m.providerExample, "22222", "/pub", about(first, "2.0.0"))
	await("2.0.0", both)
	if got := call("3.0.0"); !strings.Contains(got, noRouteText) {
		t.Errorf("call of an unknown version: %q", got)
	}

	// The second version has its own cluster, which pages, metrics and commands show.
	const apart = helloService + "?version=2.0.0"
	m.consumer.admin = m.consumerExample.address("34941")
	if page := m.consumer.adminGet("/clusters"); !strings.Contains(page, apart) {
		t.Errorf("/clusters lacks %s:\n%s", apart, page)
	}
	if page := m.consumer.adminGet("/metrics"); !strings.Contains(page, `cluster="`+apart+`"`) {
		t.Errorf("the metrics lack %s", apart)
	}
	explained, _, _ := command(t, "explain", "--admin", m.consumer.admin, "--dubbo", helloService+"/say", "--version", "2.0.0")
	for _, want := range []string{apart, first.address} {
		if !strings.Contains(explained, want) {
			t.Errorf("weft explain lacks %q:\n%s", want, explained)
		}
	}
	if text := m.services(m.consumerExample, "22223"); !strings.Contains(text, first.address) {
		t.Errorf("weft services lacks %s:\n%s", first.address, text)
	}
	if page := sendRequest(t, newClient(t), "GET", "http://"+m.consumerExample.address("22223")+"/services/"+helloService, "").body; !strings.Contains(page, "beside") {
		t.Errorf("the API lists only the first version:\n%s", page)
	}
	if t.Failed() {
		return
	}

	// The second version moves to another provider.
	m.sendAPI(m.providerExample, "22222", "/unpub", about(first, "2.0.0"))
	eventually(t, "the second version is unpublished", func() bool { return !strings.Contains(call("2.0.0"), both) })
	m.sendAPI(m.providerExample, "22222", "/pub", about(other, "2.0.0"))
	await("2.0.0", second)
	before := first.calls.Load()
	for range 16 {
		if got := call("2.0.0"); !strings.Contains(got, second) {
			t.Errorf("call of the second version: %q", got)
		}
	}
	if n := first.calls.Load() - before; n != 0 {
		t.Errorf("%d calls of the second version went to a provider of the first", n)
	}
	await("1.0.0", both)
}

func replaceLine(text, with string) string {
	var left []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, with) {
			left = append(left, line)
		}
	}
	return strings.Join(left, "")
}
