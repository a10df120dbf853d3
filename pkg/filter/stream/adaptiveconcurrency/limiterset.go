package adaptiveconcurrency

import (
	"maps"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// scope identifies one limit: a method of a service, or a route, which has no service.
type scope struct{ service, name string }

// overflowLabel is the metrics label of the limiter for scopes beyond max_limits or with long
// names.
const overflowLabel = "_other"

// maxScopeNameBytes is the maximum size, in bytes, of the names of a scope with its own limit.
const maxScopeNameBytes = 256

// String returns the scope's label in metrics.
func (s scope) String() string {
	if s.service == "" {
		return s.name
	}
	return s.service + "/" + s.name
}

// limiterSet holds the limiters of a filter. It survives a reload if the next configuration has the
// same settings under the same key. It is safe for concurrent use; of takes a lock only for a scope
// without its own limiter.
type limiterSet struct {
	start     time.Time // immutable; times are relative to it
	params    params    // immutable
	levels    *levels   // immutable
	maxScopes int       // maximum number of scopes; immutable
	prefix    string    // immutable; stat_prefix, a label of the metrics
	registry  *metrics.Registry

	byScope atomic.Pointer[map[scope]*limiter] // replaced under mu

	mu       sync.Mutex
	overflow *limiter // guarded by mu; nil until a scope needs it
}

// limiter is the controller of a scope, with counters of rejected requests.
type limiter struct {
	controller
	rejected []*metrics.Counter // by index of the level
}

func (l *limiterSet) now() time.Duration { return time.Since(l.start) }

// limiterFor returns the limiter of x.
func (l *limiterSet) limiterFor(x *protocol.Exchange, byMethod bool) *limiter {
	var s scope
	if byMethod {
		s = methodOf(x)
	}
	if s.service == "" && x.Record.Route != nil {
		s = scope{name: x.Record.Route.Name()}
	}
	if g := (*l.byScope.Load())[s]; g != nil {
		return g
	}
	return l.getOrCreate(s)
}

// methodOf returns the RPC or gRPC method that x calls. service is empty if x calls none.
func methodOf(x *protocol.Exchange) (s scope) {
	switch {
	case x.Request.Method == "":
		s.service = x.Request.Header.Get(xprotocol.FieldService)
		s.name = x.Request.Header.Get(xprotocol.FieldMethod)
	case x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header):
		s.service, s.name = protocol.GRPCMethod(x.OriginalPath())
	}
	return s
}

// getOrCreate returns the limiter of a scope, and creates it if it does not exist.
func (l *limiterSet) getOrCreate(s scope) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := *l.byScope.Load()
	if g := known[s]; g != nil {
		return g
	}
	if len(known) >= l.maxScopes || len(s.service)+len(s.name) > maxScopeNameBytes {
		if l.overflow == nil {
			l.overflow = l.newLimiter(overflowLabel)
		}
		return l.overflow
	}
	s = scope{strings.Clone(s.service), strings.Clone(s.name)}
	g := l.newLimiter(s.String())
	more := make(map[scope]*limiter, len(known)+1)
	maps.Copy(more, known)
	more[s] = g
	l.byScope.Store(&more)
	return g
}

// newLimiter returns a limiter and exports its metrics until the garbage collector frees it. l.mu
// is held.
func (l *limiterSet) newLimiter(name string) *limiter {
	g := new(limiter)
	g.controller.initialize(&l.params, l.now())
	for _, level := range l.levels.list {
		g.rejected = append(g.rejected, l.registry.Counter(rejectedMetric(), l.prefix, name, level.Value))
	}
	found := weak.Make(g)
	for _, one := range []struct {
		metric metrics.Metric
		read   func(g *limiter) float64
	}{
		{limitMetric(), func(g *limiter) float64 { return float64(g.limit.Load()) }},
		{gradientMetric(), func(g *limiter) float64 { return math.Float64frombits(g.gradient.Load()) }},
		{minRTTMetric(), func(g *limiter) float64 { return time.Duration(g.minRTT.Load()).Seconds() }},
		{inFlightMetric(), func(g *limiter) float64 { return float64(g.inFlight.Load()) }},
	} {
		remove := l.registry.Func(one.metric, func() float64 {
			if g := found.Value(); g != nil {
				return one.read(g)
			}
			return 0
		}, l.prefix, name)
		runtime.AddCleanup(g, func(remove func()) { remove() }, remove)
	}
	return g
}
