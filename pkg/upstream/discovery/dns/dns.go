// Package dns implements the discovery of hosts by DNS. It periodically resolves the names of the
// configured hosts of STRICT_DNS and LOGICAL_DNS clusters. In a STRICT_DNS cluster, every address
// is a separate host. In a LOGICAL_DNS cluster, every name is one host, whose new connections go
// to the first address of the latest response.
//
//	Watch    current hosts of a cluster               dns.go
//	name     lookups of a name and their schedule     name.go
//	Lookup   servers and names to query               resolver.go
//	observe  TTLs of the DNS responses                ttl.go
//
// The package uses net.Resolver instead of a DNS client of its own. net.Resolver implements the
// parts of a stub resolver that are easy to get wrong: random IDs and ports, connected sockets, a
// check of the question in a response, EDNS(0), TCP after truncated responses, CNAME chains,
// /etc/hosts, and /etc/resolv.conf with its changes. It does not report TTLs, which the package
// reads from the messages. It has no settings for the servers, search domains, ndots, timeout and
// attempts of a cluster, which the package implements around it.
package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Resolver looks up addresses.
type Resolver interface {
	// Lookup returns the addresses of name in the family, at least one, and their TTL, 0 if it is
	// unknown. If there is no address, Lookup returns an error.
	Lookup(ctx context.Context, family Family, name string) (addresses []netip.Addr, ttl time.Duration, err error)
}

// Family selects address families, as in config.DNS.
type Family string

// The families. Auto queries both families and uses the IPv4 addresses, or the IPv6 addresses if
// there are no IPv4 addresses. A host with both families is almost always reachable by IPv4, and
// using both would count it twice. V4Preferred and "" mean Auto. All uses both families.
const (
	Auto        Family = "AUTO"
	V4Only      Family = "V4_ONLY"
	V6Only      Family = "V6_ONLY"
	V4Preferred Family = "V4_PREFERRED"
	All         Family = "ALL"
)

// Outcome is the outcome of a lookup.
type Outcome uint8

// The outcomes.
const (
	Resolved Outcome = iota // with at least one address
	NotFound                // the name does not exist or has no address of the family
	TimedOut                // no server responded in time
	Failed                  // a server reported an error, or the query failed
)

// Options configure a Discovery. The zero value is the usual configuration.
type Options struct {
	// Resolver returns a resolver with the settings of d. A Discovery calls it when it begins to
	// resolve a name with these settings. Nil means System.
	Resolver func(d *config.DNS) Resolver
	// Count is called with the outcome of each lookup, from any goroutine. It may be nil.
	Count func(Outcome)
}

// Discovery resolves the names of clusters. It implements upstream.DNSDiscovery.
//
// One goroutine per name resolves it for all clusters that configure the same lookup. One goroutine
// per watch collects the addresses of its names. Discovery is safe for concurrent use.
type Discovery struct {
	resolver func(*config.DNS) Resolver // immutable
	count    func(Outcome)              // immutable

	ctx         context.Context //nolint:containedctx // the lifetime of the Discovery: Close ends it
	stop        context.CancelFunc
	tasks       sync.WaitGroup
	lookupSlots chan struct{} // holds a token for each lookup in flight

	mu    sync.Mutex
	names map[key]*name // guarded by mu
}

// key is a name with the settings of its lookups.
type key struct {
	name           string
	family         Family
	refresh        time.Duration
	respectTTL     bool
	minTTL         time.Duration    // lower bound of the TTL with respectTTL
	failureBackoff [2]time.Duration // first and maximum backoff
	jitter         time.Duration    // maximum addition to an interval; 0: subtract up to a tenth

	// Settings of the resolver. Lists are joined by spaces.
	servers, search string
	ndots, attempts int
	timeout         time.Duration
}

// keyOf returns the key of a name with the DNS settings of a cluster.
func keyOf(domain string, c *config.DNS) key {
	k := key{
		name:           domain,
		family:         Family(c.Family),
		refresh:        c.RefreshRate,
		respectTTL:     c.RespectTTL,
		minTTL:         max(c.MinTTL, defaultMinTTL),
		failureBackoff: [2]time.Duration{c.FailureBackoffBase, c.FailureBackoffMax},
		jitter:         c.Jitter,
		servers:        strings.Join(c.Resolvers, " "),
		search:         strings.Join(c.Search, " "),
		ndots:          c.Ndots,
		attempts:       c.Attempts,
		timeout:        c.Timeout,
	}
	if k.family == "" {
		k.family = Auto
	}
	if k.refresh <= 0 {
		k.refresh = defaultRefresh
	}
	switch {
	case k.failureBackoff[0] <= 0:
		k.failureBackoff = [2]time.Duration{initialBackoff, k.refresh}
	case k.failureBackoff[1] < k.failureBackoff[0]:
		k.failureBackoff[1] = k.failureBackoff[0]
	}
	return k
}

// maxLookups is the maximum number of concurrent lookups of a Discovery, so that ten thousand names
// that are due at the same time do not cause ten thousand concurrent queries.
const maxLookups = 64

// New returns a Discovery without watches.
func New(o Options) *Discovery {
	if o.Resolver == nil {
		o.Resolver = System
	}
	if o.Count == nil {
		o.Count = func(Outcome) {}
	}
	d := &Discovery{resolver: o.Resolver, count: o.Count, lookupSlots: make(chan struct{}, maxLookups), names: make(map[key]*name)}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// Close ends all watches and returns when their goroutines have ended. Watch must not be called
// afterwards.
func (d *Discovery) Close() {
	d.stop()
	d.tasks.Wait()
}

// Watch resolves the names of c's hosts. It calls update when the first lookup of every name has
// ended, and then whenever the addresses change. A host whose address is an IP address or a unix
// socket stays unchanged. A host without a hostname gets its name as the hostname. A name without a
// port gets port 80.
//
// Hosts of a LOGICAL_DNS cluster keep the name as their address, and get the first address of the
// response as ResolvedAddress.
//
// If a name cannot be resolved, Watch calls update with an error, and the name keeps its addresses.
// Watch reports a lasting problem only once. stop returns when update has returned and Watch will
// not call it again; update must not call stop.
func (d *Discovery) Watch(c *config.Cluster, update func([]config.Host, error)) (stop func()) {
	ctx, cancel := context.WithCancel(d.ctx)
	w := &watch{wakeup: make(chan struct{}, 1), update: update}
	for i := range c.Hosts {
		w.targets = append(w.targets, d.newTarget(w, c, &c.Hosts[i]))
	}
	done := make(chan struct{})
	w.wake()
	d.tasks.Go(func() {
		defer close(done)
		w.run(ctx, d)
	})
	return func() {
		cancel()
		<-done
		d.removeWatch(w)
	}
}

// watch is one call of Watch.
type watch struct {
	targets []target // immutable
	update  func([]config.Host, error)
	wakeup  chan struct{} // capacity 1; makes run check the names

	// Owned by run.
	delivered       []config.Host
	hasDelivered    bool   // update was called with hosts, perhaps none
	reportedProblem string // problem of the last lookups, which was reported; "": none
}

// target is a configured host. It has no name if its address needs no lookup.
type target struct {
	host    config.Host
	name    *name
	port    string
	logical bool // LOGICAL_DNS: the name is one host
}

// newTarget returns the target of host and adds w to the watches of its name.
func (d *Discovery) newTarget(w *watch, c *config.Cluster, host *config.Host) target {
	domain, port := splitAddress(host.Address)
	if domain == "" {
		return target{host: *host}
	}
	t := target{host: *host, port: port}
	if t.host.Hostname == "" {
		t.host.Hostname = domain
	}
	t.logical = c.Type == config.ClusterLogicalDNS
	k := keyOf(domain, &c.DNS)
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[k]
	if n == nil {
		ctx, cancel := context.WithCancel(d.ctx)
		n = &name{key: k, resolver: d.resolver(&c.DNS), cancel: cancel, watches: make(map[*watch]struct{})}
		d.names[k] = n
		d.tasks.Go(func() { n.run(ctx, d) })
	}
	n.watches[w] = struct{}{}
	t.name = n
	return t
}

// splitAddress returns the name and port of an address. Both are "" if the address needs no lookup.
func splitAddress(address string) (domain, port string) {
	if unixaddr.Is(address) {
		return "", ""
	}
	domain, port, err := net.SplitHostPort(address)
	if err != nil {
		domain, port = strings.Trim(address, "[]"), "80"
	}
	if _, err := netip.ParseAddr(domain); err == nil {
		return "", ""
	}
	return domain, port
}

// removeWatch removes w from the watches of its names. It stops the lookups of names without
// watches.
func (d *Discovery) removeWatch(w *watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range w.targets {
		n := t.name
		if n == nil {
			continue
		}
		delete(n.watches, w)
		if len(n.watches) == 0 && d.names[n.key] == n {
			n.cancel()
			delete(d.names, n.key)
		}
	}
}

// wake makes run check the names again. It does not block.
func (w *watch) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default: // already signaled
	}
}

// run calls update with new hosts and new problems until ctx ends.
func (w *watch) run(ctx context.Context, d *Discovery) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wakeup:
		}
		hosts, complete, problem, err := w.collectHosts(d)
		if !complete {
			continue
		}
		// Report the hosts before the error: Change.Warm waits only for the first call of update.
		if deliverable := len(hosts) > 0 || err == nil; deliverable && (!w.hasDelivered || !reflect.DeepEqual(hosts, w.delivered)) {
			w.hasDelivered, w.delivered = true, hosts
			w.update(hosts, nil)
		}
		w.report(problem, err)
	}
}

// report calls update with err, unless it has already reported the same problem.
func (w *watch) report(problem string, err error) {
	if problem != w.reportedProblem && err != nil {
		w.update(nil, err)
	}
	w.reportedProblem = problem
}

// collectHosts returns the current hosts of the targets. complete is false until the first lookup
// of every name has ended. err joins the errors of the last lookups. problem identifies err without
// details that vary, such as port numbers.
func (w *watch) collectHosts(d *Discovery) (hosts []config.Host, complete bool, problem string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	var problemKey strings.Builder
	seen := make(map[*name]struct{})
	for _, t := range w.targets {
		if t.name == nil {
			hosts = append(hosts, t.host)
			continue
		}
		if !t.name.attempted {
			return nil, false, "", nil
		}
		if _, duplicate := seen[t.name]; !duplicate && t.name.err != nil {
			errs = append(errs, fmt.Errorf("resolving %s: %w", t.name.key.name, t.name.err))
			fmt.Fprintf(&problemKey, "%s %d ", t.name.key.name, outcomeOf(t.name.err))
		}
		seen[t.name] = struct{}{}
		hosts = t.appendHosts(hosts)
	}
	return hosts, true, problemKey.String(), errors.Join(errs...)
}

// appendHosts appends the current hosts of a target with a name. The caller holds Discovery.mu.
func (t *target) appendHosts(hosts []config.Host) []config.Host {
	host := t.host
	if t.logical {
		if t.name.firstAddress.IsValid() {
			host.ResolvedAddress = net.JoinHostPort(t.name.firstAddress.String(), t.port)
			hosts = append(hosts, host)
		}
		return hosts
	}
	for _, a := range t.name.addresses {
		host.Address = net.JoinHostPort(a.String(), t.port)
		hosts = append(hosts, host)
	}
	return hosts
}

// Names implements upstream.DNSDiscovery.
func (d *Discovery) Names(c *config.Cluster) []upstream.NameStatus {
	var statuses []upstream.NameStatus
	seen := make(map[string]struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range c.Hosts {
		domain, _ := splitAddress(c.Hosts[i].Address)
		if _, duplicate := seen[domain]; duplicate || domain == "" {
			continue
		}
		seen[domain] = struct{}{}
		if n := d.names[keyOf(domain, &c.DNS)]; n != nil {
			statuses = append(statuses, n.describe())
		}
	}
	return statuses
}

// addJitter returns d plus up to jitter, or if jitter is 0, d minus up to a tenth. Without jitter,
// Weft would query many names at the same time, and so would the proxies of a fleet.
func addJitter(d, jitter time.Duration) time.Duration {
	if jitter > 0 {
		return d + rand.N(jitter+1)
	}
	return d - rand.N(d/10+1)
}
