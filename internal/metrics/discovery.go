package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// LabelPath is the path of a request to the API of Dubbo services.
const LabelPath = "path"

// Metrics of Dubbo services that the application publishes or subscribes to. They exist only if
// dubbo_registry is enabled.
//
//nolint:gochecknoglobals // constant descriptions
var (
	// DiscoveryCalls counts requests to the API. Its LabelResult is ResultOK, ResultNotAccepted or
	// ResultFailed.
	DiscoveryCalls = Metric{"weft_discovery_api_calls_total", "API requests of the application to publish or subscribe, by result: refused if the request was not valid, failed if a registry was unavailable or rejected it.",
		KindCounter, []string{LabelPath, LabelResult}}
	// DiscoveryRegistries is the number of registries in use.
	DiscoveryRegistries = Metric{"weft_discovery_registries", "Registries in use.",
		KindGauge, nil}
	// DiscoveryConnected is the number of connected registries.
	DiscoveryConnected = Metric{"weft_discovery_registries_connected", "Registries in use that are connected.",
		KindGauge, nil}
	// DiscoveryPublished is the number of published services.
	DiscoveryPublished = Metric{"weft_discovery_published", "Services that the application publishes.",
		KindGauge, nil}
	// DiscoveryRegistered is the number of published services that the registries have.
	DiscoveryRegistered = Metric{"weft_discovery_published_registered", "Published services that are registered in the registry.",
		KindGauge, nil}
	// DiscoverySubscribed is the number of subscribed services.
	DiscoverySubscribed = Metric{"weft_discovery_subscribed", "Services that the application subscribes to.",
		KindGauge, nil}
	// DiscoveryNoSnapshot is the number of subscribed services without a snapshot from any
	// registry.
	DiscoveryNoSnapshot = Metric{"weft_discovery_subscribed_pending", "Subscribed services without a snapshot from any registry.",
		KindGauge, nil}
	// DiscoveryRestored is the number of subscribed services whose snapshot is older than the
	// process, or than the session with the registry.
	DiscoveryRestored = Metric{"weft_discovery_subscribed_restored", "Subscribed services whose providers date from before the last start or registry session and have not been confirmed since.",
		KindGauge, nil}
	// DiscoveryEmptyProtected is the number of subscribed services that use retained providers,
	// because the registry reports none.
	DiscoveryEmptyProtected = Metric{"weft_discovery_subscribed_retained", "Subscribed services that use retained providers until empty_after, because the registry reports none.",
		KindGauge, nil}
	// DiscoveryProviders is the number of provider addresses of all subscribed services.
	DiscoveryProviders = Metric{"weft_discovery_providers", "Provider addresses of the subscribed services. An address counts once for each service.",
		KindGauge, nil}
	// DiscoveryOldestSnapshot is the age of the oldest snapshot in use from a disconnected
	// registry.
	DiscoveryOldestSnapshot = Metric{"weft_discovery_list_age_seconds", "Age of the oldest snapshot in use from a disconnected registry; 0 if all registries are connected.",
		KindGauge, nil}
	// DiscoveryChanges counts changes. Its LabelResult is ResultApplied or ResultFailed.
	DiscoveryChanges = Metric{"weft_discovery_changes_total", "Changes of clusters and routes by registries or the application. A failed change is retried.",
		KindCounter, []string{LabelResult}}
	// DiscoveryStateFileFailures counts failed writes of the state file.
	DiscoveryStateFileFailures = Metric{"weft_discovery_state_file_failures_total", "Failed writes of the state file.",
		KindCounter, nil}
)

func discoveryMetrics() []Metric {
	return []Metric{
		DiscoveryCalls, DiscoveryRegistries, DiscoveryConnected, DiscoveryPublished, DiscoveryRegistered, DiscoverySubscribed,
		DiscoveryNoSnapshot, DiscoveryRestored, DiscoveryEmptyProtected, DiscoveryProviders, DiscoveryOldestSnapshot, DiscoveryChanges, DiscoveryStateFileFailures,
	}
}

// Discovery holds the values of these metrics, except DiscoveryCalls, at one time.
type Discovery struct {
	Registries, ConnectedRegistries int
	Published, RegisteredServices   int
	Subscribed, Providers           int
	WithoutSnapshot                 int
	RestoredServices                int
	EmptyProtected                  int
	OldestSnapshot                  time.Duration
	Applied                         uint64
	ApplyFailures                   uint64
	StateFileFailures               uint64
}

// Discovery exports the result of read. Each scrape calls read once, and scrapes may be concurrent.
// The caller must call Discovery at most once per Registry.
func (r *Registry) Discovery(read func() Discovery) {
	c := &discoveryCollector{r: r, read: read, descs: map[string]*desc{}}
	for _, d := range newDescs(discoveryMetrics()) {
		c.descs[d.metric.Name] = d
	}
	r.prometheus.MustRegister(c)
}

// discoveryCollector exports a Discovery. It implements prometheus.Collector.
type discoveryCollector struct {
	r     *Registry
	read  func() Discovery
	descs map[string]*desc // by name
}

// Describe sends nothing, because DiscoveryCalls is a Registry.Counter.
func (c *discoveryCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all series except those of DiscoveryCalls.
func (c *discoveryCollector) Collect(ch chan<- prometheus.Metric) {
	e := c.r.emitter(ch)
	emit := func(m Metric, n float64, labels ...string) { e.emitValue(c.descs[m.Name], n, labels...) }
	d := c.read()
	emit(DiscoveryRegistries, float64(d.Registries))
	emit(DiscoveryConnected, float64(d.ConnectedRegistries))
	emit(DiscoveryPublished, float64(d.Published))
	emit(DiscoveryRegistered, float64(d.RegisteredServices))
	emit(DiscoverySubscribed, float64(d.Subscribed))
	emit(DiscoveryNoSnapshot, float64(d.WithoutSnapshot))
	emit(DiscoveryRestored, float64(d.RestoredServices))
	emit(DiscoveryEmptyProtected, float64(d.EmptyProtected))
	emit(DiscoveryProviders, float64(d.Providers))
	emit(DiscoveryOldestSnapshot, d.OldestSnapshot.Seconds())
	emit(DiscoveryChanges, float64(d.Applied), ResultApplied)
	emit(DiscoveryChanges, float64(d.ApplyFailures), ResultFailed)
	emit(DiscoveryStateFileFailures, float64(d.StateFileFailures))
}
