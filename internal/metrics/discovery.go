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
	// DiscoveryCalls counts requests to the API. Its LabelResult is ResultOK, ResultRefused or
	// ResultFailed.
	DiscoveryCalls = Metric{"weft_discovery_api_calls_total", "Calls by which the application published or subscribed: refused ones were wrong, of failed ones a registry was away or refused.",
		KindCounter, []string{LabelPath, LabelResult}}
	// DiscoveryRegistries is the number of registries in use.
	DiscoveryRegistries = Metric{"weft_discovery_registries", "Registries that something is published to or subscribed at.",
		KindGauge, nil}
	// DiscoveryConnected is the number of connected registries.
	DiscoveryConnected = Metric{"weft_discovery_registries_connected", "Those of the registries that answer.",
		KindGauge, nil}
	// DiscoveryPublished is the number of published services.
	DiscoveryPublished = Metric{"weft_discovery_published", "Services that the application wants to be published.",
		KindGauge, nil}
	// DiscoveryRegistered is the number of published services that the registries have.
	DiscoveryRegistered = Metric{"weft_discovery_published_registered", "Those of the services published that the registry has.",
		KindGauge, nil}
	// DiscoverySubscribed is the number of subscribed services.
	DiscoverySubscribed = Metric{"weft_discovery_subscribed", "Services that the application calls.",
		KindGauge, nil}
	// DiscoveryUnanswered is the number of subscribed services without a snapshot from any
	// registry.
	DiscoveryUnanswered = Metric{"weft_discovery_subscribed_unanswered", "Services that the application calls and of which no registry has said anything yet.",
		KindGauge, nil}
	// DiscoveryRestored is the number of subscribed services whose snapshot is older than the
	// start, or than the registry session.
	DiscoveryRestored = Metric{"weft_discovery_subscribed_restored", "Services that the application calls and whose providers were known before the last start, or session, and have not been confirmed since.",
		KindGauge, nil}
	// DiscoveryDoubted is the number of subscribed services that use retained providers, because
	// the registry reports none.
	DiscoveryDoubted = Metric{"weft_discovery_subscribed_doubted", "Services whose providers a registry has forgotten all at once, and which are used until empty_after.",
		KindGauge, nil}
	// DiscoveryProviders is the number of provider addresses of all subscribed services.
	DiscoveryProviders = Metric{"weft_discovery_providers", "Addresses of the services that the application calls, each counted for each service.",
		KindGauge, nil}
	// DiscoveryAge is the age of the oldest snapshot in use from a disconnected registry.
	DiscoveryAge = Metric{"weft_discovery_list_age_seconds", "Age of the oldest list of providers that is used while its registry is away; 0: none is away.",
		KindGauge, nil}
	// DiscoveryChanges counts changes. Its LabelResult is ResultApplied or ResultFailed.
	DiscoveryChanges = Metric{"weft_discovery_changes_total", "Changes of clusters and routes by registries or the application; what failed is tried again.",
		KindCounter, []string{LabelResult}}
	// DiscoveryUnsaved counts failed writes of the state file.
	DiscoveryUnsaved = Metric{"weft_discovery_state_file_failures_total", "Times that the state file could not be written.",
		KindCounter, nil}
)

func discoveryMetrics() []Metric {
	return []Metric{
		DiscoveryCalls, DiscoveryRegistries, DiscoveryConnected, DiscoveryPublished, DiscoveryRegistered, DiscoverySubscribed,
		DiscoveryUnanswered, DiscoveryRestored, DiscoveryDoubted, DiscoveryProviders, DiscoveryAge, DiscoveryChanges, DiscoveryUnsaved,
	}
}

// Discovery holds the values of the metrics above at one time.
type Discovery struct {
	Registries, Connected int
	Published, Registered int
	Subscribed, Providers int
	Unanswered            int
	Restored              int
	EmptyProtected        int
	OldestSnapshot        time.Duration
	Applied               uint64
	NotApplied            uint64
	StateFileFails        uint64
}

// Discovery exports the result of read. Each scrape calls read once, and scrapes may be concurrent.
// The caller must call Discovery at most once for a registry.
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
func (c *discoveryCollector) Collect(to chan<- prometheus.Metric) {
	e := c.r.emitter(to)
	value := func(m Metric, n float64, labels ...string) { e.value(c.descs[m.Name], n, labels...) }
	d := c.read()
	value(DiscoveryRegistries, float64(d.Registries))
	value(DiscoveryConnected, float64(d.Connected))
	value(DiscoveryPublished, float64(d.Published))
	value(DiscoveryRegistered, float64(d.Registered))
	value(DiscoverySubscribed, float64(d.Subscribed))
	value(DiscoveryUnanswered, float64(d.Unanswered))
	value(DiscoveryRestored, float64(d.Restored))
	value(DiscoveryDoubted, float64(d.EmptyProtected))
	value(DiscoveryProviders, float64(d.Providers))
	value(DiscoveryAge, d.OldestSnapshot.Seconds())
	value(DiscoveryChanges, float64(d.Applied), ResultApplied)
	value(DiscoveryChanges, float64(d.NotApplied), ResultFailed)
	value(DiscoveryUnsaved, float64(d.StateFileFails))
}
