package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// echoServer answers each connection with what it sends.
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
			go func() { // ends with the connection, which has a deadline
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

// tcpProxyConfig is a configuration whose listener carries bytes behind a filter that counts
// connections as Istio does.
func tcpProxyConfig(every, clusters string) string {
	return `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0", "filter_chains": [{"filters": [
		{"type": "istio_stats", "config": {"reporter": "source", "tcp_reporting_duration": "` + every + `", "workload": {"name": "web-v1"}}},
		{"type": "tcp_proxy", "config": {"cluster": "app"}}
	]}]}]}], "cluster_manager": {"clusters": [` + clusters + `]}}`
}

const (
	opened   = "istio_tcp_connections_opened_total"
	closed   = "istio_tcp_connections_closed_total"
	sent     = "istio_tcp_sent_bytes_total"
	received = "istio_tcp_received_bytes_total"
)

func TestIstioStatsCountSessions(t *testing.T) {
	r := newRig(t)
	r.apply(parse(t, tcpProxyConfig("1ms", cluster("app", echoServer(t)))))
	c := dialClient(t, r.address("front"))
	c.send("question")
	if _, err := io.ReadFull(c, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	r.await(8, sent) // while the connection is open
	r.await(8, received)
	r.await(1, opened, "web-v1", "tcp", "-", "source")
	if n := r.value(closed); n != 0 {
		t.Errorf("%v connections are closed, want none yet", n)
	}
	c.send("!")
	_ = c.CloseWrite()
	if rest, err := io.ReadAll(c); string(rest) != "!" || err != nil {
		t.Errorf("read %q, %v at the end", rest, err)
	}
	r.await(1, closed)
	for _, name := range []string{sent, received} {
		if n := r.value(name, "web-v1", "tcp", "-", "source"); n != 9 {
			t.Errorf("%s is %v at the end, want 9", name, n)
		}
	}
}

func TestIstioStatsCountFailedSessions(t *testing.T) {
	for flag, clusters := range map[string]string{"UF": cluster("app", "127.0.0.1:1"), "UH": cluster("app")} {
		t.Run(flag, func(t *testing.T) {
			r := newRig(t)
			r.apply(parse(t, tcpProxyConfig("5s", clusters)))
			if !dialClient(t, r.address("front")).ended() {
				t.Error("the connection was carried")
			}
			for _, name := range []string{opened, closed} {
				r.await(1, name, flag)
			}
			if n := r.value(sent) + r.value(received); n != 0 {
				t.Errorf("%v bytes are counted", n)
			}
		})
	}
}

// A connection that goes on behind a reload is counted as it began.
func TestIstioStatsCountSessionsAcrossReload(t *testing.T) {
	r := newRig(t)
	app := echoServer(t)
	r.apply(parse(t, tcpProxyConfig("1ms", cluster("app", app))))
	c := dialClient(t, r.address("front"))
	c.send("question")
	r.await(8, sent)
	r.apply(parse(t, strings.Replace(tcpProxyConfig("1ms", cluster("app", app)), "web-v1", "web-v2", 1)))
	c.send("!")
	r.await(9, sent, "web-v1")
	_ = c.CloseWrite()
	if all, err := io.ReadAll(c); string(all) != "question!" || err != nil {
		t.Errorf("read %q, %v", all, err)
	}
	r.await(1, closed, "web-v1")
	for name, want := range map[string]float64{opened: 1, sent: 9, received: 9} {
		if n := r.value(name); n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
}

// forwardWith forwards a connection to an echo server with observers and use, which is expected to
// panic or to have a panicking observer. Afterwards the host has nothing in flight.
func forwardWith(t *testing.T, observers []filter.SessionObserver, use func(*network.Conn, *network.RelayCounters) error) {
	t.Helper()
	r := newRig(t)
	r.apply(parse(t, tcpProxyConfig("1ms", cluster("app", echoServer(t)))))
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	caller := network.NewConn(near)
	defer func() { _ = caller.Close() }()
	c := &TCPForwarder{r.server.clusters, r.server.upstreamTLS, observers}
	var err error
	func() {
		defer protocol.RecoverPanic(&err)
		_ = c.Forward(t.Context(), caller, "app", 3, use)
	}()
	if protocol.PanicIn(err) == nil {
		t.Errorf("Forward ended with %v, want the panic", err)
	}
	if n := r.server.clusters.Find("app").InFlight(); n != 0 {
		t.Errorf("%d are in flight", n)
	}
	r.await(0, "weft_cluster_connections_active")
}

// A handler that panics ends its session, once, and leaves nothing counted.
func TestSessionObserversSeeEndDespitePanic(t *testing.T) {
	began, ended := 0, 0
	observer := func(s *filter.Session) func() {
		if began++; s.Host == nil || s.Cluster == nil || s.Reason != protocol.ReasonNone {
			t.Errorf("it began with %v, %v, %v", s.Host, s.Cluster, s.Reason)
		}
		return func() { ended++ }
	}
	forwardWith(t, []filter.SessionObserver{observer}, func(*network.Conn, *network.RelayCounters) error { panic("a defect of a handler") })
	if began != 1 || ended != 1 {
		t.Errorf("watchers were told of %d beginnings and %d ends, want one each", began, ended)
	}
}

// TestSessionObserverPanicEndsItsSession has the second of three watchers panic, at the
// beginning or at the end of a connection that is carried. The others hear of one beginning
// and one end.
func TestSessionObserverPanicEndsItsSession(t *testing.T) {
	for atEnd, want := range map[bool]string{false: "[be b be]", true: "[be be be]"} {
		var told [3]string
		watcher := func(i int, panics bool) filter.SessionObserver {
			return func(*filter.Session) func() {
				told[i] += "b"
				if panics && !atEnd {
					panic("a defect at the beginning")
				}
				return func() {
					told[i] += "e"
					if panics {
						panic("a defect at the end")
					}
				}
			}
		}
		forwardWith(t, []filter.SessionObserver{watcher(0, false), watcher(1, true), watcher(2, false)},
			func(*network.Conn, *network.RelayCounters) error { return nil })
		if got := fmt.Sprint(told); got != want {
			t.Errorf("watchers have heard %s, want %s", got, want)
		}
	}
}
