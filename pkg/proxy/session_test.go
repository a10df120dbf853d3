package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// echoServer echoes what it receives on each connection.
func echoServer(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection or at its deadline
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
	return ln.Addr().String()
}

// tcpProxyConfig returns a configuration whose listener relays bytes after an istio_stats filter,
// which counts connections.
func tcpProxyConfig(interval, clusters string) string {
	return `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0", "filter_chains": [{"filters": [
		{"type": "istio_stats", "config": {"reporter": "source", "tcp_reporting_duration": "` + interval + `", "workload": {"name": "web-v1"}}},
		{"type": "tcp_proxy", "config": {"cluster": "app"}}
	]}]}]}], "cluster_manager": {"clusters": [` + clusters + `]}}`
}

const (
	connsOpened   = "istio_tcp_connections_opened_total"
	connsClosed   = "istio_tcp_connections_closed_total"
	bytesSent     = "istio_tcp_sent_bytes_total"
	bytesReceived = "istio_tcp_received_bytes_total"
)

func TestIstioStatsCountSessions(t *testing.T) {
	r := newRig(t)
	r.apply(parse(t, tcpProxyConfig("1ms", cluster("app", echoServer(t)))))
	c := dialClient(t, r.address("front"))
	c.send("question")
	if _, err := io.ReadFull(c, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	r.await(8, bytesSent) // while the connection is open
	r.await(8, bytesReceived)
	r.await(1, connsOpened, "web-v1", "tcp", "-", "source")
	if n := r.value(connsClosed); n != 0 {
		t.Errorf("%v connections are closed, want none yet", n)
	}
	c.send("!")
	_ = c.CloseWrite()
	if data, err := io.ReadAll(c); string(data) != "!" || err != nil {
		t.Errorf("read %q, %v after the half-close, want \"!\", nil", data, err)
	}
	r.await(1, connsClosed)
	for _, name := range []string{bytesSent, bytesReceived} {
		if n := r.value(name, "web-v1", "tcp", "-", "source"); n != 9 {
			t.Errorf("%s = %v at the end, want 9", name, n)
		}
	}
}

func TestIstioStatsCountFailedSessions(t *testing.T) {
	for flag, clusters := range map[string]string{"UF": cluster("app", "127.0.0.1:1"), "UH": cluster("app")} {
		t.Run(flag, func(t *testing.T) {
			r := newRig(t)
			r.apply(parse(t, tcpProxyConfig("5s", clusters)))
			if !dialClient(t, r.address("front")).ended() {
				t.Error("the connection was not closed")
			}
			for _, name := range []string{connsOpened, connsClosed} {
				r.await(1, name, flag)
			}
			if n := r.value(bytesSent) + r.value(bytesReceived); n != 0 {
				t.Errorf("%v bytes were counted, want 0", n)
			}
		})
	}
}

// TestIstioStatsCountSessionsAcrossReload verifies that an open connection keeps its labels after a
// reload.
func TestIstioStatsCountSessionsAcrossReload(t *testing.T) {
	r := newRig(t)
	app := echoServer(t)
	r.apply(parse(t, tcpProxyConfig("1ms", cluster("app", app))))
	c := dialClient(t, r.address("front"))
	c.send("question")
	r.await(8, bytesSent)
	r.apply(parse(t, strings.Replace(tcpProxyConfig("1ms", cluster("app", app)), "web-v1", "web-v2", 1)))
	c.send("!")
	r.await(9, bytesSent, "web-v1")
	_ = c.CloseWrite()
	if data, err := io.ReadAll(c); string(data) != "question!" || err != nil {
		t.Errorf("read %q, %v, want \"question!\", nil", data, err)
	}
	r.await(1, connsClosed, "web-v1")
	for name, want := range map[string]float64{connsOpened: 1, bytesSent: 9, bytesReceived: 9} {
		if n := r.value(name); n != want {
			t.Errorf("%s = %v, want %v", name, n, want)
		}
	}
}

// forwardWith forwards a connection to an echo server with observers and use, one of which must
// panic. It verifies that nothing is in flight afterwards.
func forwardWith(t *testing.T, observers []filter.SessionObserver, use func(*network.Conn, *network.RelayCounters) error) {
	t.Helper()
	r := newRig(t)
	r.apply(parse(t, tcpProxyConfig("1ms", cluster("app", echoServer(t)))))
	local, remote := net.Pipe()
	defer func() { _ = remote.Close() }()
	downstream := network.NewConn(local)
	defer func() { _ = downstream.Close() }()
	f := &TCPForwarder{r.server.clusters, r.server.upstreamTLS, observers}
	var err error
	func() {
		defer protocol.RecoverPanic(&err)
		_ = f.Forward(t.Context(), downstream, config.TCPTarget{Cluster: "app"}, 3, use)
	}()
	if protocol.PanicIn(err) == nil {
		t.Errorf("Forward returned %v, want the panic", err)
	}
	if n := r.server.clusters.Find("app").InFlight(); n != 0 {
		t.Errorf("%d connections are in flight, want 0", n)
	}
	r.await(0, "weft_cluster_connections_active")
}

// TestSessionObserversSeeEndDespitePanic verifies that a panic of the relay function ends the
// session exactly once and that no connection remains in flight.
func TestSessionObserversSeeEndDespitePanic(t *testing.T) {
	begins, ends := 0, 0
	observer := func(s *filter.Session) func() {
		if begins++; s.Host == nil || s.Cluster == nil || s.Reason != protocol.ReasonNone {
			t.Errorf("session began with host %v, cluster %v, reason %v; want a host, a cluster and %v", s.Host, s.Cluster, s.Reason, protocol.ReasonNone)
		}
		return func() { ends++ }
	}
	forwardWith(t, []filter.SessionObserver{observer}, func(*network.Conn, *network.RelayCounters) error { panic("a defect of a handler") })
	if begins != 1 || ends != 1 {
		t.Errorf("the observer got %d begin calls and %d end calls, want one each", begins, ends)
	}
}

// TestSessionObserverPanicEndsItsSession verifies that each observer gets at most one begin call
// and one end call when the second of three observers panics in one of them. Every observer whose
// begin call returned gets the end call.
func TestSessionObserverPanicEndsItsSession(t *testing.T) {
	for atEnd, want := range map[bool]string{false: "[be b be]", true: "[be be be]"} {
		var calls [3]string
		newObserver := func(i int, panics bool) filter.SessionObserver {
			return func(*filter.Session) func() {
				calls[i] += "b"
				if panics && !atEnd {
					panic("a defect at the beginning")
				}
				return func() {
					calls[i] += "e"
					if panics {
						panic("a defect at the end")
					}
				}
			}
		}
		forwardWith(t, []filter.SessionObserver{newObserver(0, false), newObserver(1, true), newObserver(2, false)},
			func(*network.Conn, *network.RelayCounters) error { return nil })
		if got := fmt.Sprint(calls); got != want {
			t.Errorf("calls of the observers: %s, want %s", got, want)
		}
	}
}
