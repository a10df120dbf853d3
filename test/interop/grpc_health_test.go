package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGRPCHealth runs grpc-go's health client against Weft. Weft itself responds: the host of its
// cluster is down.
func TestGRPCHealth(t *testing.T) {
	t.Parallel()
	requireKit(t, "grpc")
	defer results.add(t, "health", pair{consumer: "grpc-go", provider: "Weft"}, oneWeft)
	weftPort := freePort(t)
	path := writeHTTP2Config(t, weftPort, freePort(t), "Http2")
	setStreamFilter(t, path, object{"type": "healthcheck", "config": object{"grpc": true, "grpc_services": []string{"shop.Items"}}})
	start(t, "weft", os.Getenv(weftEnv), "start", "-c", path).awaitServing(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(kitDir("grpc"), "health"),
		"-target", address(weftPort), "", "shop.Items", "shop.Other").CombinedOutput()
	const want = `Check "": OK SERVING
Check "shop.Items": OK SERVING
Check "shop.Other": NotFound UNKNOWN
Watch: Unimplemented
`
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// setStreamFilter sets the stream filter of the listener in a configuration.
func setStreamFilter(t *testing.T, path string, filter object) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	listener, ok := firstElement(firstElement(c, "servers"), "listeners").(map[string]any)
	if !ok {
		t.Fatal("the configuration has no listener")
	}
	listener["stream_filters"] = []object{filter}
	if text, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(fmt.Errorf("the configuration with a filter: %w", err))
	}
}

// firstElement returns the first element of the list at key, or nil if there is none.
func firstElement(parent any, key string) any {
	o, _ := parent.(map[string]any)
	l, _ := o[key].([]any)
	if len(l) == 0 {
		return nil
	}
	return l[0]
}
