package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketOption returns the value of an integer socket option.
func socketOption(t *testing.T, nc net.Conn, level, name int) int {
	t.Helper()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var value int
	var optionErr error
	if err := raw.Control(func(fd uintptr) { value, optionErr = unix.GetsockoptInt(int(fd), level, name) }); err != nil || optionErr != nil {
		t.Fatalf("getsockopt: %v, %v; want no error", err, optionErr)
	}
	return value
}

// keepAliveOptions returns the keepalive options of a TCP connection: enabled, idle time in
// seconds, interval in seconds, number of probes.
func keepAliveOptions(t *testing.T, nc net.Conn) [4]int {
	t.Helper()
	return [4]int{
		socketOption(t, nc, unix.SOL_SOCKET, unix.SO_KEEPALIVE), socketOption(t, nc, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE),
		socketOption(t, nc, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), socketOption(t, nc, unix.IPPROTO_TCP, unix.TCP_KEEPCNT),
	}
}

// listenTCP returns a listener on address, and its address with the port.
func listenTCP(t *testing.T, address string) (*net.TCPListener, string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("%s is not available: %v", address, err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.(*net.TCPListener), ln.Addr().String()
}

func TestDialerKeepAlive(t *testing.T) {
	_, address := listenTCP(t, "127.0.0.1:0")
	tests := []struct {
		name      string
		keepAlive KeepAlive
		want      [4]int
	}{
		{"zero value", KeepAlive{}, [4]int{1, 15, 15, 9}},
		{"all fields", KeepAlive{Enabled: true, Idle: 60 * time.Second, Interval: 7 * time.Second, Probes: 3}, [4]int{1, 60, 7, 3}},
		{"probes only, system defaults", KeepAlive{Enabled: true, Probes: 2}, [4]int{1, systemIdle(t), systemInterval(t), 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := Dialer{KeepAlive: tt.keepAlive}.Dial(context.Background(), "tcp", address, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := keepAliveOptions(t, conn.nc); got != tt.want {
				t.Errorf("SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT = %v, want %v", got, tt.want)
			}
		})
	}
}

// systemIdle and systemInterval return the system's defaults, in seconds.
func systemIdle(t *testing.T) int     { t.Helper(); return defaultOption(t, unix.TCP_KEEPIDLE) }
func systemInterval(t *testing.T) int { t.Helper(); return defaultOption(t, unix.TCP_KEEPINTVL) }

func defaultOption(t *testing.T, name int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	value, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestDialerSource(t *testing.T) {
	source4, source6 := netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("::1")
	tests := []struct {
		name, listen string
		dialer       Dialer
		want         string
	}{
		{"IPv4", "127.0.0.1:0", Dialer{Source4: source4, Source6: source6}, "127.0.0.9"},
		{"IPv6", "[::1]:0", Dialer{Source4: source4, Source6: source6}, "::1"},
		{"source of another family", "127.0.0.1:0", Dialer{Source6: source6}, "127.0.0.1"},
		{"no source", "127.0.0.1:0", Dialer{}, "127.0.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ln, address := listenTCP(t, tt.listen)
			conn, err := tt.dialer.Dial(context.Background(), "tcp", address, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			accepted, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			if got := accepted.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().String(); got != tt.want {
				t.Errorf("the host sees %s, want %s", got, tt.want)
			}
		})
	}
}

// TestDialerSourcePort verifies that connections to different hosts can share a source port, and
// that a second one to the same host fails.
func TestDialerSourcePort(t *testing.T) {
	// Find a free port: the system does not assign the same port again soon.
	portFinder, address := listenTCP(t, "127.0.0.1:0")
	port := portFinder.Addr().(*net.TCPAddr).Port
	if err := portFinder.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []Dialer{
		{Port4: uint16(port)},
		{Source4: netip.MustParseAddr("127.0.0.9"), Port4: uint16(port)},
	} {
		var peers []string
		for range 2 {
			var ln net.Listener
			ln, address = listenTCP(t, "127.0.0.1:0")
			conn, err := d.Dial(context.Background(), "tcp", address, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			accepted, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			peers = append(peers, accepted.RemoteAddr().String())
		}
		source := "127.0.0.1"
		if d.Source4.IsValid() {
			source = d.Source4.String()
		}
		want := fmt.Sprintf("%s:%d", source, port)
		if !slices.Equal(peers, []string{want, want}) {
			t.Errorf("hosts see the source addresses %q, want %s each", peers, want)
		}
		if conn, err := d.Dial(context.Background(), "tcp", address, time.Time{}); err == nil {
			_ = conn.Close()
			t.Error("a second connection with the same addresses succeeded")
		}
	}
}

// TestDialerSourceOfAnotherMachine verifies that Dial fails if the source address belongs to
// another machine: it neither panics nor uses another address.
func TestDialerSourceOfAnotherMachine(t *testing.T) {
	_, address := listenTCP(t, "127.0.0.1:0")
	conn, err := Dialer{Source4: netip.MustParseAddr("192.0.2.1")}.Dial(context.Background(), "tcp", address, time.Time{})
	if err == nil {
		_ = conn.Close()
		t.Error("Dial succeeded with a source address of another machine")
	}
}

func TestSetKeepAliveAppliesToNewConnections(t *testing.T) {
	options := make(chan [4]int)
	l, err := Listen(context.Background(), ListenOptions{Name: "a", Network: "tcp", Address: "127.0.0.1:0"},
		handlerFunc(func(_ context.Context, c *Conn) error { options <- keepAliveOptions(t, c.nc); return nil }))
	if err != nil {
		t.Fatal(err)
	}
	serveErr := make(chan error, 1)
	go func() { serveErr <- l.Serve(context.Background()) }()
	dial := func() [4]int {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return <-options
	}
	if got := dial(); got[0] != 0 {
		t.Errorf("default: keepalive options %v, want keepalive disabled", got)
	}
	l.SetKeepAlive(KeepAlive{Enabled: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Probes: 4})
	if got, want := dial(), [4]int{1, 30, 5, 4}; got != want {
		t.Errorf("after SetKeepAlive: keepalive options %v, want %v", got, want)
	}
	l.SetKeepAlive(KeepAlive{})
	if got := dial(); got[0] != 0 {
		t.Errorf("after SetKeepAlive of the zero value: keepalive options %v, want keepalive disabled", got)
	}
	l.Drain(context.Background())
	if err := <-serveErr; err != nil {
		t.Error(err)
	}
}
