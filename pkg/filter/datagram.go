package filter

import (
	"context"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// PacketServer serves the datagrams of one listener, whose socket it was made with and
// closes. Safe for concurrent use.
type PacketServer interface {
	// Serve returns when the socket is closed, by Drain, or fails: only then with an error.
	Serve() error
	// Change puts another configuration in force, for the sessions that there are, too.
	Change(cfg config.UDPProxy)
	// Sessions is how many there are.
	Sessions() int
	// Drain takes no source that is new, lets sessions end that fall silent, and at the
	// end of ctx all; then it closes the socket. It returns how many were cut.
	Drain(ctx context.Context) (cut int)
}

// HostLeaser gives sessions of datagrams their hosts. Safe for concurrent use.
type HostLeaser interface {
	// Assign chooses a host of the cluster, by hash if the cluster goes by that (0:
	// by chance), and opens a socket to it. It returns now, the way that the session has,
	// if that leads to the same host, unless it heard an error: its socket may go on
	// telling of what was refused. Nil: it has none. Another way takes the place of now,
	// which the session ends then, and needs no room in the same cluster. Errors are
	// Faults.
	Assign(cluster string, hash uint64, now HostLease) (HostLease, error)
}

// HostLease is the way of a session to its host. Safe for concurrent use.
type HostLease interface {
	// Peer is the socket. It belongs to the way.
	Peer() *network.ConnectedUDP
	// Usable reports whether the host is healthy, and still one of its cluster's.
	Usable() bool
	// Heard takes note of what came from the host: nil, a datagram; an error, that nobody
	// receives at its address.
	Heard(err error)
	// End gives the way back, once, and closes its socket.
	End()
}

// DatagramCounts is what a Datagrams counts.
type DatagramCounts struct {
	Opened, Moved     atomic.Uint64 // sessions
	In, Out           atomic.Uint64 // datagrams that were passed on: to hosts, to callers
	InBytes, OutBytes atomic.Uint64

	// Datagrams that were dropped.
	MaxSessions atomic.Uint64 // no room for a session
	NoHost      atomic.Uint64 // no host for it
	Draining    atomic.Uint64 // no session is begun any more
	ToHost      atomic.Uint64 // the kernel did not take it
	ToCaller    atomic.Uint64
}
