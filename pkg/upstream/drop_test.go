package upstream

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestDropOverload(t *testing.T) {
	const exchanges = 20_000
	for _, tt := range []struct {
		name  string
		drops []config.DropOverload
		want  map[string]float64 // fraction of all exchanges
	}{
		{"nothing", nil, nil},
		{"a quarter", []config.DropOverload{{Category: "throttle", PerMillion: config.Millionths / 4}}, map[string]float64{"throttle": 0.25}},
		{"each fraction of the remaining exchanges", []config.DropOverload{{Category: "a", PerMillion: config.Millionths / 2}, {Category: "b", PerMillion: config.Millionths / 2}},
			map[string]float64{"a": 0.5, "b": 0.25}},
		{"everything", []config.DropOverload{{Category: "all", PerMillion: config.Millionths}, {Category: "none", PerMillion: 1}}, map[string]float64{"all": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := cluster("web", "a")
			cfg.DropOverloads = tt.drops
			s, c := newTestCluster(t, newFakeConnector(), cfg)
			defer s.Close()
			dropped := 0
			for range exchanges {
				x, reason := beginWithPriority(c, config.DefaultPriority)
				switch reason {
				case protocol.Dropped:
					dropped++
				case protocol.ReasonNone:
					finish(x)
				default:
					t.Fatal(reason)
				}
			}
			counted := 0
			for category, n := range c.DropOverloadCounts() {
				counted += int(n)
				if got := float64(n) / exchanges; got < tt.want[category]-0.02 || got > tt.want[category]+0.02 {
					t.Errorf("%s: %.3f of all exchanges were dropped, want %.3f", category, got, tt.want[category])
				}
			}
			if counted != dropped || len(c.DropOverloadCounts()) != len(tt.want) {
				t.Errorf("%d exchanges were rejected, DropOverloadCounts = %v; want equal counts and one entry per category", dropped, c.DropOverloadCounts())
			}
			if got := c.InFlight(); got != 0 {
				t.Errorf("%d exchanges are in flight, want 0", got)
			}
		})
	}
}

func TestRetriesAreNotDropped(t *testing.T) {
	cfg := cluster("web", "a", "b")
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	defer s.Close()
	x := begin(t, c)
	finish(x)
	dropping := cluster("web", "a", "b")
	dropping.DropOverloads = []config.DropOverload{{Category: "all", PerMillion: config.Millionths}}
	apply(t, s, dropping)
	if err := x.Serve(context.Background(), (&ClusterPicker{Cluster: c})); err != nil {
		t.Errorf("second attempt = %v, want it not dropped", err)
	}
	finish(x)
	err := c.ForwardConn(t.Context(), ConnAddrs{}, 1, nil)
	if got := protocol.ReasonOf(err); got != protocol.Dropped {
		t.Errorf("ForwardConn ended with %v, want dropped", got)
	}
}
