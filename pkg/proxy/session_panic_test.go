package proxy

import (
	"fmt"
	"net"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestSessionObserverPanicEndsItsSession has the second of three watchers panic, at the
// beginning or at the end of a connection that is carried. The others hear of one beginning
// and one end, and the host has nothing in flight.
func TestSessionObserverPanicEndsItsSession(t *testing.T) {
	for _, atEnd := range []bool{false, true} {
		r := newRig(t)
		r.apply(parse(t, tcpProxyConfig("1ms", cluster("app", echoServer(t)))))
		near, far := net.Pipe()
		defer func() { _ = far.Close() }()
		caller := network.NewConn(near)
		defer func() { _ = caller.Close() }()
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
		c := &TCPForwarder{r.server.clusters, r.server.upstreamTLS, []filter.SessionObserver{watcher(0, false), watcher(1, true), watcher(2, false)}}
		var err error
		func() {
			defer protocol.RecoverPanic(&err)
			_ = c.Forward(t.Context(), caller, "app", 3, func(*network.Conn, *network.RelayCounters) error { return nil })
		}()
		if protocol.PanicIn(err) == nil {
			t.Errorf("Carry ended with %v, want the panic", err)
		}
		want := "[be b be]"
		if atEnd {
			want = "[be be be]"
		}
		if got := fmt.Sprint(told); got != want {
			t.Errorf("watchers have heard %s, want %s", got, want)
		}
		if n := r.server.clusters.Find("app").InFlight(); n != 0 {
			t.Errorf("%d are in flight", n)
		}
		r.await(0, "weft_cluster_connections_active")
	}
}
