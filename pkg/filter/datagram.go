package filter

import (
	"context"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// PacketServer serves the datagrams of one listener. It is created with the listener's socket and
// closes it. It is safe for concurrent use.
type PacketServer interface {
	// Serve returns when Drain closes the socket, or with an error when the socket fails.
	Serve() error
	// UpdateConfig applies another configuration, also to existing sessions.
	UpdateConfig(cfg config.UDPProxy)
	// Sessions returns the number of sessions.
	Sessions() int
	// Drain accepts no new sources and lets sessions end when they become idle. At the end of ctx
	// it force-closes the rest. Then it closes the socket and returns how many sessions it
	// force-closed.
	Drain(ctx context.Context) (cut int)
}

// HostLeaser leases hosts to datagram sessions. It is safe for concurrent use.
type HostLeaser interface {
	// Lease chooses a host of the cluster and opens a socket to it. If the cluster balances by
	// hash, it uses hash (0: random). now is the session's current lease, nil if it has none.
	// Lease returns now if it is a lease of the same host without an error; after an error its
	// socket may continue to report rejected datagrams. Any other lease replaces now, which the
	// session then ends; in the same cluster the new lease takes no additional slot. Errors are
	// Faults.
	Lease(cluster string, hash uint64, now HostLease) (HostLease, error)
}

// HostLease is the right of a session to use its host. It is safe for concurrent use.
type HostLease interface {
	// Socket returns the socket, which the lease owns.
	Socket() *network.ConnectedUDP
	// Usable reports whether the host is healthy and still belongs to its cluster.
	Usable() bool
	// Report records an event from the host: nil for a datagram, an error if nothing receives at
	// its address.
	Report(err error)
	// Release releases the lease and closes its socket. It is called once.
	Release()
}

// DatagramCounters holds the counters of a PacketServer.
type DatagramCounters struct {
	SessionsOpened, SessionsMoved atomic.Uint64 // sessions
	In, Out                       atomic.Uint64 // forwarded datagrams: to hosts, to clients
	InBytes, OutBytes             atomic.Uint64

	// Dropped datagrams, by reason.
	DroppedMaxSessions atomic.Uint64 // the maximum of sessions was reached
	DroppedNoHost      atomic.Uint64 // no host for it
	DroppedDraining    atomic.Uint64 // new sessions were not accepted
	DroppedToHost      atomic.Uint64 // the kernel did not accept it
	DroppedToClient    atomic.Uint64
}
