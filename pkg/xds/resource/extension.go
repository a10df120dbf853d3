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

// ExtensionType is the type of resources that have the settings of one HTTP filter.
const ExtensionType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"

// Extension is what a resource of ExtensionType says. Immutable. The zero value says
// nothing that any listener could use.
type Extension struct {
	Ignored     []string // fields that have no effect, in order
	RuntimeKeys []string // of the runtime that it was read with, in order

	typeURL    string // of the settings
	filterName string // Weft's name of the filter
	config     any    // its settings
}

// ReadExtension reads a serialized TypedExtensionConfig. The error is Refused.
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

// DynamicFilter is an HTTP filter of a listener whose settings are a resource of ExtensionType.
type DynamicFilter struct {
	Name string // of the resource
	// The listener waits for the resource for Timeout at most, 0: for ever; or not at
	// all, if Eager.
	InitialFetchTimeout time.Duration
	SkipWarming         bool

	typeURLs      []string // that the settings may be of, as type URLs
	defaultConfig *Extension
	otherFilters  []string // kinds of the chain's other filters
	proxy         *config.Proxy
	index         int // among its filters
}

// Check returns why e cannot be what the slot asks for.
func (s *DynamicFilter) Check(e *Extension) error {
	if e.filterName == "" || !slices.Contains(s.typeURLs, e.typeURL) {
		return fmt.Errorf("typed_config: is a %s, expected one of %s", e.typeURL, strings.Join(s.typeURLs, ", "))
	}
	if slices.Contains(s.otherFilters, e.filterName) {
		return fmt.Errorf("typed_config: %s", duplicateFilterReason(e.filterName))
	}
	return nil
}

// duplicateFilterReason says why settings of a kind cannot be those of a second filter.
func duplicateFilterReason(kind string) string {
	return fmt.Sprintf("is a second filter of type %s in the listener: settings of routes would apply to both", kind)
}

// effectiveConfig returns what the slot's filter is, given the resource or nil.
func (s *DynamicFilter) effectiveConfig(e *Extension) *Extension {
	if e != nil && s.Check(e) == nil {
		return e
	}
	return s.defaultConfig
}

// resolveFilters returns l with what extensions say in its slots.
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
	used := map[string]bool{} // kinds that slots have become
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
			continue // the listener's own has the place of what is missing
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

// readConfigDiscovery reads a filter whose settings are a resource of their own, and returns
// what has its place without them. ok is false if there is nothing that could be one.
func (p fieldReader) readConfigDiscovery(f *hcmv3.HttpFilter, l *Listener) (out config.Filter, slot *DynamicFilter, ok bool) {
	m, at := f.GetConfigDiscovery(), p.field("config_discovery")
	slot = &DynamicFilter{Name: f.GetName(), SkipWarming: m.GetApplyDefaultConfigWithoutWarming() && m.GetDefaultConfig() != nil, typeURLs: m.GetTypeUrls()}
	from := at.field("config_source")
	from.checkConfigSource(m.GetConfigSource())
	slot.InitialFetchTimeout = from.field("initial_fetch_timeout").duration(m.GetConfigSource().GetInitialFetchTimeout(), defaultFetchTimeout)
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

// filterNames are Weft's names of the filters that settings of given types are for.
func (p fieldReader) filterNames(urls []string) (names []string) {
	for _, url := range urls {
		t := filterMappingOf(&anypb.Any{TypeUrl: url})
		if t != nil && p.report.capabilities.streamFilter(t.name) != nil && !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// checkDisabled refuses to have a filter of a kind off: one that runs before routes are chosen.
func (p fieldReader) checkDisabled(kind string) {
	if p.report.capabilities.streamFilter(kind).Stage == filter.BeforeRoute {
		p.field("disabled").reject("the filter %s runs before a route is selected: no route could enable it", kind)
	}
}
