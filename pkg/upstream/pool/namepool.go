package pool

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// namePool is a pool in which the requests for each host name have connections of their own: TLS
// requested or verified that name, and no other.
type namePool struct {
	base                                         // each pool counts its connections itself
	subpools[string, *nameEntry]                 // at most maxNames
	mode                         config.PoolMode // immutable
	requestName                  config.AutoSNI  // immutable
	lruClock                     uint64          // guarded by mu; number of exchanges so far
}

// nameEntry is the pool of a name.
type nameEntry struct {
	pool Pool
	used uint64 // value of lruClock at its last exchange
}

func (t *nameEntry) connPool() Pool { return t.pool }

// maxNames is how many names can have connections to one host. One more closes the pool of the
// least recently used name.
const maxNames = 64

// newNamePool returns a namePool whose pools are of the kind that mode requires.
func newNamePool(b base, mode config.PoolMode, by config.AutoSNI, closed bool) *namePool {
	return &namePool{base: b, subpools: subpools[string, *nameEntry]{entries: make(map[string]*nameEntry), isClosed: closed}, mode: mode, requestName: by}
}

// usesNamePool reports whether connections of a protocol belong to one host name each.
func usesNamePool(c *config.Cluster, protocol config.Protocol) bool {
	return c.AutoSNI.Enabled() && (c.TLS != nil || len(c.AlternateTLS) > 0) && (protocol == config.HTTP1 || protocol == config.HTTP2)
}

// Start implements Pool.
func (p *namePool) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.poolFor(x).Start(ctx, x)
}

// poolFor returns the pool for the host name of x.
func (p *namePool) poolFor(x *protocol.Exchange) Pool {
	name := requestHostname(&x.Request, p.requestName.OverrideHeader)
	p.mu.Lock()
	p.lruClock++
	if t := p.entries[name]; t != nil {
		t.used = p.lruClock
		p.mu.Unlock()
		return t.pool
	}
	name = strings.Clone(name) // x owns the bytes
	own := p.base
	own.open = new(atomic.Int64) // all names share the dials
	own.Connector = own.Connector.ForHostname(p.requestName, name)
	made := newPool(own, p.mode, p.isClosed)
	var old Pool
	if !p.isClosed { // a closed pool adds no entries
		old = p.evictOldest()
		p.entries[name] = &nameEntry{made, p.lruClock}
	}
	p.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return made
}

// evictOldest removes and returns the least recently used pool if there is no room for one more;
// else it returns nil. p.mu is held.
func (p *namePool) evictOldest() Pool {
	if len(p.entries) < maxNames {
		return nil
	}
	var oldest string
	least := p.lruClock
	for name, t := range p.entries {
		if t.used < least {
			oldest, least = name, t.used
		}
	}
	old := p.entries[oldest].pool
	delete(p.entries, oldest)
	return old
}

// requestHostname returns the host name that a request is for: the value of the header field, if it
// is set and the request has it, else the authority, without a port and in lower case.
func requestHostname(r *protocol.Request, field string) string {
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

// Counts implements Pool. It does not include connections of names that were removed, which end
// with what they carry.
func (p *namePool) Counts() (open int64, idle int) {
	for _, one := range p.pools() {
		o, i := one.Counts()
		open += o
		idle += i
	}
	return open, idle
}

// closeIdle closes connections that have been idle for d.
func (p *namePool) closeIdle(d time.Duration) (ended int) {
	for _, one := range p.pools() {
		if e, ok := one.(interface{ closeIdle(d time.Duration) int }); ok {
			ended += e.closeIdle(d)
		}
	}
	return ended
}

// Close implements Pool.
func (p *namePool) Close() {
	p.mu.Lock()
	p.isClosed = true
	own := p.entries
	p.entries = nil
	p.mu.Unlock()
	for _, t := range own {
		t.pool.Close()
	}
}

// maxRTT returns the longest round-trip time of the pools.
func (p *namePool) maxRTT() (longest time.Duration) {
	for _, one := range p.pools() {
		if s, ok := one.(*multiplexPool); ok {
			longest = max(longest, s.maxRTT())
		}
	}
	return longest
}
