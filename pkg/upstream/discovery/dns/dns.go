// Package dns owns the discovery of hosts by name: it resolves the names that
// the hosts of STRICT_DNS clusters are configured with, again and again, and
// every address found is a host of its own.
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
// every such host twice. "" means Auto.
const (
	Auto   Family = "AUTO"
	V4Only Family = "V4_ONLY"
	V6Only Family = "V6_ONLY"
)

// Options are what a Discovery needs. The zero value is the usual one.
type Options struct {
	// Resolver returns the resolver that asks these servers (ip:port); none means
	// the system's. It is called once for each name that is watched. Nil means
	// System.
	Resolver func(servers []string) Resolver
}

// Discovery resolves the names of clusters. It is an upstream.Discovery.
//
// Each name has a goroutine that resolves it, shared by all hosts of all clusters
// that want it resolved in the same way; each cluster has one that gathers what
// its names resolve to. Safe for concurrent use.
type Discovery struct {
	resolver func([]string) Resolver

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
	servers    string // joined by spaces
	refresh    time.Duration
	respectTTL bool
}

// maxLookups is how many names are resolved at a time: ten thousand names that
// are due together must not become ten thousand queries at once.
const maxLookups = 64

// New returns a discovery that watches nothing yet.
func New(o Options) *Discovery {
	if o.Resolver == nil {
		o.Resolver = System
	}
	d := &Discovery{resolver: o.Resolver, limit: make(chan struct{}, maxLookups), names: make(map[key]*name)}
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
	known     bool // update was called with hosts
	problem   string
}

// target is a host as configured: with a name to resolve, or with none when its
// address is one already.
type target struct {
	host config.Host
	name *name
	port string
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
	k := key{
		name:       domain,
		family:     Family(c.DNS.Family),
		servers:    strings.Join(c.DNS.Resolvers, " "),
		refresh:    c.DNS.RefreshRate,
		respectTTL: c.DNS.RespectTTL,
	}
	if k.family == "" {
		k.family = Auto
	}
	if k.refresh <= 0 {
		k.refresh = defaultRefresh
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[k]
	if n == nil {
		ctx, cancel := context.WithCancel(d.ctx)
		n = &name{key: k, resolver: d.resolver(c.DNS.Resolvers), cancel: cancel, watches: make(map[*watch]struct{})}
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
		hosts, complete, err := w.gather(d)
		if !complete {
			continue
		}
		w.report(err)
		if some := len(hosts) > 0 || err == nil; some && (!w.known || !reflect.DeepEqual(hosts, w.delivered)) {
			w.known, w.delivered = true, hosts
			w.update(hosts, nil)
		}
	}
}

// report passes an error on, once for as long as it stays the same.
func (w *watch) report(err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != w.problem && err != nil {
		w.update(nil, err)
	}
	w.problem = problem
}

// gather returns the hosts that the targets stand for now. It is not complete
// while a name was not resolved for the first time. err names what could not be
// resolved the last time.
func (w *watch) gather(d *Discovery) (hosts []config.Host, complete bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var problems []error
	seen := make(map[*name]struct{})
	for _, t := range w.targets {
		if t.name == nil {
			hosts = append(hosts, t.host)
			continue
		}
		if !t.name.tried {
			return nil, false, nil
		}
		if _, again := seen[t.name]; !again && t.name.err != nil {
			problems = append(problems, fmt.Errorf("resolving %s: %w", t.name.key.name, t.name.err))
		}
		seen[t.name] = struct{}{}
		for _, a := range t.name.addresses {
			host := t.host
			host.Address = net.JoinHostPort(a.String(), t.port)
			hosts = append(hosts, host)
		}
	}
	return hosts, true, errors.Join(problems...)
}

// jittered returns d or up to a tenth less, so that names and proxies do not ask
// in step.
func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/10+1)
}
