package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/weft-proxy/weft/pkg/config"
)

// startUDPServer starts a DNS server that responds to each UDP query with the datagrams of respond.
// If stream is not nil, it responds to TCP queries with stream, on the same port.
func startUDPServer(t *testing.T, respond func(query *wire.Msg) [][]byte, stream func(query *wire.Msg) *wire.Msg) (address string) {
	t.Helper()
	conn, ln := listenUDPAndTCP(t, stream != nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			q := new(wire.Msg)
			if q.Unpack(b[:n]) != nil {
				continue
			}
			for _, datagram := range respond(q) {
				_, _ = conn.WriteTo(datagram, from) // the client may have closed its socket
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close() // ends the read loop
		<-done
	})
	if stream != nil {
		serveStream(t, ln, stream)
	}
	return conn.LocalAddr().String()
}

// listenUDPAndTCP binds a UDP port and, if withTCP is set, the same TCP port. It retries if the TCP
// port is in use.
func listenUDPAndTCP(t *testing.T, withTCP bool) (conn net.PacketConn, ln net.Listener) {
	t.Helper()
	for retries := 20; ; retries-- {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if !withTCP {
			return conn, nil
		}
		if ln, err = net.Listen("tcp", conn.LocalAddr().String()); err == nil {
			return conn, ln
		}
		_ = conn.Close() // no client uses the port yet
		if retries == 0 {
			t.Fatal(err)
		}
	}
}

func serveStream(t *testing.T, ln net.Listener, stream func(query *wire.Msg) *wire.Msg) {
	t.Helper()
	s := &wire.Server{Listener: ln, Handler: wire.HandlerFunc(func(w wire.ResponseWriter, q *wire.Msg) {
		_ = w.WriteMsg(stream(q)) // the client may have closed its connection
	})}
	done := make(chan error, 1)
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() { done <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(), <-done); err != nil {
			t.Error(err)
		}
	})
}

func pack(m *wire.Msg) []byte {
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func reply(q *wire.Msg, records ...string) *wire.Msg {
	m := new(wire.Msg).SetReply(q)
	m.Compress = true
	for _, line := range records {
		r, err := wire.NewRR(line)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, r)
	}
	return m
}

// TestInvalidResponses verifies that messages that do not answer the query are ignored, and that
// the valid response after them is used.
func TestInvalidResponses(t *testing.T) {
	const valid, spoofed = "a.weft.test. 30 IN A 192.0.2.1", "a.weft.test. 30 IN A 192.0.2.66"
	forged := func(q *wire.Msg, change func(*wire.Msg)) []byte {
		m := reply(q, spoofed)
		change(m)
		return pack(m)
	}
	tests := []struct {
		name  string
		first func(q *wire.Msg) []byte // message before the valid response
	}{
		{"other ID", func(q *wire.Msg) []byte { return forged(q, func(m *wire.Msg) { m.Id++ }) }},
		{"other question", func(q *wire.Msg) []byte {
			return forged(q, func(m *wire.Msg) { m.Question[0].Name = "b.weft.test." })
		}},
		{"other type in the question", func(q *wire.Msg) []byte {
			return forged(q, func(m *wire.Msg) { m.Question[0].Qtype = wire.TypeMX })
		}},
		{"query instead of a response", func(q *wire.Msg) []byte { return forged(q, func(m *wire.Msg) { m.Response = false }) }},
		{"garbage", func(*wire.Msg) []byte { return []byte("\xff\x00garbage that is longer than a header is") }},
		{"empty datagram", func(*wire.Msg) []byte { return nil }},
		{"truncated bytes", func(q *wire.Msg) []byte {
			b := pack(reply(q, spoofed))
			binary.BigEndian.PutUint16(b, q.Id+1)
			return b[:20]
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			address := startUDPServer(t, func(q *wire.Msg) [][]byte { return [][]byte{tt.first(q), pack(reply(q, valid))} }, nil)
			addresses, _, err := System(&config.DNS{Resolvers: []string{address}}).Lookup(context.Background(), V4Only, "a.weft.test.")
			if err != nil || !slices.Equal(addresses, []netip.Addr{netip.MustParseAddr("192.0.2.1")}) {
				t.Errorf("Lookup = %v, %v; want 192.0.2.1", addresses, err)
			}
		})
	}
}

func TestAliasesAndMinTTL(t *testing.T) {
	address := startUDPServer(t, func(q *wire.Msg) [][]byte {
		return [][]byte{pack(reply(q,
			"a.weft.test. 300 IN CNAME b.weft.test.", "b.weft.test. 20 IN CNAME c.weft.test.",
			"c.weft.test. 60 IN A 192.0.2.3", "c.weft.test. 60 IN A 192.0.2.4"))}
	}, nil)
	addresses, ttl, err := System(&config.DNS{Resolvers: []string{address}}).Lookup(context.Background(), V4Only, "a.weft.test.")
	if err != nil || len(addresses) != 2 || ttl != 20*time.Second {
		t.Errorf("Lookup = %v for %v, %v, want two addresses for 20s", addresses, ttl, err)
	}
}

// TestTruncatedResponsesUseTCP verifies that a query is repeated over TCP after a truncated
// response, and that the TTL is that of the TCP response.
func TestTruncatedResponsesUseTCP(t *testing.T) {
	noLeaks(t)
	var records []string
	for i := range 250 {
		records = append(records, fmt.Sprintf("a.weft.test. %d IN A 10.1.0.%d", 90+i, i))
	}
	address := startUDPServer(t, func(q *wire.Msg) [][]byte {
		m := reply(q)
		m.Truncated = true
		return [][]byte{pack(m)}
	}, func(q *wire.Msg) *wire.Msg { return reply(q, records...) })
	addresses, ttl, err := System(&config.DNS{Resolvers: []string{address}}).Lookup(context.Background(), V4Only, "a.weft.test.")
	if err != nil || len(addresses) != 250 || ttl != 90*time.Second {
		t.Errorf("Lookup = %d addresses for %v, %v, want 250 for 1m30s", len(addresses), ttl, err)
	}
}

// TestQueryIDsAreRandom verifies that query IDs vary, so that an attacker cannot guess them.
func TestQueryIDsAreRandom(t *testing.T) {
	received := make(chan uint16, 100)
	address := startUDPServer(t, func(q *wire.Msg) [][]byte {
		received <- q.Id
		return [][]byte{pack(reply(q, "a.weft.test. 30 IN A 192.0.2.1"))}
	}, nil)
	r := System(&config.DNS{Resolvers: []string{address}})
	ids := map[uint16]bool{}
	for range 20 {
		if _, _, err := r.Lookup(context.Background(), V4Only, "a.weft.test."); err != nil {
			t.Fatal(err)
		}
		ids[<-received] = true
	}
	if len(ids) < 18 {
		t.Errorf("%d distinct IDs in 20 queries, want at least 18", len(ids))
	}
}

// TestTimeoutAndAttempts verifies that the next server is queried after a timeout, and that the
// servers are queried again for each attempt.
func TestTimeoutAndAttempts(t *testing.T) {
	queried := make(chan string, 100)
	startSilent := func(name string) string {
		return startUDPServer(t, func(*wire.Msg) [][]byte { queried <- name; return nil }, nil)
	}
	servers := []string{startSilent("one"), startSilent("two")}
	_, _, err := System(&config.DNS{Resolvers: servers, Timeout: 50 * time.Millisecond, Attempts: 2}).
		Lookup(context.Background(), V4Only, "a.weft.test.")
	if outcomeOf(err) != TimedOut {
		t.Errorf("Lookup = %v, outcome %d, want TimedOut", err, outcomeOf(err))
	}
	var got []string
	for range 4 {
		got = append(got, <-queried)
	}
	if want := []string{"one", "two", "one", "two"}; !slices.Equal(got, want) {
		t.Errorf("queried servers = %q, want %q", got, want)
	}
}

func TestOutcomes(t *testing.T) {
	s := startServer(t, "a.weft.test. 60 IN A 192.0.2.1")
	r := System(&config.DNS{Resolvers: []string{s.address}})
	if _, _, err := r.Lookup(context.Background(), V4Only, "none.weft.test."); outcomeOf(err) != NotFound {
		t.Errorf("unknown name: %v; want the outcome NotFound", err)
	}
	if _, _, err := r.Lookup(context.Background(), V6Only, "a.weft.test."); outcomeOf(err) != NotFound {
		t.Errorf("no address of the family: %v; want the outcome NotFound", err)
	}
	s.fail(wire.RcodeServerFailure)
	if _, _, err := r.Lookup(context.Background(), V4Only, "a.weft.test."); outcomeOf(err) != Failed {
		t.Errorf("server failure: %v; want the outcome Failed", err)
	}
}
