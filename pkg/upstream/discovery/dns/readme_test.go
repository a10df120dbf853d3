package dns

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(readme), "```json\n")
	example, _, found := strings.Cut(example, "```")
	if !found {
		t.Fatal("README.md has no example")
	}
	var parsed struct {
		Type    config.ClusterType
		Refresh string `json:"dns_refresh_rate"`
		Family  string `json:"dns_lookup_family"`
		Hosts   []config.Host
	}
	if err := json.Unmarshal([]byte(example), &parsed); err != nil {
		t.Fatal(err)
	}
	refresh, err := time.ParseDuration(parsed.Refresh)
	if err != nil || parsed.Type != config.ClusterStrictDNS {
		t.Fatalf("refresh rate %q, type %q; want STRICT_DNS", parsed.Refresh, parsed.Type)
	}
	synctest.Test(t, func(t *testing.T) {
		z := newFakeZone(map[string][]string{"web.example": {"192.0.2.1"}})
		d := New(Options{Resolver: z.resolver})
		defer d.Close()
		var updates updateRecorder
		c := &config.Cluster{Hosts: parsed.Hosts, DNS: config.DNS{RefreshRate: refresh, Family: parsed.Family}}
		defer d.Watch(c, updates.update)()
		synctest.Wait()
		updates.wantUpdates(t, "192.0.2.1:8080 192.0.2.7:8080")
		if z.queries[0] != "web.example V4_ONLY" {
			t.Errorf("queries = %q, want %q first", z.queries, "web.example V4_ONLY")
		}
	})
}
