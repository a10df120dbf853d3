package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTwoVersionsInOneProcess verifies calls to two provider processes: one provides two versions
// at one address, the other provides one of these versions. The consumer subscribes to the
// interface.
func TestTwoVersionsInOneProcess(t *testing.T) {
	t.Parallel()
	const firstName, secondName = "first provider", "second provider"
	first, other := startProvider(t, firstName, nil), startProvider(t, secondName, nil)
	registry := "REGISTRY_ADDRESS=file:" + filepath.Join(t.TempDir(), "registry")
	pair := &sidecarPair{t: t, providerExample: loadExample(t, "dubbo_provider.json"), consumerExample: loadExample(t, "dubbo_consumer.json")}
	pair.providerExample.replace(`"withdraw_wait": "2s"`, `"withdraw_wait": "200ms"`)
	pair.providerExample.text = removeLines(pair.providerExample.text, `"server_port":`) // consumers bypass this sidecar
	pair.provider = pair.providerExample.run("dubbo_provider.json", registry, "STATE_DIR="+t.TempDir())
	pair.consumer = pair.consumerExample.run("dubbo_consumer.json", registry, "STATE_DIR="+t.TempDir())
	request := func(p *provider, version string) string {
		return `{"service": {"interface": "` + helloService + `", "methods": ["say"], "version": "` + version + `", "port": "` + portOnly(p.address) + `"}}`
	}
	call := func(version string) string {
		t.Helper()
		return newConsumer(t, pair.consumerExample.address("20881")).call(invocation{service: helloService, method: "say", version: version}).text
	}
	await := func(version, want string) {
		t.Helper()
		eventually(t, "version "+version+" gets "+want, func() bool { return strings.Contains(call(version), want) })
	}

	pair.sendAPI(pair.consumerExample, "22223", "/sub", `{"service": {"interface": "`+helloService+`"}}`)
	pair.sendAPI(pair.providerExample, "22222", "/pub", request(first, "1.0.0"))
	await("1.0.0", firstName)
	pair.sendAPI(pair.providerExample, "22222", "/pub", request(first, "2.0.0"))
	await("2.0.0", firstName)
	if got := call("3.0.0"); !strings.Contains(got, noRouteText) {
		t.Errorf("call of an unknown version: %q, want %q in it", got, noRouteText)
	}

	// The second version has its own cluster, which pages, metrics and commands show.
	const variantCluster = helloService + "?version=2.0.0"
	pair.consumer.admin = pair.consumerExample.address("34941")
	if page := pair.consumer.adminGet("/clusters"); !strings.Contains(page, variantCluster) {
		t.Errorf("/clusters lacks %s:\n%s", variantCluster, page)
	}
	if page := pair.consumer.adminGet("/metrics"); !strings.Contains(page, `cluster="`+variantCluster+`"`) {
		t.Errorf("the metrics lack %s", variantCluster)
	}
	explanation, _, _ := command(t, "explain", "--admin", pair.consumer.admin, "--dubbo", helloService+"/say", "--version", "2.0.0")
	for _, want := range []string{variantCluster, first.address} {
		if !strings.Contains(explanation, want) {
			t.Errorf("weft explain lacks %q:\n%s", want, explanation)
		}
	}
	if text := pair.services(pair.consumerExample, "22223"); !strings.Contains(text, first.address) {
		t.Errorf("weft services lacks %s:\n%s", first.address, text)
	}
	if page := sendRequest(t, newClient(t), "GET", "http://"+pair.consumerExample.address("22223")+"/services/"+helloService, "").body; !strings.Contains(page, "variants") {
		t.Errorf("the API lists only the first version:\n%s", page)
	}
	if t.Failed() {
		return
	}

	// The second version moves to another provider.
	pair.sendAPI(pair.providerExample, "22222", "/unpub", request(first, "2.0.0"))
	eventually(t, "the second version is unpublished", func() bool { return !strings.Contains(call("2.0.0"), firstName) })
	pair.sendAPI(pair.providerExample, "22222", "/pub", request(other, "2.0.0"))
	await("2.0.0", secondName)
	before := first.calls.Load()
	for range 16 {
		if got := call("2.0.0"); !strings.Contains(got, secondName) {
			t.Errorf("call of the second version: %q, want %q", got, secondName)
		}
	}
	if n := first.calls.Load() - before; n != 0 {
		t.Errorf("%d calls of the second version went to a provider of the first, want 0", n)
	}
	await("1.0.0", firstName)
}

func removeLines(text, key string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, key) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
