package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/metrics/metricstest"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/network/tcpproxy"
	"github.com/weft-proxy/weft/pkg/filter/stream/adaptiveconcurrency"
	"github.com/weft-proxy/weft/pkg/filter/stream/compressor"
	"github.com/weft-proxy/weft/pkg/filter/stream/cors"
	"github.com/weft-proxy/weft/pkg/filter/stream/csrf"
	"github.com/weft-proxy/weft/pkg/filter/stream/decompressor"
	"github.com/weft-proxy/weft/pkg/filter/stream/dubbostream"
	"github.com/weft-proxy/weft/pkg/filter/stream/extauthz"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/flowcontrol"
	"github.com/weft-proxy/weft/pkg/filter/stream/gzip"
	"github.com/weft-proxy/weft/pkg/filter/stream/headermutation"
	"github.com/weft-proxy/weft/pkg/filter/stream/headertometadata"
	"github.com/weft-proxy/weft/pkg/filter/stream/healthcheck"
	"github.com/weft-proxy/weft/pkg/filter/stream/ipaccess"
	"github.com/weft-proxy/weft/pkg/filter/stream/istiostats"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
	"github.com/weft-proxy/weft/pkg/filter/stream/localratelimit"
	"github.com/weft-proxy/weft/pkg/filter/stream/mirror"
	"github.com/weft-proxy/weft/pkg/filter/stream/payloadlimit"
	"github.com/weft-proxy/weft/pkg/filter/stream/peermetadata"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/stream/http1"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// rig is a Server with the engines, filters and policies of the tests.
type rig struct {
	t       testing.TB
	server  *Server
	metrics *metrics.Registry
	log     *logBuffer
}

// builtFilters returns the stream filters of cmd/weft/registry.go except faulttolerance, which only
// configures clusters.
func builtFilters() []filter.StreamFilterFactory {
	return []filter.StreamFilterFactory{
		adaptiveconcurrency.Factory(), compressor.Factory(), cors.Factory(), csrf.Factory(), decompressor.Factory(), dubbostream.Factory(), extauthz.Factory(),
		fault.Factory(), flowcontrol.Factory(), gzip.Factory(), headermutation.Factory(), headertometadata.Factory(), healthcheck.Factory(),
		ipaccess.Factory(), localratelimit.Factory(), jwtauthn.Factory(), mirror.Factory(), payloadlimit.Factory(), rbac.Factory(),
		istiostats.Factory(), peermetadata.Factory(),
	}
}

// builtConnectionFilters returns the connection filters of cmd/weft/registry.go.
func builtConnectionFilters() []filter.ConnectionFilterFactory {
	return []filter.ConnectionFilterFactory{istiostats.ConnectionFactory(), rbac.ConnectionFactory()}
}

// newRig returns a server without a configuration and drains it at the end of the test. extra are
// additional filters.
func newRig(t testing.TB, extra ...filter.StreamFilterFactory) *rig {
	t.Helper()
	return newRigOn(t, nil, extra...)
}

// newRigOn is newRig with the file system that contains proc and sys; nil means that of the
// machine.
func newRigOn(t testing.TB, system fs.FS, extra ...filter.StreamFilterFactory) *rig {
	t.Helper()
	o := metrics.Options{Reasons: []string{protocol.ReasonNone.String()}}
	for r := range protocol.Reasons() {
		o.Reasons = append(o.Reasons, r.String())
	}
	for c := range network.CloseReasons() {
		o.CloseReasons = append(o.CloseReasons, c.String())
	}
	r := &rig{t: t, metrics: metrics.New(o), log: new(logBuffer)}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.server = NewServer(Options{
		Protocols:         []stream.Protocol{http1.Protocol()},
		StreamFilters:     append(builtFilters(), extra...),
		ConnectionFilters: builtConnectionFilters(),
		TCPProxy: func(cfg config.TCPProxy, forwarder *TCPForwarder, log *slog.Logger) network.Handler {
			return tcpproxy.New(cfg, forwarder, log)
		},
		Upstream: upstream.Options{
			Policies: map[config.LBPolicy]balance.NewFunc{config.RoundRobin: balance.RoundRobin},
			Meter:    Meter{r.metrics},
			Log:      log,
		},
		Logs:    logfile.NewSet(logfile.SetOptions{Log: log}),
		Metrics: r.metrics,
		Log:     log,
		System:  system,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r.server.Drain(ctx)
	})
	return r
}

// apply makes c the active configuration and fails the test on an error.
func (r *rig) apply(c *config.Snapshot) {
	r.t.Helper()
	if err := r.server.Apply(context.Background(), config.FullDelta(c)); err != nil {
		r.t.Fatal(err)
	}
}

// address returns the address of the listener called name.
func (r *rig) address(name string) string {
	r.t.Helper()
	for _, l := range r.server.Describe() {
		if l.Name == name {
			return l.Address
		}
	}
	r.t.Fatalf("listener %q does not exist", name)
	return ""
}

// value returns the sum of a metric's series that have the label values; "" matches any value.
func (r *rig) value(name string, labels ...string) float64 {
	r.t.Helper()
	return metricstest.Value(r.t, r.metrics, name, labels...)
}

// await waits until value returns want. The server records an exchange after the last byte of its
// response, which the client may have read before.
func (r *rig) await(want float64, name string, labels ...string) {
	r.t.Helper()
	r.until(func() bool { return r.value(name, labels...) == want }, func() {
		r.t.Errorf("%s%q = %v, want %v", name, labels, r.value(name, labels...), want)
	})
}

// until waits until done returns true. After a timeout it calls onTimeout.
func (r *rig) until(done func() bool, onTimeout func()) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		if done() {
			return
		}
		<-tick.C
	}
	onTimeout()
}

// logBuffer is an io.Writer for a log. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// capabilities returns the capabilities for parsing test configurations.
func capabilities(extra ...filter.StreamFilterFactory) configjson.Capabilities {
	return configjson.Capabilities{
		Protocols:         []config.Protocol{config.HTTP1},
		NetworkFilters:    []string{configjson.ProxyFilter, configjson.TCPProxyFilter},
		ConnectionFilters: builtConnectionFilters(),
		StreamFilters:     append(builtFilters(), extra...),
		ClusterTypes:      []config.ClusterType{config.ClusterStatic},
		Policies:          []config.LBPolicy{config.RoundRobin},
	}
}

// parse parses a configuration and fails the test on any problem.
func parse(t testing.TB, text string, extra ...filter.StreamFilterFactory) *config.Snapshot {
	t.Helper()
	c, problems := configjson.Parse("test.json", []byte(text), capabilities(extra...), configjson.Options{})
	if c == nil {
		t.Fatal(problems)
	}
	return c
}

// setup builds a configuration from parts of config.json. The zero value of a part omits it.
type setup struct {
	listener string // members of the listener "front", such as `"connection_idle_timeout": "1s"`
	proxy    string // additional members of its proxy filter
	filters  string // elements of stream_filters
	routes   string // elements of the only virtual host's routers
	clusters string // elements of the clusters
	address  string // listener address; "": any loopback port
	server   string // additional members of the server
}

// snapshot returns the configuration.
func (s setup) snapshot(t testing.TB, extra ...filter.StreamFilterFactory) *config.Snapshot {
	t.Helper()
	if s.address == "" {
		s.address = "127.0.0.1:0"
	}
	return parse(t, `{"servers": [{`+member(s.server)+`
		"listeners": [{"name": "front", "address": "`+s.address+`", `+member(s.listener)+`
			"stream_filters": [`+s.filters+`],
			"filter_chains": [{"filters": [{"type": "proxy", "config": {`+member(s.proxy)+`
				"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [`+s.routes+`]}]}]
	}], "cluster_manager": {"clusters": [`+s.clusters+`]}}`, extra...)
}

func member(text string) string {
	if text == "" {
		return ""
	}
	return text + ", "
}

// routeTo returns a catch-all route to a cluster.
func routeTo(cluster string) string {
	return `{"name": "to-` + cluster + `", "match": {"prefix": "/"}, "route": {"cluster_name": "` + cluster + `"}}`
}

// cluster returns a cluster with these hosts.
func cluster(name string, hosts ...string) string {
	list := make([]string, len(hosts))
	for i, h := range hosts {
		list[i] = `{"address": "` + h + `"}`
	}
	return `{"name": "` + name + `", "lb_type": "LB_ROUNDROBIN", "hosts": [` + strings.Join(list, ", ") + `]}`
}

// run applies s on a new rig and returns the rig and the listener's address.
func (s setup) run(t testing.TB, extra ...filter.StreamFilterFactory) (*rig, string) {
	t.Helper()
	r := newRig(t, extra...)
	r.apply(s.snapshot(t, extra...))
	return r, r.address("front")
}

// origin serves requests with a net/http server and returns its address.
func origin(t testing.TB, handler http.HandlerFunc) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveAt(t, ln, &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute})
}

// serveAt makes s serve ln until the end of the test.
func serveAt(t testing.TB, ln net.Listener, s *http.Server) (address string) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return ln.Addr().String()
}

// respondText returns a handler that responds with a text.
func respondText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// testClient is a client connection to a listener.
type testClient struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func dialClient(t testing.TB, address string) *testClient {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	t.Cleanup(func() { _ = nc.Close() })
	return &testClient{nc.(*net.TCPConn), t, bufio.NewReader(nc)}
}

// testResponse is a response that was read to its end.
type testResponse struct {
	*http.Response
	body string
}

// roundTrip sends a request and reads the response.
func (c *testClient) roundTrip(head string) testResponse {
	c.t.Helper()
	c.send(head)
	return c.read(head)
}

func (c *testClient) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// read reads the response to a request that starts with head.
func (c *testClient) read(head string) testResponse {
	c.t.Helper()
	method, _, _ := strings.Cut(head, " ")
	response, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("reading the response: %v", err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatalf("reading the body: %v", err)
	}
	return testResponse{response, string(body)}
}

// ended reports whether the next read fails: the proxy has closed the connection, or the deadline
// of dialClient has passed.
func (c *testClient) ended() bool {
	_, err := c.r.ReadByte()
	return err != nil
}

// get returns a request for a path.
func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: shop.test\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

// roundTrip is testClient.roundTrip on a new connection.
func roundTrip(t testing.TB, address, head string) testResponse {
	t.Helper()
	c := dialClient(t, address)
	defer c.Close()
	return c.roundTrip(head)
}

// failingHandler returns a handler that responds with 503 and sends its name to attempts.
func failingHandler(name string, attempts chan<- string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		attempts <- name
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
