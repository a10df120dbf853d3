package xds

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func TestMetrics(t *testing.T) {
	registry := metrics.New(metrics.Options{})
	s, err := New(Options{
		Bootstrap: xdstest.Bootstrap("GRPC"),
		Layers:    layers.New(func(context.Context, config.Delta) error { return nil }),
		Metrics:   registry,
		Log:       slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = s.stack.SetFile(t.Context(), &config.Snapshot{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	s.channels[0].setConnected()
	respondWith(t, s, xdstest.Cluster("c", "e", "", 0), xdstest.Endpoints("e", 1))
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: &ads.Response{Type: resource.ClusterType, Nonce: "n", Resources: []ads.Resource{
		{Name: "c", Body: xdstest.Cluster("c", "e", "", 0).Body}, {Name: "?", DecodeError: "malformed"},
	}}})
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if strings.HasPrefix(labels[0], "weft_xds_") {
				got[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{
		"weft_xds_connected control":                         1,
		"weft_xds_responses_total control accepted cluster":  1,
		"weft_xds_responses_total control refused cluster":   1,
		"weft_xds_responses_total control accepted endpoint": 1,
		"weft_xds_resources cluster":                         1,
		"weft_xds_resources endpoint":                        1,
		"weft_xds_resources listener":                        0,
		"weft_xds_cache_age_seconds":                         0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v, %v, want %v", name, v, ok, want)
		}
	}
	if age, ok := got["weft_xds_response_age_seconds control"]; !ok || age < 0 || age > 60 {
		t.Errorf("response age = %v s, %v, want 0 to 60 s", age, ok)
	}
}

// TestMetricsDuringNew verifies that metrics can be read while New runs. The race detector reports
// a field that New sets after it has registered a metric that reads it.
func TestMetricsDuringNew(t *testing.T) {
	registry := metrics.New(metrics.Options{})
	created, gathered := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gathered)
		for {
			if _, err := registry.Gather(); err != nil {
				t.Error(err)
			}
			select {
			case <-created:
				return
			default:
			}
		}
	}()
	b := xdstest.Bootstrap("GRPC")
	b.Cache.Path = t.TempDir()
	var listeners []string // many, so that New takes long enough
	for i := range 100 {
		listeners = append(listeners, xdstest.DirectResponseListenerJSON("l"+strconv.Itoa(i), 1000+i))
	}
	b.StaticResources = xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, listeners, nil)
	_, err := New(Options{
		Bootstrap: b,
		Layers:    layers.New(func(context.Context, config.Delta) error { return nil }),
		Metrics:   registry,
		Log:       slog.New(slog.DiscardHandler),
	})
	close(created)
	<-gathered
	if err != nil {
		t.Fatal(err)
	}
}
