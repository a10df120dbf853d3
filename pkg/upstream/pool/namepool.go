package pool

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// namePool is a pool with separate connections for each host name of requests, because the TLS
// handshake of a connection requests or verifies one name.
type namePool struct {
	base                                         // open is not used: each subpool counts its connections
	subpools[string, *nameEntry]                 // at most maxNames
	mode                         config.PoolMode // immutable
	requestName                  config.AutoSNI  // immutable; where the host name of a request comes from
	lruClock                     uint64          // guarded by mu; number of exchanges so far
}

// nameEntry is the pool of a name.
type nameEntry struct {
	pool     Pool
	lastUsed uint64 // value of lruClock at the last exchange
}

func (e *nameEntry) connPool() Pool { return e.pool }

// maxNames bounds the names that have connections to one host. A further name closes the pool of
// the least recently used name.
const maxNames = 64

// newNamePool returns a namePool whose subpools are of the type that mode requires.
func newNamePool(b base, mode config.PoolMode, autoSNI config.AutoSNI, closed bool) *namePool {
	return &namePool{base: b, subpools: subpools[string, *nameEntry]{entries: make(map[string]*nameEntry), isClosed: closed}, mode: mode, requestName: autoSNI}
}

// usesNamePool reports whether connections of a protocol belong to one host name each.
func usesNamePool(c *config.Cluster, protocol config.Protocol) bool {
	return c.AutoSNI.Enabled() && (c.TLS != nil || len(c.AlternateTLS) > 0) && (protocol == config.HTTP1 || protocol == config.HTTP2 || protocol == config.HTTPByALPN)
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
	if e := p.entries[name]; e != nil {
		e.lastUsed = p.lruClock
		p.mu.Unlock()
		return e.pool
	}
	name = strings.Clone(name) // name borrows bytes of x
	b := p.base
	b.open = new(atomic.Int64) // all names share the DialLimit
	b.Connector = b.Connector.ForHostname(p.requestName, name)
	created := newPool(b, p.mode, p.isClosed)
	var old Pool
	if !p.isClosed { // a closed pool adds no entries
		old = p.evictOldest()
		p.entries[name] = &nameEntry{created, p.lruClock}
	}
	p.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return created
}

// evictOldest removes and returns the least recently used pool if there are maxNames pools;
// otherwise it returns nil. The caller holds p.mu.
func (p *namePool) evictOldest() Pool {
	if len(p.entries) < maxNames {
		return nil
	}
	var oldest string
	oldestUse := p.lruClock
	for name, e := range p.entries {
		if e.lastUsed < oldestUse {
			oldest, oldestUse = name, e.lastUsed
		}
	}
	old := p.entries[oldest].pool
	delete(p.entries, oldest)
	return old
}

// requestHostname returns the host name that a request is for, without a port and in lower case:
// the value of the header field if the request has it, else the authority.
func requestHostname(r *protocol.Request, field string) string {
	host := r.Authority
	if field != "" {
		if value, ok := r.Header.Lookup(field); ok && value != "" {
			host = value
		}
	}
	if rest, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(rest, "]")
		return strings.ToLower(host)
	}
	if strings.Count(host, ":") == 1 { // more colons: an IPv6 address
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Stats implements Pool. It does not include the connections of evicted names, which close after
// their last exchange.
func (p *namePool) Stats() Stats { return p.stats() }

// Close implements Pool.
func (p *namePool) Close() {
	p.mu.Lock()
	p.isClosed = true
	entries := p.entries
	p.entries = nil
	p.mu.Unlock()
	for _, e := range entries {
		e.pool.Close()
	}
}
