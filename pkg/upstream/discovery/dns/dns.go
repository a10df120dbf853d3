// Package dns owns the discovery of hosts by name: it resolves the names that the
// hosts of STRICT_DNS and LOGICAL_DNS clusters are configured with, again and
// again. In a STRICT_DNS cluster every address found is a host of its own; a
// LOGICAL_DNS cluster has one host, whose connections go to the first address of the
// newest answer.
//
//	Watch    which hosts a cluster has now                     dns.go
//	name     when its next lookup is due                       name.go
//	Lookup   which servers are asked for which names           resolver.go
//	observe  how long their answers hold                       observe.go
//
// The questions are asked by net.Resolver, not by a client of our own. It has what a
// stub resolver needs and what is easily got wrong: random ids and ports, connected
// sockets, a check of the question that an answer repeats, EDNS(0), TCP when an answer
// is cut short, chains of aliases, /etc/hosts, /etc/resolv.conf and its changes. What
// it does not tell, how long an answer holds, is read from the messages as they pass;
// what it has no setting for (servers, search domains, ndots, timeout and attempts of
// a cluster's own) is done around it.
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

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Resolver asks for addresses.
type Resolver interface {
	// Lookup returns the addresses of name in the family, at least one, and how
	// long they hold; 0 if that is not known. No address is an error.
	Lookup(ctx context.Context, family Family, name string) (addresses []netip.Addr, ttl time.Duration, err error)
}

// Family says which addresses are wanted, as config.DNS spells it.
type Family string

// The families. Auto asks for both and takes IPv4 if there is any: a name that
// has both rarely has IPv6 only in working order, and taking both would count
// every such host twice. V4Preferred says the same explicitly, All takes both. ""
// means Auto.
const (
	Auto        Family = "AUTO"
	V4Only      Family = "V4_ONLY"
	V6Only      Family = "V6_ONLY"
	V4Preferred Family = "V4_PREFERRED"
	All         Family = "ALL"
)

// Outcome is what became of a lookup.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota // with an address at least
	NoName                  // there is no such name, or it has no address of the family
	TimedOut                // nobody answered in time
	Failed                  // a server refused or failed
)

// Options are what a Discovery needs. The zero value is the usual one.
type Options struct {
	// Resolver returns the resolver that asks as d says. It is called once for each
	// name that is watched. Nil means System.
	Resolver func(d *config.DNS) Resolver
	// Count is told what became of each lookup, from any goroutine; may be nil.
	Count func(Outcome)
}

// Discovery resolves the names of clusters. It is an upstream.DNSDiscovery.
//
// Each name has a goroutine that resolves it, shared by all hosts of all clusters
// that want it resolved in the same way; each cluster has one that gathers what
// its names resolve to. Safe for concurrent use.
type Discovery struct {
	resolver func(*config.DNS) Resolver // immutable
	count    func(Outcome)              // immutable

	ctx   context.Context //nolint:containedctx // the Discovery's own life, not a caller's: Close ends it
	stop  context.CancelFunc
	tasks sync.WaitGroup
	limit chan struct{} // holds a token for each lookup under way

	mu    sync.Mutex
	names map[key]*name // guarded by mu
}

// key is a name and how it is resolved.
type key struct {
	name       string
	family     Family
	refresh    time.Duration
	respectTTL bool
	failure    [2]time.Duration // the first pause, and the longest
	jitter     time.Duration    // 0: up to a tenth less

	// Of the resolver; lists are joined by spaces.
	servers, search string
	ndots, attempts int
	timeout         time.Duration
}

// keyOf returns the key of a name as it is resolved for a cluster.
func keyOf(domain string, c *config.DNS) key {
	k := key{
		name:       domain,
		family:     Family(c.Family),
		refresh:    c.RefreshRate,
		respectTTL: c.RespectTTL,
		failure:    [2]time.Duration{c.FailureBase, c.FailureMax},
		jitter:     c.Jitter,
		servers:    strings.Join(c.Resolvers, " "),
		search:     strings.Join(c.Search, " "),
		ndots:      c.Ndots,
		attempts:   c.Attempts,
		timeout:    c.Timeout,
	}
	if k.family == "" {
		k.family = Auto
	}
	if k.refresh <= 0 {
		k.refresh = defaultRefresh
	}
	switch {
	case k.failure[0] <= 0:
		k.failure = [2]time.Duration{firstRetry, k.refresh}
	case k.failure[1] < k.failure[0]:
		k.failure[1] = k.failure[0]
	}
	return k
}

// maxLookups is how many names are resolved at a time: ten thousand names that
// are due together must not become ten thousand queries at once.
const maxLookups = 64

// New returns a discovery that watches nothing yet.
func New(o Options) *Discovery {
	if o.Resolver == nil {
		o.Resolver = System
	}
	if o.Count == nil {
		o.Count = func(Outcome) {}
	}
	d := &Discovery{resolver: o.Resolver, count: o.Count, limit: make(chan struct{}, maxLookups), names: make(map[key]*name)}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// Close ends all watches and returns when no goroutine is left. No Watch may
// follow.
func (d *Discovery) Close() {
	d.stop()
	d.tasks.Wait()
}

// Watch resolves the names of c's hosts. update is called when each of them was
// resolved or has failed once, and then whenever the addresses change. An address
// that is one already (an IP, a unix path) is passed on as it is. A host that has
// no hostname gets its name as that. Names without a port get 80.
//
// Hosts of a LOGICAL_DNS cluster keep their address, the name, and get the first one
// found as Target.
//
// A name that cannot be resolved is reported as an error and keeps the addresses
// that it had. stop returns when update has returned and will not be called
// again; it must not be called from update.
func (d *Discovery) Watch(c *config.Cluster, update func([]config.Host, error)) (stop func()) {
	ctx, cancel := context.WithCancel(d.ctx)
	w := &watch{poke: make(chan struct{}, 1), update: update}
	for i := range c.Hosts {
		w.targets = append(w.targets, d.target(w, c, &c.Hosts[i]))
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
		d.leave(w)
	}
}

// watch is a cluster that waits for addresses.
type watch struct {
	targets []target // immutable
	update  func([]config.Host, error)
	poke    chan struct{} // has room for one: something has changed

	// Owned by run.
	delivered []config.Host
	known     bool   // update was called with hosts
	reported  string // the problem that update was told of last; "": it is over
}

// target is a host as configured: with a name to resolve, or with none when its
// address is one already.
type target struct {
	host    config.Host
	name    *name
	port    string
	logical bool // the host is the name
}

// target enters w with the name of host.
func (d *Discovery) target(w *watch, c *config.Cluster, host *config.Host) target {
	domain, port := split(host.Address)
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

// split returns the name and port of an address; no name if there is nothing to
// resolve.
func split(address string) (domain, port string) {
	if strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@") {
		return "", "" // a unix socket
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

// leave ends the interest of w in its names; a name that nobody wants any more is
// not resolved any more.
func (d *Discovery) leave(w *watch) {
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

// wake makes run look at the names again.
func (w *watch) wake() {
	select {
	case w.poke <- struct{}{}:
	default: // it will, already
	}
}

// run calls update whenever there is something new.
func (w *watch) run(ctx context.Context, d *Discovery) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.poke:
		}
		hosts, complete, problem, err := w.gather(d)
		if !complete {
			continue
		}
		w.report(problem, err)
		if some := len(hosts) > 0 || err == nil; some && (!w.known || !reflect.DeepEqual(hosts, w.delivered)) {
			w.known, w.delivered = true, hosts
			w.update(hosts, nil)
		}
	}
}

// report passes an error on, once for as long as the problem stays the same.
func (w *watch) report(problem string, err error) {
	if problem != w.reported && err != nil {
		w.update(nil, err)
	}
	w.reported = problem
}

// gather returns the hosts that the targets stand for now. It is not complete
// while a name was not resolved for the first time. err names what could not be
// resolved the last time; problem is the same for errors that mean the same, though
// their texts tell of other ports.
func (w *watch) gather(d *Discovery) (hosts []config.Host, complete bool, problem string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var problems []error
	var same strings.Builder
	seen := make(map[*name]struct{})
	for _, t := range w.targets {
		if t.name == nil {
			hosts = append(hosts, t.host)
			continue
		}
		if !t.name.tried {
			return nil, false, "", nil
		}
		if _, again := seen[t.name]; !again && t.name.err != nil {
			problems = append(problems, fmt.Errorf("resolving %s: %w", t.name.key.name, t.name.err))
			fmt.Fprintf(&same, "%s %d ", t.name.key.name, outcomeOf(t.name.err))
		}
		seen[t.name] = struct{}{}
		hosts = t.appendHosts(hosts)
	}
	return hosts, true, same.String(), errors.Join(problems...)
}

// appendHosts appends the hosts that a name stands for now. Discovery.mu is held.
func (t *target) appendHosts(hosts []config.Host) []config.Host {
	host := t.host
	if t.logical {
		if t.name.first.IsValid() {
			host.Target = net.JoinHostPort(t.name.first.String(), t.port)
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

// Names is upstream.DNSDiscovery's.
func (d *Discovery) Names(c *config.Cluster) []upstream.NameStatus {
	var all []upstream.NameStatus
	seen := make(map[string]struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range c.Hosts {
		domain, _ := split(c.Hosts[i].Address)
		if _, again := seen[domain]; again || domain == "" {
			continue
		}
		seen[domain] = struct{}{}
		if n := d.names[keyOf(domain, &c.DNS)]; n != nil {
			all = append(all, n.describe())
		}
	}
	return all
}

// jittered returns d or up to jitter more, if there is one, else up to a tenth less,
// so that names and proxies do not ask in step.
func jittered(d, jitter time.Duration) time.Duration {
	if jitter > 0 {
		return d + rand.N(jitter+1)
	}
	return d - rand.N(d/10+1)
}
