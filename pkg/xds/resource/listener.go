package resource

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// Listener is what a resource of ListenerType says.
type Listener struct {
	// Config is the listener, without what is found by the names below: the TLS of its
	// chains, and the route tables that its proxies name. Immutable.
	Config *config.Listener
	// TLS is what each of Config.Chains() speaks; nil for plaintext.
	TLS []*TLS
	// Tables are the route tables that the listener has itself, under names that no
	// resource has.
	Tables []*config.RouteTable
	// Routes are the names of resources of RouteType that it waits for, each once, for
	// RoutesTimeout at most; 0: for ever.
	Routes        []string
	RoutesTimeout time.Duration
	Ignored       []string // fields that have no effect, in order
}

// RouteTable is what a resource of RouteType says.
type RouteTable struct {
	Config  *config.RouteTable // immutable
	Ignored []string
}

// Secrets returns the names of the secrets that the listener's chains need.
func (l *Listener) Secrets() (names []string) {
	for _, t := range l.TLS {
		names = append(names, t.Secrets()...)
	}
	return names
}

// With returns the listener with what secrets say. ok is false if one is missing.
func (l *Listener) With(secrets map[string]*Secret) (out *config.Listener, ok bool) {
	if len(l.Secrets()) == 0 {
		return l.Config, true
	}
	whole := *l.Config
	whole.FilterChains = make([]*config.FilterChain, len(l.Config.FilterChains))
	for i, t := range l.TLS {
		from := l.Config.DefaultChain
		if i < len(whole.FilterChains) {
			from = l.Config.FilterChains[i]
		}
		chain := *from
		if t != nil {
			context, ok := t.With(secrets)
			if !ok {
				return nil, false
			}
			chain.TLS = []*config.TLS{context}
		}
		if i < len(whole.FilterChains) {
			whole.FilterChains[i] = &chain
		} else {
			whole.DefaultChain = &chain
		}
	}
	return &whole, true
}

// Kinds says what listeners and routes may ask for: what is built.
type Kinds struct {
	Filters []filter.Stream
}

// ReadListener reads a serialized Listener. The error is Refused.
func ReadListener(body []byte, k Kinds) (*Listener, error) {
	panic("unwritten")
}

// ReadRoutes reads a serialized RouteConfiguration. The error is Refused.
func ReadRoutes(body []byte, k Kinds) (*RouteTable, error) {
	panic("unwritten")
}
