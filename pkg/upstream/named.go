package upstream

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Asker is a Connector that can ask a host, as a connection begins, for the name that
// requests are for: by SNI.
type Asker interface {
	Connector
	// WithHostname returns the Connector of connections for requests to a host of that name,
	// which by says what to do with.
	WithHostname(by config.RequestName, name string) Connector
}

// namePool is a pool in which the requests to each name have connections of their own: the
// host was asked for that name, or has proved to be it, and for no other.
type namePool struct {
	base                                            // connections are counted in the pools of own
	subpools[string, *nameEntry]                    // at most mostNames
	mode                         config.PoolMode    // immutable
	by                           config.RequestName // immutable
	turn                         uint64             // guarded by mu; how many exchanges there were
}

// nameEntry is what a name has.
type nameEntry struct {
	pool pool
	used uint64 // the turn of its last exchange
}

func (t *nameEntry) whole() pool { return t.pool }

// mostNames is how many names have connections to one host. Of one more, that of the
// name which was not asked for for the longest time end.
const mostNames = 64

// newByName returns a pool of pools that are of the kind that mode asks for.
func newByName(b base, mode config.PoolMode, by config.RequestName, closed bool) *namePool {
	return &namePool{base: b, subpools: subpools[string, *nameEntry]{own: make(map[string]*nameEntry), isClosed: closed}, mode: mode, by: by}
}

// names reports whether connections that speak a protocol are those of names.
func names(c *config.Cluster, protocol config.Protocol) bool {
	return c.RequestName.Counts() && (c.TLS != nil || len(c.MoreTLS) > 0) && (protocol == config.HTTP1 || protocol == config.HTTP2)
}

// Serve is pool's.
func (p *namePool) Serve(ctx context.Context, x *protocol.Exchange) error {
	return p.of(x).Serve(ctx, x)
}

// Start is pool's.
func (p *namePool) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.of(x).Start(ctx, x)
}

// of returns the pool of the name that x is for.
func (p *namePool) of(x *protocol.Exchange) pool {
	name := nameOf(&x.Request, p.by.Field)
	p.mu.Lock()
	p.turn++
	if t := p.own[name]; t != nil {
		t.used = p.turn
		p.mu.Unlock()
		return t.pool
	}
	name = strings.Clone(name) // x has it for a while only
	own := p.base
	own.open = new(atomic.Int64) // dials is the lane's, for all names
	if a, ok := own.connector.(Asker); ok {
		own.connector = a.WithHostname(p.by, name)
	}
	made := newPool(own, p.mode, p.isClosed)
	var old pool
	if !p.isClosed { // else nobody else will come
		old = p.forget()
		p.own[name] = &nameEntry{made, p.turn}
	}
	p.mu.Unlock()
	if old != nil {
		old.close()
	}
	return made
}

// forget takes the pool out that was not used for the longest time, if there is no room
// for one more; else nil. p.mu is held.
func (p *namePool) forget() pool {
	if len(p.own) < mostNames {
		return nil
	}
	var oldest string
	least := p.turn
	for name, t := range p.own {
		if t.used < least {
			oldest, least = name, t.used
		}
	}
	old := p.own[oldest].pool
	delete(p.own, oldest)
	return old
}

// nameOf returns the name of the host that a request is for, as a field says, if there is
// one and the request has it, else its authority: without a port, in lower case.
func nameOf(r *protocol.Request, field string) string {
	host := r.Authority
	if field != "" {
		if value, ok := r.Header.Lookup(field); ok && value != "" {
			host = value
		}
	}
	if inside, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(inside, "]")
		return strings.ToLower(host)
	}
	if strings.Count(host, ":") == 1 { // more are of an IPv6 address
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// counts is pool's, without connections of names that had to give way, which end with
// what they carry.
func (p *namePool) counts() (open int64, idle int) {
	for _, one := range p.all() {
		o, i := one.counts()
		open += o
		idle += i
	}
	return open, idle
}

// endIdle ends what has been idle for d.
func (p *namePool) endIdle(d time.Duration) (ended int) {
	for _, one := range p.all() {
		if e, ok := one.(interface{ endIdle(d time.Duration) int }); ok {
			ended += e.endIdle(d)
		}
	}
	return ended
}

// close is pool's.
func (p *namePool) close() {
	p.mu.Lock()
	p.isClosed = true
	own := p.own
	p.own = nil
	p.mu.Unlock()
	for _, t := range own {
		t.pool.close()
	}
}

// roundTrip is the longest of those of the names.
func (p *namePool) roundTrip() (longest time.Duration) {
	for _, one := range p.all() {
		if s, ok := one.(*multiplexPool); ok {
			longest = max(longest, s.roundTrip())
		}
	}
	return longest
}
