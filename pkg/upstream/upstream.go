// Package upstream owns the way to the hosts that answer: clusters, their
// hosts, and the connections to them.
//
// An exchange passes through it like this:
//
//	Via                      which cluster                     cluster.go
//	  admission              may it go at all (breakers)       cluster.go
//	  pick                   to which host                     pick.go
//	  pool                   on which connection               pool.go, and one file for each kind
//	    slots                may one more be opened            slots.go
//	  Connection.Serve       the protocol's engine
//
// Configuration passes through Set.Prepare and Change.Commit (set.go, state.go);
// names are turned into addresses by a Discovery. What outlives a change of
// configuration is kept where it belongs: admission counts in the Cluster,
// health and connections in the Host.
//
// Idle connections are swept by timers, and connections that many exchanges share
// are opened on goroutines of their own; Set.Close waits for both.
package upstream

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// Connection is a connection to a host. It carries one exchange at a time, or
// many if its Connector is Multiplexed; then Serve and Usable are called from
// many goroutines. stream.UpstreamConn is one.
type Connection interface {
	// Serve sends x.Request and returns once the head of the answer is in
	// x.Response, or with a Fault: of ConnectFailure if it had ended before
	// x.Request was sent. The connection, or the stream on it, belongs to the
	// exchange until the released function that Connect was given is called,
	// exactly once per Serve.
	protocol.Service

	// Usable reports whether the connection can take an exchange now, after it
	// was idle for so long: false when the peer closed it, or wants no more.
	Usable(idle time.Duration) bool

	// Close ends the connection at once. Safe from any goroutine; called once.
	Close() error
}

// RTTReporter is a Connection that asks its host for a sign of life now and then.
// stream.RTTReporter is one.
type RTTReporter interface {
	Connection
	// RTT is how long the last took to come; 0: there was none.
	RTT() time.Duration
}

// StreamLimitReporter is a Connection whose host says how many exchanges it takes at once.
// stream.LimitReporter is one.
type StreamLimitReporter interface {
	Connection
	// MaxConcurrentStreams is how many; what is more than that waits on the connection until others
	// have ended.
	MaxConcurrentStreams() int64
}

// Connector opens connections that speak one protocol.
type Connector interface {
	// Multiplexed reports whether a connection carries many exchanges at once.
	Multiplexed() bool

	// Connect opens a connection to h before the deadline; the zero time means
	// that only ctx ends the attempt. Its errors are Faults: ConnectTimeout when
	// time ran out, ConnectFailure for everything else. released is called when
	// an exchange has left the connection, whether it was answered or not;
	// reusable says that the connection can take another.
	Connect(ctx context.Context, h *Host, deadline time.Time, released func(reusable bool)) (Connection, error)
}

// Discovery finds the hosts of clusters whose configuration does not list their
// addresses.
type Discovery interface {
	// Watch calls update with all hosts of c, first when they are known and then
	// whenever they change, from any goroutine but one call at a time. With an
	// error, nothing new is known and what was known stays. After stop has
	// returned no further call begins.
	Watch(c *config.Cluster, update func(hosts []config.Host, err error)) (stop func())
}

// Meter opens the accounts that clusters and hosts keep. Safe for concurrent
// use.
type Meter interface {
	// Cluster is called when the first exchange enters a cluster. What levels tell
	// may be asked for from any goroutine, until the account is closed and after.
	Cluster(name string, levels Gauges) ClusterRecorder
	// Host is called when the first exchange goes to a host.
	Host(cluster, address string) Recorder
}

// Recorder is where a place accounts for exchanges. Add may still be called after
// Close, for exchanges that were under way.
type Recorder interface {
	metrics.Account
	// Close is called once, when the place has left the configuration.
	Close()
}

// ClusterRecorder also counts what happens apart from exchanges.
type ClusterRecorder interface {
	Recorder
	Count(e Event)
	// LimitReached counts that a limit of a priority was reached; e is one of the overflows.
	LimitReached(p config.Priority, e Event)
}

// Gauges are numbers of a cluster that go up and down. *Cluster has them.
type Gauges interface {
	// InFlight returns the number of exchanges, of any priority.
	InFlight() int64
	// Room returns how much there is of what a limit bounds, and how much there may be;
	// 0: any number; below 0: none.
	Room(p config.Priority, l metrics.Limit) (used, most int64)
}

// Event is something that happens in a cluster and is worth a counter.
type Event uint8

// The events.
const (
	ConnectionOpened Event = iota
	ConnectionClosed
	ConnectionMaxRequests // as many exchanges have begun on it as may
	ConnectFailed         // refused, unreachable or timed out
	ConnectionOverflow    // max_connections was reached: the exchange had to wait
	PendingOverflow       // refused: max_pending_requests
	RequestOverflow       // refused: max_requests
	RetryOverflow         // refused: max_retries
	BudgetOverflow        // refused: retry_budget
	Resent                // a connection had gone stale: the request was sent again
	HostDown              // it is not usable any more
	HostUp                // it is usable again
	CheckFailed           // an active check
	HostEjected           // for how it answered
	EjectionOverflow      // too many hosts are ejected
	Hedged                // a try was sent beside others of the same exchange
	HedgeWon              // its answer was the caller's
	AttemptCancelled      // nobody waits for its answer any more
)

// Options are what a Set needs of the rest of the process. Immutable.
type Options struct {
	// Connectors by the protocol that they speak.
	Connectors map[config.Protocol]Connector
	// Policies are the load-balancing policies that exist.
	Policies map[config.Policy]balance.New
	// Discoveries by the cluster type whose hosts they find. Types that are
	// not here take their hosts as configured.
	Discoveries map[config.ClusterType]Discovery
	// Dial opens a connection to a host before the deadline (zero: ctx alone bounds
	// it), for active checks that speak no protocol of exchanges. Its errors are
	// those of Connector.Connect.
	Dial func(ctx context.Context, h *Host, deadline time.Time) (*network.Conn, error)
	// Codecs of the protocols whose heartbeats can be checked.
	Codecs map[config.Protocol]xprotocol.Codec

	Meter Meter        // nil: no accounts
	Log   *slog.Logger // nil: no log
}
