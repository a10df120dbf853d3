package proxy

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
)

// busyPacketServer is a UDP server whose sessions never become idle.
type busyPacketServer struct {
	filter.PacketServer
	socket   *network.PacketConn
	draining chan struct{}
}

func (s *busyPacketServer) Serve() error                 { return nil }
func (s *busyPacketServer) UpdateConfig(config.UDPProxy) {}
func (s *busyPacketServer) Sessions() int                { return 1 }

func (s *busyPacketServer) Drain(ctx context.Context) int {
	close(s.draining)
	<-ctx.Done()
	_ = s.socket.Close()
	return 1
}

// TestDrainCancelsRemovedUDPListeners verifies that the deadline of Drain ends the longer drain of
// UDP listeners that an earlier configuration removed.
func TestDrainCancelsRemovedUDPListeners(t *testing.T) {
	r := newRig(t)
	draining := make(chan struct{})
	r.server.o.UDPProxy = func(_ config.UDPProxy, socket *network.PacketConn, _ filter.HostLeaser, _ *filter.DatagramCounters, _ *slog.Logger) (filter.PacketServer, error) {
		return &busyPacketServer{socket: socket, draining: draining}, nil
	}
	snapshot := func(listeners ...*config.Listener) *config.Snapshot {
		return &config.Snapshot{Server: config.Server{GracefulTimeout: time.Hour}, Listeners: listeners}
	}
	r.apply(snapshot(&config.Listener{
		Name: "datagrams", Network: networkUDP, Address: "127.0.0.1:0", Bind: true,
		FilterChains: []*config.FilterChain{{UDPProxy: &config.UDPProxy{Cluster: "none"}}},
	}))
	r.apply(snapshot())
	<-draining
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		r.server.Drain(ctx)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Drain did not stop at its deadline")
	}
}

// idlePacketServer is a busyPacketServer whose sessions end immediately.
type idlePacketServer struct{ busyPacketServer }

func (s *idlePacketServer) Drain(context.Context) int {
	_ = s.socket.Close()
	return 0
}

// TestUnchangeableUDPOptionsAreLogged verifies that a change of a bound UDP socket's options logs a
// warning.
func TestUnchangeableUDPOptionsAreLogged(t *testing.T) {
	r := newRig(t)
	r.server.o.UDPProxy = func(_ config.UDPProxy, socket *network.PacketConn, _ filter.HostLeaser, _ *filter.DatagramCounters, _ *slog.Logger) (filter.PacketServer, error) {
		return &idlePacketServer{busyPacketServer{socket: socket}}, nil
	}
	listener := func(reusePort bool) *config.Snapshot {
		return &config.Snapshot{Listeners: []*config.Listener{{
			Name: "datagrams", Network: networkUDP, Address: "127.0.0.1:0", Bind: true, ReusePort: reusePort,
			FilterChains: []*config.FilterChain{{UDPProxy: &config.UDPProxy{Cluster: "none"}}},
		}}}
	}
	r.apply(listener(false))
	r.apply(listener(false))
	if log := r.log.String(); strings.Contains(log, "bound") {
		t.Errorf("the log has a warning although nothing changed: %s", log)
	}
	r.apply(listener(true))
	if log := r.log.String(); strings.Count(log, "takes effect after a restart") != 1 {
		t.Errorf("%d warnings about a restart, want 1; log: %s", strings.Count(log, "takes effect after a restart"), log)
	}
}
