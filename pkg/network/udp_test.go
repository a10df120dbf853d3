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

// TestResponseSourceIsRequestDestination verifies that responses come from the address that the
// client sent to, even if the socket has a wildcard address: a connected client receives nothing
// else.
func TestResponseSourceIsRequestDestination(t *testing.T) {
	tests := []struct{ name, listen, dst string }{
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
			conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(tt.dst), Port: port})
			if err != nil {
				t.Skipf("%s is not available: %v", tt.dst, err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("request")); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, MaxDatagram)
			n, flow, err := p.Receive(b)
			if err != nil || string(b[:n]) != "request" || flow.Source.Port() != conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() {
				t.Fatalf("Receive = %q from %v, %v; want \"request\" from the client", b[:n], flow, err)
			}
			if err := p.Send([]byte("response"), flow); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // fails only on a closed socket
			if n, err := conn.Read(b); err != nil || string(b[:n]) != "response" {
				t.Errorf("the client received %q, %v; want \"response\"", b[:n], err)
			}
		})
	}
}

func TestPacketConnEndsWithClose(t *testing.T) {
	p := listenPacket(t, "127.0.0.1:0")
	receiveErr := make(chan error)
	go func() {
		_, _, err := p.Receive(make([]byte, 1))
		receiveErr <- err
	}()
	_ = p.Close() // Receive returns the error
	if err := <-receiveErr; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Receive after Close = %v, want net.ErrClosed", err)
	}
}

func TestParsePacketInfoIgnoresMalformedData(t *testing.T) {
	v4, v6 := appendPacketInfo(nil, netip.MustParseAddr("192.0.2.1")), appendPacketInfo(nil, netip.MustParseAddr("2001:db8::1"))
	if got := parsePacketInfo(v4); got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("parsePacketInfo of IPv4 data = %v, want 192.0.2.1", got)
	}
	if got := parsePacketInfo(v6); got != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("parsePacketInfo of IPv6 data = %v, want 2001:db8::1", got)
	}
	for n := range controlHeaderSize + 4 {
		if got := parsePacketInfo(v6[:n]); got.IsValid() {
			t.Errorf("parsePacketInfo of %d bytes = %v, want none", n, got)
		}
	}
	message := appendControlHeader(nil, 4, 1, 29)
	message = append(message, 1, 2, 3, 4, 0, 0, 0, 0)
	if got := parsePacketInfo(append(message, v6...)); got != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("parsePacketInfo after another message = %v, want 2001:db8::1", got)
	}
}

// collector is a ReadHandler that sends the received datagrams and errors to a channel.
type collector struct {
	peer     *ConnectedUDP
	received chan string
}

func (c *collector) Readable(buffer []byte) {
	for {
		n, err := c.peer.Receive(buffer)
		switch {
		case errors.Is(err, ErrWouldBlock), errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			c.received <- "error: " + err.Error()
		default:
			c.received <- string(buffer[:n])
		}
	}
}

func runPoll(t *testing.T) *Poller {
	t.Helper()
	poll, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	runErr := make(chan error, 1)
	go func() { runErr <- poll.Run() }()
	t.Cleanup(func() {
		_ = poll.Close() // Run returns the error
		if err := <-runErr; err != nil {
			t.Error(err)
		}
	})
	return poll
}

func TestPollerCallsEachHandler(t *testing.T) {
	client := listenPacket(t, "127.0.0.1:0")
	poll := runPoll(t)
	const peers = 300 // more than one epoll_wait reports
	collectors := make([]*collector, peers)
	flows := make(map[netip.AddrPort]Flow)
	b := make([]byte, MaxDatagram)
	for i := range collectors {
		peer, err := Dialer{}.DialPacket(client.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		collectors[i] = &collector{peer, make(chan string, 10)}
		if err := poll.Add(peer, collectors[i]); err != nil {
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
	for i := range collectors {
		local := collectors[i].peer.LocalAddr()
		for _, text := range []string{"one", "two"} {
			if err := client.Send([]byte(local.String()+text), flows[local]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range collectors {
		local := collectors[i].peer.LocalAddr().String()
		if got := <-collectors[i].received + " " + <-collectors[i].received; got != local+"one "+local+"two" {
			t.Errorf("peer %d received %q, want %q", i, got, local+"one "+local+"two")
		}
		collectors[i].peer.Close()
		collectors[i].peer.Close()
		if err := collectors[i].peer.Send([]byte("late")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Send after Close = %v, want net.ErrClosed", err)
		}
	}
	if len(poll.sockets) != 0 {
		t.Errorf("%d sockets remain in the poller, want 0", len(poll.sockets))
	}
}

func TestLargeDatagramsAreNotTruncated(t *testing.T) {
	client := listenPacket(t, "127.0.0.1:0")
	peer, err := Dialer{}.DialPacket(client.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	const maxPayload = 65_507 // the maximum payload over IPv4
	sent := []byte(strings.Repeat("0123456789", maxPayload/10+1)[:maxPayload])
	if err := peer.Send(sent); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, MaxDatagram)
	n, _, err := client.Receive(b)
	if err != nil || !bytes.Equal(b[:n], sent) {
		t.Errorf("received %d bytes, %v; want the datagram", n, err)
	}
	if err := peer.Send(make([]byte, maxPayload+1)); err == nil {
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
	if got := <-c.received; got != "error: "+ErrConnRefused.Error() {
		t.Errorf("received %q, want %v", got, ErrConnRefused)
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
		t.Errorf("LocalAddr = %s, want 127.0.0.9", got)
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
		addr := parsePacketInfo(control)
		if !addr.IsValid() {
			return
		}
		if decoded := parsePacketInfo(appendPacketInfo(nil, addr)); decoded != addr {
			t.Errorf("parsePacketInfo(appendPacketInfo(%v)) = %v, want the same address", addr, decoded)
		}
	})
}
