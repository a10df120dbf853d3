package upstream

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Asker is a Connector that can request a host name at the start of a connection, by SNI.
type Asker interface {
	Connector
	// WithHostname returns the Connector of connections for requests to a host of that name; by
	// says how to use the name.
	WithHostname(by config.RequestName, name string) Connector
}

// namePool is a pool in which the requests for each host name have connections of their own: TLS
// requested or verified that name, and no other.
type namePool struct {
	base                                            // the pools of own count the connections
	subpools[string, *nameEntry]                    // at most mostNames
	mode                         config.PoolMode    // immutable
	by                           config.RequestName // immutable
	turn                         uint64             // guarded by mu; number of exchanges so far
}

// nameEntry is the pool of a name.
type nameEntry struct {
	pool pool
	used uint64 // the turn of its last exchange
}

func (t *nameEntry) whole() pool { return t.pool }

// mostNames is how many names can have connections to one host. One more closes the pool of the
// least recently used name.
const mostNames = 64

// newByName returns a namePool whose pools are of the kind that mode requires.
func newByName(b base, mode config.PoolMode, by config.RequestName, closed bool) *namePool {
	return &namePool{base: b, subpools: subpools[string, *nameEntry]{own: make(map[string]*nameEntry), isClosed: closed}, mode: mode, by: by}
}

// names reports whether connections of a protocol belong to one host name each.
func names(c *config.Cluster, protocol config.Protocol) bool {
	return c.RequestName.Counts() && (c.TLS != nil || len(c.MoreTLS) > 0) && (protocol == config.HTTP1 || protocol == config.HTTP2)
}

// Serve implements pool.
func (p *namePool) Serve(ctx context.Context, x *protocol.Exchange) error {
	return p.of(x).Serve(ctx, x)
}

// Start implements pool.
func (p *namePool) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.of(x).Start(ctx, x)
}

// of returns the pool for the host name of x.
func (p *namePool) of(x *protocol.Exchange) pool {
	name := nameOf(&x.Request, p.by.Field)
	p.mu.Lock()
	p.turn++
	if t := p.own[name]; t != nil {
		t.used = p.turn
		p.mu.Unlock()
		return t.pool
	}
	name = strings.Clone(name) // x owns the bytes
	own := p.base
	own.open = new(atomic.Int64) // all names share the lane's dials
	if a, ok := own.connector.(Asker); ok {
		own.connector = a.WithHostname(p.by, name)
	}
	made := newPool(own, p.mode, p.isClosed)
	var old pool
	if !p.isClosed { // a closed pool adds no entries
		old = p.forget()
		p.own[name] = &nameEntry{made, p.turn}
	}
	p.mu.Unlock()
	if old != nil {
		old.close()
	}
	return made
}

// forget removes and returns the least recently used pool if there is no room for one more; else it
// returns nil. p.mu is held.
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

// nameOf returns the host name that a request is for: the value of the header field, if it is set
// and the request has it, else the authority, without a port and in lower case.
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
	if strings.Count(host, ":") == 1 { // more colons: an IPv6 address
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// counts implements pool. It does not include connections of names that were removed, which end
// with what they carry.
func (p *namePool) counts() (open int64, idle int) {
	for _, one := range p.all() {
		o, i := one.counts()
		open += o
		idle += i
	}
	return open, idle
}

// endIdle closes connections that have been idle for d.
func (p *namePool) endIdle(d time.Duration) (ended int) {
	for _, one := range p.all() {
		if e, ok := one.(interface{ endIdle(d time.Duration) int }); ok {
			ended += e.endIdle(d)
		}
	}
	return ended
}

// close implements pool.
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

// roundTrip returns the longest round-trip time of the pools.
func (p *namePool) roundTrip() (longest time.Duration) {
	for _, one := range p.all() {
		if s, ok := one.(*multiplexPool); ok {
			longest = max(longest, s.roundTrip())
		}
	}
	return longest
}
