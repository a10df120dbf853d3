package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// System returns a resolver that asks the servers of d, or without any those of the
// system, and completes names with the domains of d, or without any as the system
// does. The hosts file is the system's in either case; with domains of d's own it is
// asked for the completed names, in their order.
func System(d *config.DNS) Resolver {
	s := &system{servers: d.Resolvers, search: d.Search, ndots: d.Ndots, timeout: d.Timeout, attempts: max(d.Attempts, 1)}
	if s.ndots <= 0 {
		s.ndots = 1
	}
	if len(s.servers) == 0 {
		s.servers = []string{""}
	}
	if s.timeout <= 0 && len(s.servers) > 1 {
		s.timeout = serverTimeout
	}
	return s
}

// system is a Resolver by net.Resolver. Its fields are immutable but for good.
type system struct {
	servers  []string      // one is "": the system's
	search   []string      // empty: the system's
	ndots    int           // with search
	timeout  time.Duration // of one server; 0: none of its own
	attempts int
	good     atomic.Int64 // the server that answered last
}

// serverTimeout is how long one of several servers may take before the next is
// asked.
const serverTimeout = 3 * time.Second

// Lookup is Resolver's. Servers are asked in order, beginning with the one that
// answered last; that a name does not exist is an answer.
func (s *system) Lookup(ctx context.Context, family Family, name string) ([]netip.Addr, time.Duration, error) {
	var missing error
	for _, candidate := range s.candidates(name) {
		addresses, ttl, err := s.askAll(ctx, family, candidate)
		if !isMissing(err) {
			return addresses, ttl, err
		}
		if missing == nil {
			missing = err
		}
	}
	return nil, 0, missing
}

func isMissing(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound
}

// candidates returns what a name may mean, in the order in which it is tried
// (resolv.conf(5), search and ndots): each ends in a dot, so that nothing is added to
// it, unless the system is to do all that.
func (s *system) candidates(name string) []string {
	if len(s.search) == 0 || strings.HasSuffix(name, ".") {
		return []string{name}
	}
	list := make([]string, 0, len(s.search)+1)
	asItIs := strings.Count(name, ".") >= s.ndots
	if asItIs {
		list = append(list, name+".")
	}
	for _, domain := range s.search {
		if completed := name + "." + strings.Trim(domain, ".") + "."; len(completed) <= longestName {
			list = append(list, completed)
		}
	}
	if !asItIs {
		list = append(list, name+".")
	}
	return list
}

// longestName is how long a name may be, as text with its last dot (RFC 1035 3.1).
const longestName = 254

// askAll asks the servers in turn until one answers.
func (s *system) askAll(ctx context.Context, family Family, name string) ([]netip.Addr, time.Duration, error) {
	var err error
	first := s.good.Load()
	for i := range int64(s.attempts * len(s.servers)) {
		turn := (first + i) % int64(len(s.servers))
		var addresses []netip.Addr
		var ttl time.Duration
		addresses, ttl, err = s.ask(ctx, s.servers[turn], family, name)
		if err == nil || isMissing(err) {
			s.good.Store(turn)
			return addresses, ttl, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, 0, err
}

// ask asks one server. Where both families are asked for and IPv4 is to be had before
// IPv6, one of the two questions may fail: without an answer about IPv4 the lookup has
// failed, because hosts that have both must not become hosts of IPv6 for a moment; one
// about IPv6 can be done without.
func (s *system) ask(ctx context.Context, server string, family Family, name string) ([]netip.Addr, time.Duration, error) {
	q := query{server: server, family: family, name: name, timeout: s.timeout}
	both := family == Auto || family == V4Preferred
	if both && q.timeout <= 0 {
		q.timeout = lookupTimeout / 2 // there is time to ask again
	}
	addresses, ttl, some, err := q.ask(ctx)
	if err == nil || !both || !some {
		return addresses, ttl, err
	}
	q.family = V4Only
	if four, ttl, _, failed := q.ask(ctx); failed == nil {
		return four, ttl, nil
	}
	return nil, 0, err
}

// query is a question to one server.
type query struct {
	server  string // "": those of the system
	family  Family
	name    string
	timeout time.Duration // 0: none of its own
}

// ask returns addresses and how long they hold, which net.Resolver does not tell: that is
// read from the messages as they pass. some: there was an answer with records in it,
// though another may have failed.
func (q *query) ask(ctx context.Context) (found []netip.Addr, ttl time.Duration, some bool, err error) {
	if q.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.timeout)
		defer cancel()
	}
	var seen clock
	r := net.Resolver{
		PreferGo:     true,
		StrictErrors: q.family == Auto || q.family == V4Preferred,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if q.server != "" {
				address = q.server
			}
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return observe(ctx, conn, &seen), nil
		},
	}
	found, err = r.LookupNetIP(ctx, q.family.network(), q.name)
	ttl = time.Duration(seen.least.Load())
	if err != nil {
		var e *net.DNSError
		if q.server != "" && errors.As(err, &e) {
			e.Server = q.server // it knows of the system's only
		}
		return nil, 0, ttl != 0, err
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return q.family.choose(found), ttl, true, nil
}

// network is the family as package net spells it.
func (f Family) network() string {
	switch f {
	case V4Only:
		return "ip4"
	case V6Only:
		return "ip6"
	default:
		return "ip"
	}
}

// choose returns the addresses that the family wants of those found.
func (f Family) choose(addresses []netip.Addr) []netip.Addr {
	if f != Auto && f != V4Preferred {
		return addresses
	}
	var v4 []netip.Addr
	for _, a := range addresses {
		if a.Is4() {
			v4 = append(v4, a)
		}
	}
	if len(v4) > 0 {
		return v4
	}
	return addresses
}
