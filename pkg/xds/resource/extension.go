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
	Ignored []string // fields that have no effect, in order
	Keys    []string // of the runtime that it was read with, in order

	typeURL string // of the settings
	kind    string // Weft's name of the filter
	config  any    // its settings
}

// ReadExtension reads a serialized TypedExtensionConfig. The error is Refused.
func ReadExtension(body []byte, k Kinds) (*Extension, error) {
	m := &corev3.TypedExtensionConfig{}
	r := &report{kinds: k}
	p := place{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return &Extension{}, err
	}
	e := p.field("typed_config").readExtension(m.GetTypedConfig())
	err := r.result()
	e.Ignored, e.Keys = r.ignored, r.runtimeKeys()
	return e, err
}

func (p place) readExtension(packed *anypb.Any) *Extension {
	e := &Extension{typeURL: packed.GetTypeUrl()}
	t := translationOf(packed)
	if t == nil || p.report.kinds.filter(t.name) == nil {
		p.refuse("%s is not supported", packed.GetTypeUrl())
		return e
	}
	e.kind, e.config = t.name, p.readSettings(t, packed)
	return e
}

// Slot is an HTTP filter of a listener whose settings are a resource of ExtensionType.
type Slot struct {
	Name string // of the resource
	// The listener waits for the resource for Timeout at most, 0: for ever; or not at
	// all, if Eager.
	Timeout time.Duration
	Eager   bool

	types     []string // that the settings may be of, as type URLs
	otherwise *Extension
	taken     []string // kinds of the chain's other filters
	proxy     *config.Proxy
	at        int // among its filters
}

// Check returns why e cannot be what the slot asks for.
func (s *Slot) Check(e *Extension) error {
	if e.kind == "" || !slices.Contains(s.types, e.typeURL) {
		return fmt.Errorf("typed_config: is a %s, expected one of %s", e.typeURL, strings.Join(s.types, ", "))
	}
	if slices.Contains(s.taken, e.kind) {
		return fmt.Errorf("typed_config: %s", sameKind(e.kind))
	}
	return nil
}

// sameKind says why settings of a kind cannot be those of a second filter.
func sameKind(kind string) string {
	return fmt.Sprintf("is a second filter of type %s in the listener: settings of routes would apply to both", kind)
}

// choose returns what the slot's filter is, given the resource or nil.
func (s *Slot) choose(e *Extension) *Extension {
	if e != nil && s.Check(e) == nil {
		return e
	}
	return s.otherwise
}

// fill returns l with what extensions say in its slots.
func (l *Listener) fill(extensions map[string]*Extension) *config.Listener {
	if len(l.Slots) == 0 {
		return l.Config
	}
	whole := *l.Config
	whole.FilterChains = slices.Clone(l.Config.FilterChains)
	for i, c := range whole.FilterChains {
		whole.FilterChains[i] = l.fillChain(c, extensions)
	}
	if whole.DefaultChain != nil {
		whole.DefaultChain = l.fillChain(whole.DefaultChain, extensions)
	}
	return &whole
}

func (l *Listener) fillChain(c *config.FilterChain, extensions map[string]*Extension) *config.FilterChain {
	var proxy *config.Proxy
	used := map[string]bool{} // kinds that slots have become
	for _, s := range l.Slots {
		if s.proxy != c.Proxy {
			continue
		}
		if proxy == nil {
			copied := *c.Proxy
			copied.StreamFilters = slices.Clone(c.Proxy.StreamFilters)
			proxy = &copied
		}
		e := s.choose(extensions[s.Name])
		if e == nil || used[e.kind] {
			continue // the listener's own has the place of what is missing
		}
		used[e.kind] = true
		f := &proxy.StreamFilters[s.at]
		f.Name, f.Config = e.kind, e.config
	}
	if proxy == nil {
		return c
	}
	filled := *c
	filled.Proxy = proxy
	return &filled
}

// readDiscovery reads a filter whose settings are a resource of their own, and returns
// what has its place without them. ok is false if there is nothing that could be one.
func (p place) readDiscovery(f *hcmv3.HttpFilter, l *Listener) (out config.Filter, slot *Slot, ok bool) {
	m, at := f.GetConfigDiscovery(), p.field("config_discovery")
	slot = &Slot{Name: f.GetName(), Eager: m.GetApplyDefaultConfigWithoutWarming() && m.GetDefaultConfig() != nil, types: m.GetTypeUrls()}
	from := at.field("config_source")
	from.readSource(m.GetConfigSource())
	slot.Timeout = from.field("initial_fetch_timeout").duration(m.GetConfigSource().GetInitialFetchTimeout(), defaultFetchTimeout)
	if slot.Name == "" {
		p.field("name").refuse("is missing")
	}
	kinds := p.kindsOf(slot.types)
	switch {
	case len(slot.types) == 0:
		at.field("type_urls").refuse("is empty")
	case len(kinds) == 0:
		at.field("type_urls").refuse("none of %s is supported", strings.Join(slot.types, ", "))
	case f.GetDisabled() && len(kinds) > 1:
		at.field("type_urls").refuse("expected the types of one filter only, because the filter is disabled")
	case f.GetDisabled():
		p.switched(kinds[0])
	}
	if packed := m.GetDefaultConfig(); packed != nil {
		slot.otherwise = at.field("default_config").readExtension(packed)
		if !slices.Contains(slot.types, packed.GetTypeUrl()) {
			at.field("default_config").refuse("is a %s, which is not among type_urls", packed.GetTypeUrl())
		}
	}
	l.Slots = append(l.Slots, slot)
	return config.Filter{Name: strings.Join(kinds, " or "), Config: config.FilterMissing{}, Off: f.GetDisabled()}, slot, len(kinds) > 0
}

// kindsOf are Weft's names of the filters that settings of given types are for.
func (p place) kindsOf(urls []string) (names []string) {
	for _, url := range urls {
		t := translationOf(&anypb.Any{TypeUrl: url})
		if t != nil && p.report.kinds.filter(t.name) != nil && !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// switched refuses to have a filter of a kind off: one that runs before routes are chosen.
func (p place) switched(kind string) {
	if p.report.kinds.filter(kind).Stage == filter.BeforeRoute {
		p.field("disabled").refuse("the filter %s runs before a route is selected: no route could enable it", kind)
	}
}
