package filtertest

import (
	"log/slog"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
)

// BuildConnectionFilter returns the connection filter that s configures, and its Probe.
func BuildConnectionFilter(t testing.TB, factory filter.ConnectionFilterFactory, s Settings) (filter.ConnectionFilter, *Probe) {
	t.Helper()
	probe := &Probe{t: t, registry: metrics.New(metrics.Options{})}
	env := filter.Env{Log: slog.New(slog.DiscardHandler), Metrics: probe.registry, ClusterClient: new(ClusterClient)}
	f, err := factory.New(Decode(t, filter.StreamFilterFactory{Config: factory.Config}, s), env)
	if err != nil {
		t.Fatal(err)
	}
	return f, probe
}
