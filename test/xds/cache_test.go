package xds

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCacheSurvivesRestart verifies that a restarted Weft uses the saved resources while the
// control plane is down, and follows the control plane after it returns. It also tests on-demand
// resources.
func TestCacheSurvivesRestart(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) { t.Parallel(); testCacheSurvivesRestart(t, apiType, "") })
		t.Run(apiType+", on demand", func(t *testing.T) { t.Parallel(); testCacheSurvivesRestart(t, apiType, `"xds_lazy": {},`) })
	}
}

// testCacheSurvivesRestart is TestCacheSurvivesRestart with a protocol variant and additional
// configuration keys.
func testCacheSurvivesRestart(t *testing.T, apiType, keys string) {
	p, host, dir := newControlPlane(t), newHost(), filepath.Join(t.TempDir(), "xds")
	first, second := startOrigin(t, "first"), startOrigin(t, "second")
	config := strings.Replace(bootstrap(apiType, p.address, host+":9901"), "{", fmt.Sprintf(`{"xds_cache": {"path": %q, "max_age": "1h"},`+keys, dir), 1)
	c, url := client(t), "http://"+host+":10000/"
	p.put(edsCluster("app"), endpointsOf("app", first), httpListener("front", host+":10000", "routes"), routeTable("routes", routeTo("/", "app")))
	p.publish()
	w := startWeft(t, config, nil)
	awaitResponse(t, c, url, "first")
	w.stop() // Weft saves the resources at exit
	if _, err := os.Stat(filepath.Join(dir, "resources")); err != nil {
		t.Fatal(err)
	}
	p.stop()

	w = startWeft(t, config, nil)
	awaitResponse(t, c, url, "first")
	if _, err := w.log.Await(0, "resources of the xDS cache are active", 10*time.Second); err != nil {
		t.Errorf("no log line about the xDS cache in use: %v", err)
	}

	p.start()
	p.put(endpointsOf("app", second))
	p.publish()
	awaitResponse(t, c, url, "second")
	eventually(t, func() string {
		if strings.Contains(w.log.String(), "responds again") {
			return ""
		}
		return "no log line about the control plane that responds again"
	})
	if nacks := p.nacks(); len(nacks) > 0 {
		t.Errorf("rejected: %v, want none", nacks)
	}
}
