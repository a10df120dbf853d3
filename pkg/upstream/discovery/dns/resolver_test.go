package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/weft-proxy/weft/pkg/config"
)

// noLeaks checks for leaked goroutines when the test has ended and its servers have stopped.
func noLeaks(t *testing.T) {
	t.Helper()
	ignored := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignored) })
}

// nameServer is a DNS server on the loopback interface.
type nameServer struct {
	address      string
	mu           sync.Mutex
	records      []string // guarded by mu; lines of a zone file
	responseCode int      // guarded by mu; response code to send instead of answers; 0: send answers
	queryCount   int      // guarded by mu
}

func startServer(t *testing.T, records ...string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{address: conn.LocalAddr().String(), records: records}
	ready := make(chan struct{})
	server := &wire.Server{PacketConn: conn, Handler: wire.HandlerFunc(s.handleQuery), NotifyStartedFunc: func() { close(ready) }}
	done := make(chan error, 1)
	go func() { done <- server.ActivateAndServe() }()
	<-ready
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *nameServer) handleQuery(w wire.ResponseWriter, query *wire.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queryCount++
	reply := new(wire.Msg).SetReply(query)
	reply.Rcode, reply.Authoritative = s.responseCode, true
	question := query.Question[0]
	exists := false
	for _, line := range s.records {
		record, err := wire.NewRR(line)
		if err != nil {
			panic(err)
		}
		if record.Header().Name != question.Name {
			continue
		}
		exists = true
		if record.Header().Rrtype == question.Qtype && s.responseCode == 0 {
			reply.Answer = append(reply.Answer, record)
		}
	}
	if !exists && s.responseCode == 0 {
		reply.Rcode = wire.RcodeNameError
	}
	if err := w.WriteMsg(reply); err != nil {
		panic(err)
	}
}

func (s *nameServer) fail(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responseCode = code
}

func (s *nameServer) queries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queryCount
}

func TestSystemLookup(t *testing.T) {
	noLeaks(t)
	s := startServer(t,
		"both.weft.test. 60 IN A 192.0.2.1",
		"both.weft.test. 40 IN A 192.0.2.2",
		"both.weft.test. 50 IN AAAA 2001:db8::1",
		"six.weft.test. 70 IN AAAA 2001:db8::6",
		"zero.weft.test. 0 IN A 192.0.2.3",
	)
	tests := []struct {
		name   string
		domain string
		family Family
		want   []string
		ttl    time.Duration
	}{
		{"IPv4 before IPv6", "both.weft.test.", Auto, []string{"192.0.2.1", "192.0.2.2"}, 40 * time.Second},
		{"IPv6 without IPv4", "six.weft.test.", Auto, []string{"2001:db8::6"}, 70 * time.Second},
		{"IPv4 only", "both.weft.test.", V4Only, []string{"192.0.2.1", "192.0.2.2"}, 40 * time.Second},
		{"IPv6 only", "both.weft.test.", V6Only, []string{"2001:db8::1"}, 50 * time.Second},
		{"TTL of 0", "zero.weft.test.", V4Only, []string{"192.0.2.3"}, time.Nanosecond},
		{"IPv4 only, no A record", "six.weft.test.", V4Only, nil, 0},
		{"unknown name", "none.weft.test.", Auto, nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addresses, ttl, err := System(&config.DNS{Resolvers: []string{s.address}}).Lookup(context.Background(), tt.family, tt.domain)
			var got []string
			for _, a := range addresses {
				got = append(got, a.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) || ttl != tt.ttl {
				t.Errorf("Lookup = %v for %v, want %v for %v", got, ttl, tt.want, tt.ttl)
			}
			var e *net.DNSError
			if tt.want == nil && (!errors.As(err, &e) || !e.IsNotFound) || tt.want != nil && err != nil {
				t.Errorf("Lookup error = %v; want not found: %v", err, tt.want == nil)
			}
		})
	}
}

func TestHostsFileHasNoTTL(t *testing.T) {
	addresses, ttl, err := System(&config.DNS{}).Lookup(context.Background(), V4Only, "localhost")
	if err != nil || !slices.Contains(addresses, netip.MustParseAddr("127.0.0.1")) || ttl != 0 {
		t.Errorf("Lookup(localhost) = %v for %v, %v, want 127.0.0.1 for 0s", addresses, ttl, err)
	}
}

func TestNextServerIsQueriedAfterFailure(t *testing.T) {
	failing, working := startServer(t), startServer(t, "a.weft.test. 60 IN A 192.0.2.1")
	failing.fail(wire.RcodeServerFailure)
	r := System(&config.DNS{Resolvers: []string{failing.address, working.address}})
	for range 3 {
		if addresses, _, err := r.Lookup(context.Background(), V4Only, "a.weft.test."); err != nil || len(addresses) != 1 {
			t.Fatalf("Lookup = %v, %v; want one address", addresses, err)
		}
	}
	before := failing.queries()
	if _, _, err := r.Lookup(context.Background(), V4Only, "a.weft.test."); err != nil {
		t.Fatal(err)
	}
	if after := failing.queries(); after != before {
		t.Error("the failed server was queried again after another had responded")
	}
}

func TestNextServerIsNotQueriedAfterNameError(t *testing.T) {
	first, second := startServer(t), startServer(t, "a.weft.test. 60 IN A 192.0.2.1")
	if _, _, err := System(&config.DNS{Resolvers: []string{first.address, second.address}}).Lookup(context.Background(), V4Only, "a.weft.test."); err == nil {
		t.Error("the name was found although the first server reports that it does not exist")
	}
	if n := second.queries(); n != 0 {
		t.Errorf("the second server was queried %d times, want 0", n)
	}
}

// TestErrorsNameQueriedServer verifies that errors name the queried server. net.Resolver
// would name a server of the system.
func TestErrorsNameQueriedServer(t *testing.T) {
	s := startServer(t)
	s.fail(wire.RcodeServerFailure)
	_, _, err := System(&config.DNS{Resolvers: []string{s.address}}).Lookup(context.Background(), V4Only, "a.weft.test.")
	if err == nil || !strings.Contains(err.Error(), s.address) {
		t.Errorf("Lookup = %v, want it to name %s", err, s.address)
	}
}

// TestCloseDoesNotWaitForServer verifies that Close returns and no goroutine leaks while a server
// does not respond.
func TestCloseDoesNotWaitForServer(t *testing.T) {
	noLeaks(t)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := New(Options{})
	c := strictCluster(time.Minute, "a.weft.test.:80")
	c.DNS.Resolvers = []string{conn.LocalAddr().String()}
	d.Watch(c, func([]config.Host, error) {})
	if _, _, err := conn.ReadFrom(make([]byte, 512)); err != nil { // the query has arrived
		t.Fatal(err)
	}
	start := time.Now()
	d.Close()
	if elapsed := time.Since(start); elapsed > 2*time.Second {
		t.Errorf("Close took %v, want at most 2s", elapsed)
	}
}

func TestWatchWithDNSServer(t *testing.T) {
	noLeaks(t)
	s := startServer(t, "a.weft.test. 60 IN A 192.0.2.1")
	d := New(Options{})
	defer d.Close()
	c := strictCluster(10*time.Millisecond, "a.weft.test.:80")
	c.DNS.Resolvers = []string{s.address}
	updates := make(chan []config.Host, 10)
	stop := d.Watch(c, func(hosts []config.Host, err error) {
		if err != nil {
			t.Error(err)
		}
		updates <- hosts
	})
	defer stop()
	if got := <-updates; len(got) != 1 || got[0].Address != "192.0.2.1:80" {
		t.Errorf("first hosts = %v; want 192.0.2.1:80", got)
	}
	s.mu.Lock()
	s.records = append(s.records, "a.weft.test. 60 IN A 192.0.2.2")
	s.mu.Unlock()
	if got := <-updates; len(got) != 2 || got[1].Address != "192.0.2.2:80" {
		t.Errorf("hosts after a change = %v; want 2, the second 192.0.2.2:80", got)
	}
}

func message(t testing.TB, compress bool, records ...string) []byte {
	t.Helper()
	m := new(wire.Msg).SetQuestion("www.weft.test.", wire.TypeA)
	m.Response, m.Compress = true, compress
	for _, line := range records {
		record, err := wire.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, record)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMinAnswerTTL(t *testing.T) {
	tests := []struct {
		name string
		b    []byte
		want time.Duration
		ok   bool
	}{
		{"no answers", message(t, false), time.Nanosecond, false},
		{"one answer", message(t, false, "www.weft.test. 5 IN A 192.0.2.1"), 5 * time.Second, true},
		{"minimum TTL of an alias and its addresses", message(t, true,
			"www.weft.test. 300 IN CNAME a.weft.test.",
			"a.weft.test. 20 IN A 192.0.2.1",
			"a.weft.test. 30 IN A 192.0.2.2"), 20 * time.Second, true},
		{"zero", message(t, true, "www.weft.test. 0 IN A 192.0.2.1"), time.Nanosecond, true},
		{"above the maximum of RFC 2181", message(t, true, "www.weft.test. 4294967295 IN A 192.0.2.1"), time.Nanosecond, true},
		{"empty message", nil, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := minAnswerTTL(tt.b); ok != tt.ok || ok && got != tt.want {
				t.Errorf("minAnswerTTL = %v, %v, want %v, %v", got, ok, tt.want, tt.ok)
			}
			for n := range tt.b {
				if _, ok := minAnswerTTL(tt.b[:n]); ok {
					t.Errorf("minAnswerTTL of the first %d of %d bytes: ok = true, want false", n, len(tt.b))
				}
			}
		})
	}
}

func FuzzMinAnswerTTL(f *testing.F) {
	f.Add(message(f, false, "www.weft.test. 5 IN A 192.0.2.1"))
	f.Add(message(f, true, "www.weft.test. 300 IN CNAME a.weft.test.", "a.weft.test. 20 IN AAAA 2001:db8::1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := minAnswerTTL(b)
		if ok && (got <= 0 || got > (1<<31)*time.Second) {
			t.Errorf("minAnswerTTL = %v; want more than 0 and at most 2^31 s", got)
		}
		// The result must equal that of package wire if wire can parse the message.
		m := new(wire.Msg)
		if m.Unpack(b) != nil || len(m.Answer) == 0 {
			return
		}
		seconds := m.Answer[0].Header().Ttl
		for _, r := range m.Answer {
			seconds = min(seconds, r.Header().Ttl)
		}
		want := time.Duration(seconds) * time.Second
		if seconds == 0 || seconds > 1<<31-1 {
			want = time.Nanosecond
		}
		if ok && got != want {
			t.Errorf("minAnswerTTL = %v, want %v", got, want)
		}
	})
}
