// Package upstream manages the clusters, their hosts, and the connections to them.
//
// An exchange passes through the package like this:
//
//	ClusterPicker            selects the cluster               cluster.go
//	  admission              checks the circuit breakers       cluster.go, breakers.go, breaker
//	  subset, rules          select hosts                      subsets.go, subset; hostrules.go
//	  pick                   picks the host                    pick.go, hostset.go, share, balance
//	  pool                   provides the connection           hostpools.go, pool
//	  Connection.Start       runs the engine of the protocol
//
// This package ties the parts together: it owns the clusters and hosts, preserves them across
// configuration changes, and maintains metrics and logs. Each part is a package. Of these packages,
// only discovery imports this one:
//
//	balance      policies that pick one of several hosts
//	share        shares of priorities and localities, panic, slow start     pure
//	subset       labels, and the subset of an exchange                      pure
//	breaker      limits of exchanges, retries and connections
//	pool         connections to one host
//	hosthealth   why a host is not usable, backoff, recovery probes
//	outlier      decisions to eject hosts that fail too often
//	health       active checks
//	discovery    sources of hosts (plugins)
//	tasks, wait  the clock, timers and goroutines of a set; waiting for a channel
//
// Configuration passes through Set.Prepare and Change.Commit (set.go, state.go); a Discovery
// resolves names to addresses. State that outlives a configuration change lives with its owner:
// admission counts in the Cluster, health and connections in the Host.
//
// Timers close idle connections, and goroutines that belong to no exchange open connections.
// Set.Close waits for these timers and goroutines.
package upstream

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// Connector opens connections that speak one protocol.
type Connector interface {
	// Multiplexed reports whether a connection carries many exchanges concurrently.
	Multiplexed() bool

	// Connect opens a connection to h before the deadline; the zero time means that only ctx ends
	// the attempt. Its errors are Faults: ConnectTimeout after the deadline, otherwise
	// ConnectFailure. The connection calls released when it releases an exchange, whether or not
	// there was a response; reusable reports whether the connection can carry another exchange.
	Connect(ctx context.Context, h *Host, deadline time.Time, released func(reusable bool)) (pool.Connection, error)
}

// Discovery finds the hosts of clusters whose configuration does not list their addresses.
type Discovery interface {
	// Watch calls update with all hosts of c when it has found them, and again after each change.
	// It calls update from any goroutine, but never concurrently. An error reports that a search
	// for hosts failed: the cluster keeps its current hosts. After stop has returned, no further
	// call begins.
	Watch(c *config.Cluster, update func(hosts []config.Host, err error)) (stop func())
}

// Meter opens the recorders of clusters and hosts. Safe for concurrent use.
type Meter interface {
	// Cluster opens the recorder of a configured cluster. The set calls it when the cluster needs a
	// recorder for the first time. The need arises with an exchange, a forwarded connection, a
	// session, a failed check, or connections that are opened ahead of exchanges. The gauges may be
	// read from any goroutine, even after the recorder is closed.
	Cluster(name string, gauges Gauges) ClusterRecorder
	// Host opens the recorder of a host. The set calls it when it creates the first connection pool
	// of the host. Hosts of a cluster of type ORIGINAL_DST have no recorders.
	Host(cluster, address string) Recorder
}

// Recorder records metrics of the exchanges of a scope. Add may still be called after Close, for
// exchanges that were in flight.
type Recorder interface {
	metrics.Recorder
	// Close closes the recorder. The set calls it once, when the cluster or the host is removed.
	Close()
}

// ClusterRecorder also counts events other than exchanges.
type ClusterRecorder interface {
	Recorder
	Count(e Event)
	// LimitReached counts that a limit of a priority was reached; e is the event for that limit.
	LimitReached(p config.Priority, e Event)
}

// Gauges provides the values of a cluster that go up and down. *Cluster implements it.
type Gauges interface {
	// InFlight returns the number of exchanges of all priorities.
	InFlight() int64
	// LimitUsage returns the current usage of a limit and its maximum. The maximum 0 means
	// unlimited; a negative maximum allows none.
	LimitUsage(p config.Priority, l metrics.Limit) (used, limit int64)
}

// Event is a countable event of a cluster.
type Event uint8

// The events.
const (
	ConnectionOpened Event = iota
	ConnectionClosed
	ConnectionMaxRequests // a connection reached its maximum number of requests
	ConnectFailed         // a connect or its TLS handshake failed or timed out
	ConnectionOverflow    // max_connections reached: the exchange waits, or is rejected
	PendingOverflow       // rejected: max_pending_requests
	RequestOverflow       // rejected: max_requests
	RetryOverflow         // rejected: max_retries
	BudgetOverflow        // rejected: retry_budget
	Resent                // a connection was stale: the request was sent again
	HostDown              // a host is no longer usable
	HostUp                // a host is usable again
	CheckFailed           // an active check failed
	HostEjected           // outlier detection ejected a host
	EjectionOverflow      // a host was not ejected, because too many hosts are ejected
	Hedged                // an attempt was sent in addition to others of the same exchange
	HedgeWon              // the client received the response of a hedged attempt
	AttemptCanceled       // the response of an attempt was no longer needed
)

// Options are the dependencies of a Set. Immutable.
type Options struct {
	// Connectors holds the connectors by protocol.
	Connectors map[config.Protocol]Connector
	// Policies holds the load-balancing policies.
	Policies map[config.LBPolicy]balance.NewFunc
	// Discoveries holds the discoveries by cluster type. Clusters of other types use their
	// configured hosts.
	Discoveries map[config.ClusterType]Discovery
	// Dial opens a connection to a host before the deadline (zero: only ctx bounds it), for active
	// checks that need no Connector. Its errors are those of Connector.Connect.
	Dial func(ctx context.Context, h *Host, deadline time.Time) (*network.Conn, error)
	// Codecs holds the codecs of the protocols whose heartbeats can be checked.
	Codecs map[config.Protocol]xprotocol.Codec

	Meter Meter        // nil: no recorders
	Log   *slog.Logger // nil: no log
}
