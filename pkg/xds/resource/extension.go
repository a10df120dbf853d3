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
	Ignored     []string // fields that have no effect, in order
	RuntimeKeys []string // runtime keys that were used, in order

	typeURL    string // of the settings
	filterName string // name of the filter in Weft
	config     any    // settings of the filter
}

// ReadExtension parses a serialized TypedExtensionConfig. The error is a RejectedError.
func ReadExtension(body []byte, k Capabilities) (*Extension, error) {
	m := &corev3.TypedExtensionConfig{}
	r := &report{capabilities: k}
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
	if t == nil || p.report.capabilities.streamFilter(t.name) == nil {
		p.reject("%s is not supported", packed.GetTypeUrl())
		return e
	}
	e.filterName, e.config = t.name, p.readSettings(t, packed)
	return e
}

// DynamicFilter is an HTTP filter of a listener whose settings come from an ExtensionType resource.
type DynamicFilter struct {
	Name string // of the resource
	// InitialFetchTimeout is how long the listener waits for the resource; 0 means no limit. With
	// SkipWarming it does not wait.
	InitialFetchTimeout time.Duration
	SkipWarming         bool

	typeURLs      []string // type URLs that the settings may have
	defaultConfig *Extension
	otherFilters  []string // names of the other filters of the chain
	proxy         *config.Proxy
	index         int // in proxy.StreamFilters
}

// Check returns an error if the filter cannot use e.
func (s *DynamicFilter) Check(e *Extension) error {
	if e.filterName == "" || !slices.Contains(s.typeURLs, e.typeURL) {
		return fmt.Errorf("typed_config: is a %s, expected one of %s", e.typeURL, strings.Join(s.typeURLs, ", "))
	}
	if slices.Contains(s.otherFilters, e.filterName) {
		return fmt.Errorf("typed_config: %s", duplicateFilterReason(e.filterName))
	}
	return nil
}

// duplicateFilterReason returns why a listener cannot have a second filter of a type.
func duplicateFilterReason(kind string) string {
	return fmt.Sprintf("is a second filter of type %s in the listener: settings of routes would apply to both", kind)
}

// effectiveConfig returns e if the filter can use it, or else the default config, which may be nil.
func (s *DynamicFilter) effectiveConfig(e *Extension) *Extension {
	if e != nil && s.Check(e) == nil {
		return e
	}
	return s.defaultConfig
}

// resolveFilters returns the configuration of l with the settings from extensions.
func (l *Listener) resolveFilters(extensions map[string]*Extension) *config.Listener {
	if len(l.DynamicFilters) == 0 {
		return l.Config
	}
	whole := *l.Config
	whole.FilterChains = slices.Clone(l.Config.FilterChains)
	for i, c := range whole.FilterChains {
		whole.FilterChains[i] = l.resolveChainFilters(c, extensions)
	}
	if whole.DefaultChain != nil {
		whole.DefaultChain = l.resolveChainFilters(whole.DefaultChain, extensions)
	}
	return &whole
}

func (l *Listener) resolveChainFilters(c *config.FilterChain, extensions map[string]*Extension) *config.FilterChain {
	var proxy *config.Proxy
	used := map[string]bool{} // names of the dynamic filters with settings
	for _, s := range l.DynamicFilters {
		if s.proxy != c.Proxy {
			continue
		}
		if proxy == nil {
			copied := *c.Proxy
			copied.StreamFilters = slices.Clone(c.Proxy.StreamFilters)
			proxy = &copied
		}
		e := s.effectiveConfig(extensions[s.Name])
		if e == nil || used[e.filterName] {
			continue // keep config.FilterConfigMissing
		}
		used[e.filterName] = true
		f := &proxy.StreamFilters[s.index]
		f.Name, f.Config = e.filterName, e.config
	}
	if proxy == nil {
		return c
	}
	filled := *c
	filled.Proxy = proxy
	return &filled
}

// readConfigDiscovery reads a filter whose settings come from ECDS. out is its placeholder in the
// chain. ok is false if none of the type URLs is supported.
func (p fieldReader) readConfigDiscovery(f *hcmv3.HttpFilter, l *Listener) (out config.Filter, slot *DynamicFilter, ok bool) {
	m, at := f.GetConfigDiscovery(), p.field("config_discovery")
	slot = &DynamicFilter{Name: f.GetName(), SkipWarming: m.GetApplyDefaultConfigWithoutWarming() && m.GetDefaultConfig() != nil, typeURLs: m.GetTypeUrls()}
	from := at.field("config_source")
	from.checkConfigSource(m.GetConfigSource())
	slot.InitialFetchTimeout = from.field("initial_fetch_timeout").duration(m.GetConfigSource().GetInitialFetchTimeout(), DefaultFetchTimeout)
	if slot.Name == "" {
		p.field("name").reject("is missing")
	}
	kinds := p.filterNames(slot.typeURLs)
	switch {
	case len(slot.typeURLs) == 0:
		at.field("type_urls").reject("is empty")
	case len(kinds) == 0:
		at.field("type_urls").reject("none of %s is supported", strings.Join(slot.typeURLs, ", "))
	case f.GetDisabled() && len(kinds) > 1:
		at.field("type_urls").reject("expected the types of one filter only, because the filter is disabled")
	case f.GetDisabled():
		p.checkDisabled(kinds[0])
	}
	if packed := m.GetDefaultConfig(); packed != nil {
		slot.defaultConfig = at.field("default_config").readExtension(packed)
		if !slices.Contains(slot.typeURLs, packed.GetTypeUrl()) {
			at.field("default_config").reject("is a %s, which is not among type_urls", packed.GetTypeUrl())
		}
	}
	l.DynamicFilters = append(l.DynamicFilters, slot)
	return config.Filter{Name: strings.Join(kinds, " or "), Config: config.FilterConfigMissing{}, Disabled: f.GetDisabled()}, slot, len(kinds) > 0
}

// filterNames returns the names of the supported filters that settings of the given types
// configure.
func (p fieldReader) filterNames(urls []string) (names []string) {
	for _, url := range urls {
		t := filterMappingOf(&anypb.Any{TypeUrl: url})
		if t != nil && p.report.capabilities.streamFilter(t.name) != nil && !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// checkDisabled rejects a disabled filter that runs before a route is selected.
func (p fieldReader) checkDisabled(kind string) {
	if p.report.capabilities.streamFilter(kind).Stage == filter.BeforeRoute {
		p.field("disabled").reject("the filter %s runs before a route is selected: no route could enable it", kind)
	}
}
