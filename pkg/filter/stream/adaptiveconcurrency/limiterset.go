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
// same settings and the same filter.Env.Key. It is safe for concurrent use; limiterFor takes a lock
// only for a scope without its own limiter.
type limiterSet struct {
	start     time.Time // immutable; times are relative to it
	params    params    // immutable
	levels    *levels   // immutable
	maxScopes int       // maximum number of scopes; immutable
	prefix    string    // immutable; stat_prefix, a label of the metrics
	registry  *metrics.Registry

	byScope atomic.Pointer[map[scope]*limiter] // copied on write; the writer holds mu

	mu       sync.Mutex
	overflow *limiter // guarded by mu; nil until a scope needs it
}

// limiter is the controller of a scope, with counters of rejected requests.
type limiter struct {
	controller
	rejected []*metrics.Counter // by index of the level
}

func (l *limiterSet) now() time.Duration { return time.Since(l.start) }

// per says what has its own limit.
type per uint8

const (
	perRoute  per = iota
	perMethod     // requests without a method: their route
	perFilter     // all requests have one limit
)

// perOf returns the per of a configuration.
func perOf(text string) per {
	switch text {
	case "method":
		return perMethod
	case "filter":
		return perFilter
	}
	return perRoute
}

// limiterFor returns the limiter of x.
func (l *limiterSet) limiterFor(x *protocol.Exchange, p per) *limiter {
	var s scope
	if p == perMethod {
		s = methodOf(x)
	}
	if s.service == "" && p != perFilter && x.Record.Route != nil {
		s = scope{name: x.Record.Route.Name()}
	}
	if lim := (*l.byScope.Load())[s]; lim != nil {
		return lim
	}
	return l.getOrCreate(s)
}

// methodOf returns the RPC or gRPC method that x calls. Its service is empty if x calls none.
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
	limiters := *l.byScope.Load()
	if lim := limiters[s]; lim != nil {
		return lim
	}
	if len(limiters) >= l.maxScopes || len(s.service)+len(s.name) > maxScopeNameBytes {
		if l.overflow == nil {
			l.overflow = l.newLimiter(overflowLabel)
		}
		return l.overflow
	}
	s = scope{strings.Clone(s.service), strings.Clone(s.name)}
	lim := l.newLimiter(s.String())
	updated := make(map[scope]*limiter, len(limiters)+1)
	maps.Copy(updated, limiters)
	updated[s] = lim
	l.byScope.Store(&updated)
	return lim
}

// newLimiter returns a limiter and exports its gauges until the garbage collector frees the
// limiter. The caller holds l.mu.
func (l *limiterSet) newLimiter(name string) *limiter {
	lim := new(limiter)
	lim.controller.initialize(&l.params, l.now())
	for _, level := range l.levels.list {
		lim.rejected = append(lim.rejected, l.registry.Counter(rejectedMetric(), l.prefix, name, level.Value))
	}
	weakLimiter := weak.Make(lim)
	for _, gauge := range []struct {
		metric metrics.Metric
		read   func(lim *limiter) float64
	}{
		{limitMetric(), func(lim *limiter) float64 { return float64(lim.limit.Load()) }},
		{gradientMetric(), func(lim *limiter) float64 { return math.Float64frombits(lim.gradient.Load()) }},
		{minRTTMetric(), func(lim *limiter) float64 { return time.Duration(lim.minRTT.Load()).Seconds() }},
		{inFlightMetric(), func(lim *limiter) float64 { return float64(lim.inFlight.Load()) }},
	} {
		remove := l.registry.Func(gauge.metric, func() float64 {
			if lim := weakLimiter.Value(); lim != nil {
				return gauge.read(lim)
			}
			return 0
		}, l.prefix, name)
		runtime.AddCleanup(lim, func(remove func()) { remove() }, remove)
	}
	return lim
}
