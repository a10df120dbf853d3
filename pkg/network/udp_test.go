package network

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func listenPacket(t *testing.T, address string) *PacketConn {
	t.Helper()
	p, err := ListenPacket(context.Background(), PacketOptions{Name: "l", Address: address})
	if err != nil {
		t.Skipf("%s is not available: %v", address, err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestResponsesLeaveFromDestinationAddress verifies that responses come from the address that the
// client sent to, even if the socket has a wildcard address: a connected client receives nothing
// else.
func TestResponsesLeaveFromDestinationAddress(t *testing.T) {
	tests := []struct{ name, listen, request string }{
		{"specific address", "127.0.0.1:0", "127.0.0.1"},
		{"IPv4 wildcard", "0.0.0.0:0", "127.0.0.77"},
		{"IPv6 wildcard", "[::]:0", "::1"},
		{"IPv4 client, dual-stack wildcard", "[::]:0", "127.0.0.77"},
		{"no address", ":0", "127.0.0.77"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := listenPacket(t, tt.listen)
			port := p.Addr().(*net.UDPAddr).Port
			conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(tt.request), Port: port})
			if err != nil {
				t.Skipf("%s is not available: %v", tt.request, err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("question")); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, MaxDatagram)
			n, flow, err := p.Receive(b)
			if err != nil || string(b[:n]) != "question" || flow.Source.Port() != conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() {
				t.Fatalf("Receive = %q from %v, %v", b[:n], flow, err)
			}
			if err := p.Send([]byte("answer"), flow); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // fails only on a closed socket
			if n, err := conn.Read(b); err != nil || string(b[:n]) != "answer" {
				t.Errorf("the client received %q, %v", b[:n], err)
			}
		})
	}
}

func TestPacketConnEndsWithClose(t *testing.T) {
	p := listenPacket(t, "127.0.0.1:0")
	ended := make(chan error)
	go func() {
		_, _, err := p.Receive(make([]byte, 1))
		ended <- err
	}()
	_ = p.Close() // Receive returns the error
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Receive after Close = %v", err)
	}
}

func TestPacketInfoIgnoresMalformedData(t *testing.T) {
	v4, v6 := appendPacketInfo(nil, netip.MustParseAddr("192.0.2.1")), appendPacketInfo(nil, netip.MustParseAddr("2001:db8::1"))
	if got := packetInfo(v4); got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("packetInfo of IPv4 data = %v", got)
	}
	if got := packetInfo(v6); got != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("packetInfo of IPv6 data = %v", got)
	}
	for n := range controlHeaderSize + 4 {
		if got := packetInfo(v6[:n]); got.IsValid() {
			t.Errorf("packetInfo of %d bytes = %v, want none", n, got)
		}
	}
	other := appendControlHeader(nil, 4, 1, 29)
	other = append(other, 1, 2, 3, 4, 0, 0, 0, 0)
	if got := packetInfo(append(other, v6...)); got != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("packetInfo after another message = %v", got)
	}
}

// collector is a ReadHandler that sends the received datagrams and errors to got.
type collector struct {
	peer *ConnectedUDP
	got  chan string
}

func (c *collector) Readable(buffer []byte) {
	for {
		n, err := c.peer.Receive(buffer)
		switch {
		case errors.Is(err, ErrWouldBlock), errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			c.got <- "error: " + err.Error()
		default:
			c.got <- string(buffer[:n])
		}
	}
}

func runPoll(t *testing.T) *Poller {
	t.Helper()
	poll, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- poll.Run() }()
	t.Cleanup(func() {
		_ = poll.Close() // Run returns the error
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return poll
}

func TestPollerCallsEachHandler(t *testing.T) {
	client := listenPacket(t, "127.0.0.1:0")
	poll := runPoll(t)
	const peers = 300 // more than one epoll_wait reports
	all := make([]*collector, peers)
	flows := make(map[netip.AddrPort]Flow)
	b := make([]byte, MaxDatagram)
	for i := range all {
		peer, err := Dialer{}.DialPacket(client.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		all[i] = &collector{peer, make(chan string, 10)}
		if err := poll.Add(peer, all[i]); err != nil {
			t.Fatal(err)
		}
		if err := peer.Send([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		_, flow, err := client.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		flows[flow.Source] = flow
	}
	for i := range all {
		local := all[i].peer.LocalAddr()
		for _, text := range []string{"one", "two"} {
			if err := client.Send([]byte(local.String()+text), flows[local]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range all {
		local := all[i].peer.LocalAddr().String()
		if got := <-all[i].got + " " + <-all[i].got; got != local+"one "+local+"two" {
			t.Errorf("peer %d received %q", i, got)
		}
		all[i].peer.Close()
		all[i].peer.Close()
		if err := all[i].peer.Send([]byte("late")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Send after Close = %v", err)
		}
	}
	if len(poll.sockets) != 0 {
		t.Errorf("%d sockets remain in the poller", len(poll.sockets))
	}
}

func TestLargeDatagramsAreNotTruncated(t *testing.T) {
	client := listenPacket(t, "127.0.0.1:0")
	peer, err := Dialer{}.DialPacket(client.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	const most = 65_507 // the maximum payload over IPv4
	sent := []byte(strings.Repeat("0123456789", most/10+1)[:most])
	if err := peer.Send(sent); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, MaxDatagram)
	n, _, err := client.Receive(b)
	if err != nil || !bytes.Equal(b[:n], sent) {
		t.Errorf("got %d bytes, %v", n, err)
	}
	if err := peer.Send(make([]byte, most+1)); err == nil {
		t.Error("Send of a datagram beyond the maximum succeeded")
	}
}

func TestErrConnRefused(t *testing.T) {
	client := listenPacket(t, "127.0.0.1:0")
	address := client.Addr().String()
	_ = client.Close() // no socket receives there any more
	poll := runPoll(t)
	peer, err := Dialer{}.DialPacket(address)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c := &collector{peer, make(chan string, 1)}
	if err := poll.Add(peer, c); err != nil {
		t.Fatal(err)
	}
	if err := peer.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := <-c.got; got != "error: "+ErrConnRefused.Error() {
		t.Errorf("received %q", got)
	}
}

func TestDialPacketSource(t *testing.T) {
	client := listenPacket(t, "127.0.0.1:0")
	peer, err := Dialer{Source4: netip.MustParseAddr("127.0.0.9")}.DialPacket(client.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if got := peer.LocalAddr().Addr().String(); got != "127.0.0.9" {
		t.Errorf("LocalAddr = %s", got)
	}
	if _, err := (Dialer{}).DialPacket("name:80"); err == nil {
		t.Error("DialPacket accepted a host name")
	}
}

func FuzzPacketInfo(f *testing.F) {
	f.Add(appendPacketInfo(nil, netip.MustParseAddr("192.0.2.1")))
	f.Add(appendPacketInfo(nil, netip.MustParseAddr("2001:db8::1")))
	f.Add(appendControlHeader(nil, 1<<63, 0, 8))
	f.Fuzz(func(t *testing.T, control []byte) {
		a := packetInfo(control)
		if !a.IsValid() {
			return
		}
		if again := packetInfo(appendPacketInfo(nil, a)); again != a {
			t.Errorf("packetInfo(appendPacketInfo(%v)) = %v", a, again)
		}
	})
}
