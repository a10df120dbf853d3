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

// System returns a resolver that queries the servers of d, or those of the system if d has none. It
// completes names with the search domains of d, or as the system does if d has none. It always uses
// the hosts file of the system: if d has search domains, it looks up the completed names in that
// file, in order.
func System(d *config.DNS) Resolver {
	s := &systemResolver{servers: d.Resolvers, search: d.Search, ndots: d.Ndots, timeout: d.Timeout, attempts: max(d.Attempts, 1)}
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

// systemResolver is a Resolver that uses net.Resolver. Only lastResponder changes.
type systemResolver struct {
	servers       []string      // not empty; "" stands for the servers of the system
	search        []string      // empty: those of the system
	ndots         int           // only with search
	timeout       time.Duration // of one query; 0: none
	attempts      int
	lastResponder atomic.Int64 // index of the server that responded last
}

// serverTimeout is the default timeout of a query if there are several servers. After the timeout
// the resolver queries the next server.
const serverTimeout = 3 * time.Second

// Lookup implements Resolver. It queries the servers in order, starting with the one that responded
// last. It does not query another server after a response that the name does not exist.
func (s *systemResolver) Lookup(ctx context.Context, family Family, name string) ([]netip.Addr, time.Duration, error) {
	var notFoundErr error
	for _, candidate := range s.candidates(name) {
		addresses, ttl, err := s.queryServers(ctx, family, candidate)
		if !isNotFound(err) {
			return addresses, ttl, err
		}
		if notFoundErr == nil {
			notFoundErr = err
		}
	}
	return nil, 0, notFoundErr
}

func isNotFound(err error) bool {
	var dnsErr *net.DNSError
	return errors.As(err, &dnsErr) && dnsErr.IsNotFound
}

// candidates returns the names to look up for name, in order (resolv.conf(5), search and ndots).
// With configured search domains, each name ends in a dot, so that net.Resolver adds no domain.
// Without them, candidates returns name itself, which the system completes.
func (s *systemResolver) candidates(name string) []string {
	if len(s.search) == 0 || strings.HasSuffix(name, ".") {
		return []string{name}
	}
	names := make([]string, 0, len(s.search)+1)
	nameFirst := strings.Count(name, ".") >= s.ndots
	if nameFirst {
		names = append(names, name+".")
	}
	for _, domain := range s.search {
		if completed := name + "." + strings.Trim(domain, ".") + "."; len(completed) <= maxNameLen {
			names = append(names, completed)
		}
	}
	if !nameFirst {
		names = append(names, name+".")
	}
	return names
}

// maxNameLen is the maximum length of a name as text, with its last dot (RFC 1035 3.1).
const maxNameLen = 254

// queryServers queries the servers in turn until one responds. It queries each up to s.attempts
// times.
func (s *systemResolver) queryServers(ctx context.Context, family Family, name string) ([]netip.Addr, time.Duration, error) {
	var err error
	first := s.lastResponder.Load()
	for i := range int64(s.attempts * len(s.servers)) {
		index := (first + i) % int64(len(s.servers))
		var addresses []netip.Addr
		var ttl time.Duration
		addresses, ttl, err = s.queryServer(ctx, s.servers[index], family, name)
		if err == nil || isNotFound(err) {
			s.lastResponder.Store(index)
			return addresses, ttl, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, 0, err
}

// queryServer queries one server, with a query per family. For Auto and V4Preferred, it fails if
// the IPv4 query fails: a host with both families must not temporarily have only IPv6 addresses. If
// only the IPv6 query fails, it returns the IPv4 addresses.
func (s *systemResolver) queryServer(ctx context.Context, server string, family Family, name string) ([]netip.Addr, time.Duration, error) {
	q := query{server: server, family: family, name: name, timeout: s.timeout}
	dualStack := family == Auto || family == V4Preferred
	if dualStack && q.timeout <= 0 {
		q.timeout = lookupTimeout / 2 // leaves time for a second query
	}
	addresses, ttl, hasAnswers, err := q.lookup(ctx)
	if err == nil || !dualStack || !hasAnswers {
		return addresses, ttl, err
	}
	q.family = V4Only
	if v4Addresses, ttl, _, v4Err := q.lookup(ctx); v4Err == nil {
		return v4Addresses, ttl, nil
	}
	return nil, 0, err
}

// query is a query to one server.
type query struct {
	server  string // "": the servers of the system
	family  Family
	name    string
	timeout time.Duration // 0: none
}

// lookup returns addresses and their minimum TTL. net.Resolver does not report the TTL, so lookup
// reads it from the messages. hasAnswers reports whether a message had answer records, even if
// lookup fails.
func (q *query) lookup(ctx context.Context) (addresses []netip.Addr, ttl time.Duration, hasAnswers bool, err error) {
	if q.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.timeout)
		defer cancel()
	}
	var tracker ttlTracker
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
			return observeTTL(ctx, conn, &tracker), nil
		},
	}
	addresses, err = r.LookupNetIP(ctx, q.family.network(), q.name)
	ttl = time.Duration(tracker.minTTL.Load())
	if err != nil {
		var dnsErr *net.DNSError
		if q.server != "" && errors.As(err, &dnsErr) {
			dnsErr.Server = q.server // net.Resolver names a server of the system
		}
		return nil, 0, ttl != 0, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	return q.family.filter(addresses), ttl, true, nil
}

// network returns the family as a network of package net.
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

// filter returns the addresses to use for the family: if IPv4 is preferred, only the IPv4 addresses
// if there are any.
func (f Family) filter(addresses []netip.Addr) []netip.Addr {
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
