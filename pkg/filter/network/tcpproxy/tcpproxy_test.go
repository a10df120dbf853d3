package tcpproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/network"
)

// fakeForwarder connects to every cluster with dial, and records the arguments of the last call.
type fakeForwarder struct {
	dial     func() net.Conn
	err      error
	target   config.TCPTarget
	attempts int
}

func (f *fakeForwarder) Forward(_ context.Context, _ *network.Conn, target config.TCPTarget, attempts int, relay func(*network.Conn, *network.RelayCounters) error) error {
	f.target, f.attempts = target, attempts
	if f.err != nil || f.dial == nil {
		return f.err
	}
	conn := network.NewConn(f.dial())
	defer conn.Close()
	return relay(conn, new(network.RelayCounters))
}

func newProxy(cfg config.TCPProxy, forwarder Forwarder) *Proxy {
	return New(cfg, forwarder, slog.New(slog.DiscardHandler))
}

func TestReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := regexp.MustCompile(`(?m)^## .*$`).FindAllString(string(page), -1),
		[]string{"## What it does", "## Configuration", "## Example", "## Errors", "## Metrics"}; !slices.Equal(got, want) {
		t.Errorf("sections %q, want %q", got, want)
	}
	defined := map[string]bool{}
	for _, m := range metrics.Metrics() {
		defined[m.Name] = true
	}
	for _, name := range regexp.MustCompile(`weft_[a-z_]+`).FindAllString(string(page), -1) {
		if !defined[name] {
			t.Errorf("the metric %s does not exist", name)
		}
	}
	example := regexp.MustCompile("(?ms)^```json config=tcp_proxy.json\n(.*?)^```$").FindSubmatch(page)
	if example == nil {
		t.Fatal("no example")
	}
	c, problems := configjson.Parse("README.md", example[1], configjson.Capabilities{
		NetworkFilters: []string{configjson.TCPProxyFilter},
		ClusterTypes:   []config.ClusterType{config.ClusterStatic},
		Policies:       []config.LBPolicy{config.RoundRobin},
	}, configjson.Options{})
	if c == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	cfg := *c.Listeners[0].FilterChains[0].TCPProxy
	if cfg.IdleTimeout != time.Hour || cfg.MaxConnectAttempts != 3 {
		t.Errorf("idle_timeout %v, max_connect_attempts %d; want %v, 3", cfg.IdleTimeout, cfg.MaxConnectAttempts, time.Hour)
	}
	p := newProxy(cfg, &fakeForwarder{})
	local := netip.MustParseAddrPort("127.0.0.1:5433")
	for client, want := range map[string]string{"10.1.2.3:40000": "replica", "[fd00::1]:40000": "replica", "10.2.2.3:40000": "primary"} {
		if got := p.route(netip.MustParseAddrPort(client), local); got != want {
			t.Errorf("cluster for a connection from %s = %q, want %q", client, got, want)
		}
	}
	got, err := echoText(t, p, "hello")
	if err != nil || got != "hello" {
		t.Errorf("the example echoed %q, %v; want %q", got, err, "hello")
	}
}

// echoText sends text through p to an echo host and returns the echoed text.
func echoText(t *testing.T, p *Proxy, text string) (string, error) {
	t.Helper()
	proxy := startProxy(t, p)
	conn := proxy.dial()
	go func() {
		_, _ = io.WriteString(conn, text)
		_ = conn.CloseWrite()
	}()
	echoed, err := io.ReadAll(conn)
	return string(echoed), err
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

func TestFirstMatchingRouteWins(t *testing.T) {
	p := newProxy(config.TCPProxy{Cluster: "default", Routes: []config.TCPRoute{
		{Cluster: "source", SourceAddrs: prefixes("10.0.0.0/8", "192.168.0.0/16")},
		{Cluster: "source port", SourcePorts: []config.PortRange{{First: 99, Last: 99}, {First: 1000, Last: 1999}}},
		{Cluster: "destination", DestinationAddrs: prefixes("172.16.0.0/12")},
		{Cluster: "destination port", DestinationPorts: []config.PortRange{{First: 3306, Last: 3307}}},
		{Cluster: "six", SourceAddrs: prefixes("2001:db8::/32")},
		{Cluster: "link local", SourceAddrs: prefixes("fe80::/10")},
		{Cluster: "both", SourceAddrs: prefixes("203.0.113.0/24"), DestinationPorts: []config.PortRange{{First: 443, Last: 443}}},
		{Cluster: "mapped", SourceAddrs: prefixes("::ffff:198.51.100.0/120")},
	}}, &fakeForwarder{})
	for _, test := range []struct{ name, source, destination, want string }{
		{"first range", "10.1.2.3:40000", "127.0.0.1:80", "source"},
		{"second range", "192.168.255.255:40000", "127.0.0.1:80", "source"},
		{"IPv4 address on an IPv6 socket", "[::ffff:10.1.2.3]:40000", "[::1]:80", "source"},
		{"first of two matching routes", "10.1.2.3:99", "172.16.0.1:3306", "source"},
		{"single port", "127.0.0.1:99", "127.0.0.1:80", "source port"},
		{"first port of a range", "127.0.0.1:1000", "127.0.0.1:80", "source port"},
		{"last port of a range", "127.0.0.1:1999", "127.0.0.1:80", "source port"},
		{"port after the range", "127.0.0.1:2000", "127.0.0.1:80", "default"},
		{"destination", "127.0.0.1:40000", "172.31.255.255:80", "destination"},
		{"mapped destination", "127.0.0.1:40000", "[::ffff:172.16.0.1]:80", "destination"},
		{"outside the range", "127.0.0.1:40000", "172.32.0.0:80", "default"},
		{"destination port", "127.0.0.1:40000", "127.0.0.1:3307", "destination port"},
		{"IPv6", "[2001:db8:1::1]:40000", "[::1]:80", "six"},
		{"address with a zone", "[fe80::1%eth0]:40000", "[::1]:80", "link local"},
		{"all conditions", "203.0.113.9:40000", "127.0.0.1:443", "both"},
		{"one of two conditions", "203.0.113.9:40000", "127.0.0.1:80", "default"},
		{"range of mapped addresses", "198.51.100.7:40000", "127.0.0.1:80", "mapped"},
		{"no match", "127.0.0.1:40000", "127.0.0.1:80", "default"},
	} {
		t.Run(test.name, func(t *testing.T) {
			source := routeAddr(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.source)))
			destination := routeAddr(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.destination)))
			if got := p.route(source, destination); got != test.want {
				t.Errorf("from %s to %s: %q, want %q", test.source, test.destination, got, test.want)
			}
		})
	}
	unix := routeAddr(&net.UnixAddr{Name: "/run/app.sock", Net: "unix"})
	if got := p.route(unix, unix); got != "default" {
		t.Errorf("cluster for a unix socket = %q, want %q", got, "default")
	}
}

func TestNewDoesNotChangeConfig(t *testing.T) {
	cfg := config.TCPProxy{Routes: []config.TCPRoute{{Cluster: "a", SourceAddrs: prefixes("::ffff:198.51.100.0/120")}}}
	newProxy(cfg, &fakeForwarder{})
	if got, want := cfg.Routes[0].SourceAddrs[0], netip.MustParsePrefix("::ffff:198.51.100.0/120"); got != want {
		t.Errorf("New changed the range to %v, want %v", got, want)
	}
}

func TestMaxConnectAttempts(t *testing.T) {
	for configured, want := range map[int]int{0: 1, 1: 1, 7: 7} {
		forwarder := &fakeForwarder{err: errors.New("connection refused")}
		server, client := net.Pipe()
		err := newProxy(config.TCPProxy{Cluster: "a", MaxConnectAttempts: configured}, forwarder).ServeConn(t.Context(), network.NewConn(server))
		if !errors.Is(err, forwarder.err) {
			t.Errorf("ServeConn = %v, want %v", err, forwarder.err)
		}
		if forwarder.attempts != want || forwarder.target.Cluster != "a" {
			t.Errorf("max_connect_attempts %d: Forward was called with %d attempts for cluster %q; want %d, %q", configured, forwarder.attempts, forwarder.target.Cluster, want, "a")
		}
		_ = client.Close()
		_ = server.Close()
	}
}

func TestNoRouteClosesConnection(t *testing.T) {
	forwarder := &fakeForwarder{}
	conn := startProxy(t, newProxy(config.TCPProxy{Routes: []config.TCPRoute{{Cluster: "a", SourceAddrs: prefixes("10.0.0.0/8")}}}, forwarder)).dial()
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d bytes, %v; want io.EOF", n, err)
	}
	if forwarder.target.Cluster != "" {
		t.Errorf("the connection was forwarded to %q, want no cluster", forwarder.target.Cluster)
	}
}

// testProxy is a proxy in front of a host that the test serves, on loopback.
type testProxy struct {
	t        *testing.T
	listener *network.Listener
	counter  *counter
}

// counter counts connections.
type counter struct{ accepted, closed atomic.Int64 }

func (c *counter) Accepted()                  { c.accepted.Add(1) }
func (c *counter) Closed(network.CloseReason) { c.closed.Add(1) }
func (*counter) Refused()                     {}
func (*counter) AcceptError()                 {}

// startProxy serves p. If p's forwarder has no dial function, startProxy sets one that connects to
// an echo host.
func startProxy(t *testing.T, p *Proxy) *testProxy {
	t.Helper()
	proxy := &testProxy{t: t, counter: new(counter)}
	if f := p.forwarder.(*fakeForwarder); f.dial == nil {
		f.dial = dialer(t, echo)
	}
	var err error
	proxy.listener, err = network.Listen(t.Context(), network.ListenOptions{Name: "front", Network: "tcp", Address: "127.0.0.1:0", Counter: proxy.counter}, p)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- proxy.listener.Serve(t.Context()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if forceClosed := proxy.listener.Drain(ctx); forceClosed > 0 {
			t.Errorf("%d connections were force-closed, want 0", forceClosed)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return proxy
}

// dialer listens, serves each connection with serve, and returns a function that connects.
func dialer(t *testing.T, serve func(conn *net.TCPConn)) func() net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(withDeadline(nc))
		}
	}()
	return func() net.Conn {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			panic(err) // the test's own listener on loopback
		}
		return nc
	}
}

// withDeadline sets a deadline on nc, so that the test does not hang.
func withDeadline(nc net.Conn) *net.TCPConn {
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	return nc.(*net.TCPConn)
}

func echo(conn *net.TCPConn) {
	_, _ = io.Copy(conn, conn)
	_ = conn.Close()
}

func (p *testProxy) dial() *net.TCPConn {
	p.t.Helper()
	nc, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = nc.Close() })
	return withDeadline(nc)
}

func TestHalfClose(t *testing.T) {
	requests := make(chan string, 1) // requests that the host read
	for _, test := range []struct {
		name  string
		host  func(conn *net.TCPConn) // the host's side of the connection
		front func(conn *net.TCPConn) (string, error)
	}{
		{
			name: "client closes first",
			host: func(conn *net.TCPConn) {
				request, _ := io.ReadAll(conn)
				_, _ = conn.Write(append([]byte("response to "), request...))
				_ = conn.Close()
			},
			front: func(conn *net.TCPConn) (string, error) {
				if _, err := io.WriteString(conn, "request"); err != nil {
					return "", err
				}
				if err := conn.CloseWrite(); err != nil {
					return "", err
				}
				got, err := io.ReadAll(conn)
				return string(got), err
			},
		},
		{
			name: "host closes first",
			host: func(conn *net.TCPConn) {
				_, _ = io.WriteString(conn, "response to ")
				_ = conn.CloseWrite()
				request, _ := io.ReadAll(conn)
				requests <- string(request)
				_ = conn.Close()
			},
			front: func(conn *net.TCPConn) (string, error) {
				got, err := io.ReadAll(conn)
				if err != nil {
					return "", err
				}
				if _, err := io.WriteString(conn, "request"); err != nil {
					return "", err
				}
				err = conn.CloseWrite()
				return string(got) + <-requests, err
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := startProxy(t, newProxy(config.TCPProxy{Cluster: "a"}, &fakeForwarder{dial: dialer(t, test.host)})).dial()
			if got, err := test.front(conn); err != nil || got != "response to request" {
				t.Errorf("got %q, %v, want %q", got, err, "response to request")
			}
		})
	}
}

// TestLargeTransfer verifies a transfer of 16 MiB in both directions concurrently, which is more
// than the sockets buffer.
func TestLargeTransfer(t *testing.T) {
	const size = 16 << 20
	sent := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(sent); err != nil {
		t.Fatal(err)
	}
	got, err := echoBytes(t, sent)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the echo has %d bytes, want the same %d bytes; error: %v", len(got), size, err)
	}
}

func echoBytes(t *testing.T, sent []byte) ([]byte, error) {
	t.Helper()
	conn := startProxy(t, newProxy(config.TCPProxy{Cluster: "a"}, &fakeForwarder{})).dial()
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	return io.ReadAll(conn)
}

func TestConnectionsAreCounted(t *testing.T) {
	proxy := startProxy(t, newProxy(config.TCPProxy{Cluster: "a"}, &fakeForwarder{}))
	conn := proxy.dial()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if accepted, closed := proxy.counter.accepted.Load(), proxy.counter.closed.Load(); accepted != 1 || closed != 0 {
		t.Errorf("open connection: %d accepted, %d closed, want 1 and 0", accepted, closed)
	}
	_ = conn.Close()
	proxy.listener.Drain(t.Context())
	if accepted, closed := proxy.counter.accepted.Load(), proxy.counter.closed.Load(); accepted != 1 || closed != 1 {
		t.Errorf("closed connection: %d accepted, %d closed, want 1 and 1", accepted, closed)
	}
}

// startIdleProxy serves one connection over pipes in fake time.
func startIdleProxy(t *testing.T, idleTimeout time.Duration) (client, host net.Conn, served chan error) {
	t.Helper()
	downstream, client := net.Pipe()
	host, upstream := net.Pipe()
	p := newProxy(config.TCPProxy{Cluster: "a", IdleTimeout: idleTimeout}, &fakeForwarder{dial: func() net.Conn { return upstream }})
	served = make(chan error, 1)
	go func() {
		conn := network.NewConn(downstream)
		served <- p.ServeConn(t.Context(), conn)
		_ = conn.Close()
	}()
	return client, host, served
}

func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, host, served := startIdleProxy(t, 10*time.Second)
		start := time.Now()
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("read an unexpected byte")
		}
		if elapsed := time.Since(start); elapsed != 10*time.Second {
			t.Errorf("the connection closed after %v, want 10s", elapsed)
		}
		if _, err := host.Read(make([]byte, 1)); err == nil {
			t.Error("the connection to the host is still open")
		}
		if err := <-served; err != nil {
			t.Errorf("ServeConn = %v, want nil", err)
		}
	})
}

// TestTrafficInOneDirectionPreventsIdleTimeout verifies that bytes in one direction keep the
// connection open while the other direction is silent for longer than the idle timeout.
func TestTrafficInOneDirectionPreventsIdleTimeout(t *testing.T) {
	for _, side := range []string{"client", "host"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sender, receiver, served := startIdleProxy(t, 10*time.Second)
				if side == "host" {
					sender, receiver = receiver, sender
				}
				ticker := time.NewTicker(6 * time.Second)
				defer ticker.Stop()
				for range 10 {
					<-ticker.C
					if _, err := sender.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(receiver, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				last := time.Now()
				if err := <-served; err != nil || time.Since(last) != 10*time.Second {
					t.Errorf("ServeConn = %v, %v after the last byte; want 10s", err, time.Since(last))
				}
			})
		})
	}
}

func TestZeroIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, host, served := startIdleProxy(t, 0)
		<-time.After(24 * time.Hour)
		go func() { _, _ = client.Write([]byte("x")) }()
		if _, err := io.ReadFull(host, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		_ = client.Close()
		_ = host.Close()
		<-served
	})
}

func TestWeightedClusters(t *testing.T) {
	p := newProxy(config.TCPProxy{
		Metadata:         map[string]string{"a": "filter", "b": "filter"},
		WeightedClusters: []config.WeightedTCPCluster{{Cluster: "one", Weight: 1}, {Cluster: "two", Weight: 3, Metadata: map[string]string{"b": "two"}}},
	}, &fakeForwarder{})
	source := netip.MustParseAddrPort("10.0.0.1:1")
	for point, want := range []config.TCPTarget{
		{Cluster: "one", Metadata: map[string]string{"a": "filter", "b": "filter"}},
		{Cluster: "two", Metadata: map[string]string{"a": "filter", "b": "two"}},
		{Cluster: "two", Metadata: map[string]string{"a": "filter", "b": "two"}},
		{Cluster: "two", Metadata: map[string]string{"a": "filter", "b": "two"}},
	} {
		p.random = func(n uint64) uint64 {
			if n != 4 {
				t.Errorf("the sum of the weights is %d, want 4", n)
			}
			return uint64(point)
		}
		if got := p.target(source, source); !reflect.DeepEqual(got, want) {
			t.Errorf("point %d: target %+v, want %+v", point, got, want)
		}
	}
}

func TestHashOfSourceAddress(t *testing.T) {
	p := newProxy(config.TCPProxy{Cluster: "a", HashSourceIP: true}, &fakeForwarder{})
	hash := func(source string) uint64 {
		return p.target(netip.MustParseAddrPort(source), netip.AddrPort{}).Hash
	}
	if a, b := hash("10.0.0.1:1"), hash("10.0.0.1:2"); a != b || a == 0 {
		t.Errorf("hashes of two connections from one address are %d and %d, want the same, not 0", a, b)
	}
	if a, b := hash("10.0.0.1:1"), hash("10.0.0.2:1"); a == b {
		t.Errorf("the hash of two addresses is %d", a)
	}
	if got := p.target(netip.AddrPort{}, netip.AddrPort{}).Hash; got != 0 {
		t.Errorf("hash of a connection without an address = %d, want 0", got)
	}
}

// TestMaxDuration verifies that a connection ends after its maximum duration although bytes move.
func TestMaxDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, downstream := net.Pipe()
		upstream, host := net.Pipe()
		p := newProxy(config.TCPProxy{Cluster: "a", MaxDuration: 3 * time.Second, IdleTimeout: time.Hour}, &fakeForwarder{dial: func() net.Conn { return upstream }})
		var peers sync.WaitGroup
		peers.Go(func() { _, _ = io.Copy(io.Discard, host) })
		peers.Go(func() {
			for {
				if _, err := client.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(time.Second / 2)
			}
		})
		start := time.Now()
		conn := network.NewConn(downstream)
		if err := p.ServeConn(t.Context(), conn); err != nil {
			t.Errorf("ServeConn = %v, want nil", err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("the connection ended after %v, want 3 s", took)
		}
		_, _, _ = conn.Close(), client.Close(), host.Close()
		peers.Wait()
	})
}
