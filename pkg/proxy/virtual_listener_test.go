package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// rejectHandler serves no connection.
type rejectHandler struct{}

func (rejectHandler) ServeConn(context.Context, *network.Conn) error { return nil }

func TestFindVirtualListener(t *testing.T) {
	listeners := map[string]*liveListener{}
	names := map[*network.Listener]string{nil: ""}
	for name, l := range map[string]*config.Listener{
		"exact":         {Network: "tcp", Address: "198.51.100.7:80"},
		"exact IPv6":    {Network: "tcp", Address: "[2001:db8::7]:80"},
		"wildcard":      {Network: "tcp", Address: ":80"},
		"IPv6 wildcard": {Network: "tcp", Address: "[::]:80"},
		"IPv4 only":     {Network: "tcp", Address: "0.0.0.0:81"},
		"IPv6 only":     {Network: "tcp", Address: "[::]:82"},
		"bound":         {Network: "tcp", Address: "198.51.100.7:83", Bind: true},
		"unix socket":   {Network: "unix", Address: "/run/web.sock"},
		"no port":       {Network: "tcp", Address: "198.51.100.7:0"},
		"mapped":        {Network: "tcp", Address: "[::ffff:198.51.100.9]:80"},
		"another port":  {Network: "tcp", Address: "198.51.100.7:8080"},
	} {
		addr, _ := virtualAddress(l)
		live := &liveListener{ln: network.NewVirtualListener(network.ListenOptions{Name: name}, addr, rejectHandler{}), compiled: &compiledListener{config: l}}
		listeners[name], names[live.ln] = live, name
	}
	var v virtualListeners
	v.publish(nil)
	if l := v.find(netip.MustParseAddrPort("198.51.100.7:80")); l != nil {
		t.Error("find returned a listener for an empty set")
	}
	v.publish(listeners)
	for _, tt := range []struct{ destination, want string }{
		{"198.51.100.7:80", "exact"},
		{"198.51.100.8:80", "wildcard"},
		{"198.51.100.9:80", "mapped"},
		{"[2001:db8::7]:80", "exact IPv6"},
		{"[2001:db8::8]:80", "IPv6 wildcard"},
		{"198.51.100.7:81", "IPv4 only"},
		{"[2001:db8::7]:81", "IPv4 only"}, // a socket bound to 0.0.0.0 accepts both families
		{"198.51.100.7:82", "IPv6 only"},
		{"[2001:db8::7]:82", "IPv6 only"},
		{"198.51.100.7:83", ""},
		{"198.51.100.7:8080", "another port"},
		{"198.51.100.8:8080", ""},
	} {
		if got := names[v.find(netip.MustParseAddrPort(tt.destination))]; got != tt.want {
			t.Errorf("listener for %s: %q, want %q", tt.destination, got, tt.want)
		}
	}
	dst := netip.MustParseAddrPort("198.51.100.8:80")
	if n := testing.AllocsPerRun(100, func() { v.find(dst) }); n != 0 {
		t.Errorf("find allocates %v times, want 0", n)
	}
}

func TestAddressCanBeBoundAndVirtual(t *testing.T) {
	bound := &config.Listener{Network: "tcp", Address: "127.0.0.1:80", Bind: true}
	virtual := &config.Listener{Network: "tcp", Address: "127.0.0.1:80"}
	if listenerKey(bound) == listenerKey(virtual) {
		t.Error("the bound and the virtual listener have the same key")
	}
}

func TestForwardFailureCloseReason(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want network.CloseReason
	}{
		{nil, network.ClosedComplete},
		{errors.New("another"), network.ClosedComplete},
		{protocol.Faultf(protocol.ConnectFailure, "refused"), network.ClosedComplete},
		{protocol.Faultf(protocol.NoDestination, "none"), network.ClosedNoDestination},
		{protocol.Faultf(protocol.ReasonLoop, "own"), network.ClosedLoop},
	} {
		if got := closeReasonOf(tt.err); got != tt.want {
			t.Errorf("close reason of %v = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestForwardedConnectionAddrs(t *testing.T) {
	local, remote := net.Pipe()
	defer remote.Close()
	conn := network.NewConn(local)
	defer conn.Close()
	if addrs := connAddrsOf(conn); addrs.Redirected || addrs.From.IsValid() || addrs.To.IsValid() {
		t.Errorf("connection without a socket: %+v, want no addresses", addrs)
	}
	dst := netip.MustParseAddrPort("198.51.100.7:80")
	conn.Addrs().SetOriginalDst(dst)
	if addrs := connAddrsOf(conn); !addrs.Redirected || addrs.To != dst {
		t.Errorf("redirected connection: %+v, want a redirected connection to %v", addrs, dst)
	}
}
