package filter

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ClusterClient lets a filter call clusters by itself, beside the exchange that passes it: to
// ask a service, or to send a copy. Safe for concurrent use, while exchanges are
// served and on goroutines that Go has started; not by New.
type ClusterClient interface {
	// Call sends x to a host of a cluster, which is looked for by its name now, and
	// waits for the head of its answer until x.Deadline, which must be set; then it
	// calls receive, which may read x.Response and keeps nothing of it, and gives the
	// answer up. x is the filter's own, and nobody else's: its Meta says in which
	// protocol it is written, and its Caller is nil or what Beside returned. One that is
	// one-way has no answer to receive.
	//
	// Errors are Faults, NoCluster among them, or receive's. Neither a route's timeout
	// nor its retries apply; a host that cannot be connected to is replaced by
	// another.
	Call(ctx context.Context, to Target, x *protocol.Exchange, receive func() error) error

	// Hosts returns how many hosts a cluster has, and how many of them are usable; 0 if
	// it is not configured.
	Hosts(cluster string) (usable, all int)

	// Go runs f on a goroutine of its own, which the process waits for when it ends:
	// f is bounded in time, and soon returns once ctx is done, which is when the process
	// may wait no longer. ctx is not an exchange's. A panic is contained.
	Go(f func(ctx context.Context))
}

// Target is where a call goes.
type Target struct {
	Cluster  string
	Protocol config.Protocol // spoken to the hosts; "": what the cluster says, else what the exchange is written in
}
