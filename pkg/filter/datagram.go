package filter

import (
	"context"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// PacketServer serves the datagrams of one listener. It owns the listener's socket. It is safe for
// concurrent use.
type PacketServer interface {
	// Serve returns when Drain closes the socket, or with an error when the socket fails.
	Serve() error
	// UpdateConfig applies a new configuration, also to existing sessions.
	UpdateConfig(cfg config.UDPProxy)
	// Sessions returns the number of sessions.
	Sessions() int
	// Drain accepts no new sources and lets sessions end when they become idle. When ctx ends, it
	// force-closes the remaining sessions. Then it closes the socket and returns the number of
	// force-closed sessions.
	Drain(ctx context.Context) (forceClosed int)
}

// HostLeaser leases hosts to datagram sessions. It is safe for concurrent use.
type HostLeaser interface {
	// Lease chooses a host of the cluster and opens a socket to it. If the cluster balances by
	// hash, it uses hash (0: random). current is the session's lease, nil if it has none. Lease
	// returns current if it chooses the same host and no error has been reported to that lease.
	// Otherwise the session must release current. A session that moves within its cluster is not
	// counted twice against the cluster's limits. Errors are Faults.
	Lease(cluster string, hash uint64, current HostLease) (HostLease, error)
}

// HostLease is the right of a session to use its host. It is safe for concurrent use.
type HostLease interface {
	// Socket returns the socket, which the lease owns.
	Socket() *network.ConnectedUDP
	// Usable reports whether the host is healthy and still belongs to its cluster.
	Usable() bool
	// Report records err, the error of a receive from the host or of a send that the host refused.
	// A nil err records a received datagram.
	Report(err error)
	// Release releases the lease and closes its socket. The session calls it once.
	Release()
}

// DatagramCounters holds the counters of a PacketServer.
type DatagramCounters struct {
	SessionsOpened, SessionsMoved atomic.Uint64 // new sessions; moves of a session to another host
	In, Out                       atomic.Uint64 // forwarded datagrams: to hosts, to clients
	InBytes, OutBytes             atomic.Uint64

	// Dropped datagrams, by reason.
	DroppedMaxSessions atomic.Uint64 // the maximum of sessions was reached
	DroppedNoHost      atomic.Uint64 // no host was available, or a limit of the cluster was reached
	DroppedDraining    atomic.Uint64 // the listener drains and accepts no new sessions
	DroppedToHost      atomic.Uint64 // the send to the host failed
	DroppedToClient    atomic.Uint64 // the send to the client failed
}
