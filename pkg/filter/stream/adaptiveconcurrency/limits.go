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

// scope is what has a limit of its own: a method of a service, or a route, which has no
// service.
type scope struct{ service, name string }

// rest is the scope of all that come too late to have their own.
const rest = "_other"

// longest is how many bytes the names of a scope may have.
const longest = 256

// String returns the scope as the metrics call it.
func (s scope) String() string {
	if s.service == "" {
		return s.name
	}
	return s.service + "/" + s.name
}

// limiterSet are the controllers of a filter. They outlive the configuration that they were
// made for, as long as the next one says the same in the same place. Safe for
// concurrent use; no call takes a lock but the first of a scope.
type limiterSet struct {
	start  time.Time // immutable; what times count from
	params params    // immutable
	levels *levels   // immutable
	most   int       // of scopes; immutable
	prefix string    // immutable; label of the metrics
	counts *metrics.Registry

	byScope atomic.Pointer[map[scope]*limiter] // replaced under mu

	mu   sync.Mutex
	rest *limiter // guarded by mu until it is there; nil: nobody came too late
}

// limiter is a controller with what it refused.
type limiter struct {
	controller
	refused []*metrics.Counter // by level
}

func (l *limiterSet) now() time.Duration { return time.Since(l.start) }

// of returns the gate of x.
func (l *limiterSet) of(x *protocol.Exchange, byMethod bool) *limiter {
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
	return l.add(s)
}

// methodOf returns the method of RPC or gRPC that x calls; it has no service if it
// calls none.
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

// add returns the gate of a scope that had none.
func (l *limiterSet) add(s scope) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := *l.byScope.Load()
	if g := known[s]; g != nil {
		return g
	}
	if len(known) >= l.most || len(s.service)+len(s.name) > longest {
		if l.rest == nil {
			l.rest = l.make(rest)
		}
		return l.rest
	}
	s = scope{strings.Clone(s.service), strings.Clone(s.name)}
	g := l.make(s.String())
	more := make(map[scope]*limiter, len(known)+1)
	maps.Copy(more, known)
	more[s] = g
	l.byScope.Store(&more)
	return g
}

// make returns a gate whose metrics are exported for as long as it is in use. l.mu is
// held.
func (l *limiterSet) make(name string) *limiter {
	g := new(limiter)
	g.controller.begin(&l.params, l.now())
	for _, level := range l.levels.list {
		g.refused = append(g.refused, l.counts.Counter(refused(), l.prefix, name, level.Value))
	}
	found := weak.Make(g)
	for _, one := range []struct {
		metric metrics.Metric
		read   func(g *limiter) float64
	}{
		{limit(), func(g *limiter) float64 { return float64(g.limit.Load()) }},
		{gradient(), func(g *limiter) float64 { return math.Float64frombits(g.gradient.Load()) }},
		{minRTT(), func(g *limiter) float64 { return time.Duration(g.minRTT.Load()).Seconds() }},
		{inFlight(), func(g *limiter) float64 { return float64(g.inFlight.Load()) }},
	} {
		remove := l.counts.Func(one.metric, func() float64 {
			if g := found.Value(); g != nil {
				return one.read(g)
			}
			return 0
		}, l.prefix, name)
		runtime.AddCleanup(g, func(remove func()) { remove() }, remove)
	}
	return g
}
