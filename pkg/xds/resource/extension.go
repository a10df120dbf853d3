package resource

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// ExtensionType is the type URL of resources that hold the settings of one HTTP filter.
const ExtensionType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"

// Extension is the parsed form of an ExtensionType resource. Immutable. No DynamicFilter accepts
// the zero value.
type Extension struct {
	Ignored     []string // fields that have no effect
	RuntimeKeys []string // runtime keys that were used, sorted

	typeURL    string // type URL of the settings
	filterName string // name of the filter in Weft
	config     any    // settings of the filter
}

// ReadExtension parses a serialized TypedExtensionConfig. The error is a RejectedError.
func ReadExtension(body []byte, caps Capabilities) (*Extension, error) {
	m := &corev3.TypedExtensionConfig{}
	r := &report{capabilities: caps}
	p := fieldReader{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return &Extension{}, err
	}
	e := p.field("typed_config").readExtension(m.GetTypedConfig())
	err := r.rejection()
	e.Ignored, e.RuntimeKeys = r.ignored, r.runtimeKeys()
	return e, err
}

func (p fieldReader) readExtension(packed *anypb.Any) *Extension {
	e := &Extension{typeURL: packed.GetTypeUrl()}
	t := filterMappingOf(packed)
	if t == nil || p.report.capabilities.streamFilterFactory(t.name) == nil {
		p.reject("%s is not supported", packed.GetTypeUrl())
		return e
	}
	e.filterName, e.config = t.name, p.readSettings(t, packed)
	return e
}

// DynamicFilter is an HTTP filter of a listener whose settings come from an ExtensionType resource.
type DynamicFilter struct {
	Name string // name of the resource
	// InitialFetchTimeout is how long the listener waits for the resource; 0 means no limit. With
	// SkipWarming the listener does not wait.
	InitialFetchTimeout time.Duration
	SkipWarming         bool

	typeURLs      []string // type URLs that the settings may have
	defaultConfig *Extension
	proxy         *config.Proxy
	index         int // index of the filter in proxy.StreamFilters
}

// Check returns an error if the filter cannot use e.
func (f *DynamicFilter) Check(e *Extension) error {
	if e.filterName == "" || !slices.Contains(f.typeURLs, e.typeURL) {
		return fmt.Errorf("typed_config: is a %s, expected one of %s", e.typeURL, strings.Join(f.typeURLs, ", "))
	}
	return nil
}

// effectiveConfig returns e if the filter can use it, or else the default config, which may be nil.
func (f *DynamicFilter) effectiveConfig(e *Extension) *Extension {
	if e != nil && f.Check(e) == nil {
		return e
	}
	return f.defaultConfig
}

// resolveFilters returns the configuration of l with the settings from extensions.
func (l *Listener) resolveFilters(extensions map[string]*Extension) *config.Listener {
	if len(l.DynamicFilters) == 0 {
		return l.Config
	}
	resolved := *l.Config
	resolved.FilterChains = slices.Clone(l.Config.FilterChains)
	for i, c := range resolved.FilterChains {
		resolved.FilterChains[i] = l.resolveChainFilters(c, extensions)
	}
	if resolved.DefaultChain != nil {
		resolved.DefaultChain = l.resolveChainFilters(resolved.DefaultChain, extensions)
	}
	return &resolved
}

func (l *Listener) resolveChainFilters(c *config.FilterChain, extensions map[string]*Extension) *config.FilterChain {
	var proxy *config.Proxy
	for _, s := range l.DynamicFilters {
		if s.proxy != c.Proxy {
			continue
		}
		if proxy == nil {
			clone := *c.Proxy
			clone.StreamFilters = slices.Clone(c.Proxy.StreamFilters)
			proxy = &clone
		}
		e := s.effectiveConfig(extensions[s.Name])
		if e == nil {
			continue // keep config.FilterConfigMissing
		}
		f := &proxy.StreamFilters[s.index]
		f.Name, f.Config = e.filterName, e.config
	}
	if proxy == nil {
		return c
	}
	resolved := *c
	resolved.Proxy = proxy
	return &resolved
}

// readConfigDiscovery reads a filter whose settings come from ECDS. out is its placeholder in the
// chain. ok is false if none of the type URLs is supported.
func (p fieldReader) readConfigDiscovery(f *hcmv3.HttpFilter, l *Listener) (out config.Filter, dynamic *DynamicFilter, ok bool) {
	m, at := f.GetConfigDiscovery(), p.field("config_discovery")
	dynamic = &DynamicFilter{Name: f.GetName(), SkipWarming: m.GetApplyDefaultConfigWithoutWarming() && m.GetDefaultConfig() != nil, typeURLs: m.GetTypeUrls()}
	source := at.field("config_source")
	source.checkConfigSource(m.GetConfigSource())
	dynamic.InitialFetchTimeout = source.field("initial_fetch_timeout").readDuration(m.GetConfigSource().GetInitialFetchTimeout(), DefaultFetchTimeout)
	if dynamic.Name == "" {
		p.field("name").reject("is missing")
	}
	names := p.filterNames(dynamic.typeURLs)
	switch {
	case len(dynamic.typeURLs) == 0:
		at.field("type_urls").reject("is empty")
	case len(names) == 0:
		at.field("type_urls").reject("none of %s is supported", strings.Join(dynamic.typeURLs, ", "))
	case f.GetDisabled() && len(names) > 1:
		at.field("type_urls").reject("expected the types of one filter only, because the filter is disabled")
	case f.GetDisabled():
		p.checkDisabled(names[0])
	}
	if packed := m.GetDefaultConfig(); packed != nil {
		dynamic.defaultConfig = at.field("default_config").readExtension(packed)
		if !slices.Contains(dynamic.typeURLs, packed.GetTypeUrl()) {
			at.field("default_config").reject("is a %s, which is not among type_urls", packed.GetTypeUrl())
		}
	}
	l.DynamicFilters = append(l.DynamicFilters, dynamic)
	return config.Filter{Name: strings.Join(names, " or "), Config: config.FilterConfigMissing{}, RouteKey: f.GetName(), Disabled: f.GetDisabled()}, dynamic, len(names) > 0
}

// filterNames returns the names in Weft of the supported filters whose settings have one of the
// type URLs.
func (p fieldReader) filterNames(urls []string) (names []string) {
	for _, url := range urls {
		t := filterMappingOf(&anypb.Any{TypeUrl: url})
		if t != nil && p.report.capabilities.streamFilterFactory(t.name) != nil && !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// checkDisabled rejects a disabled filter that runs before a route is selected.
func (p fieldReader) checkDisabled(name string) {
	if p.report.capabilities.streamFilterFactory(name).Stage == filter.BeforeRoute {
		p.field("disabled").reject("the filter %s runs before a route is selected: no route could enable it", name)
	}
}
