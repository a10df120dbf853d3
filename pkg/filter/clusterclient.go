package filter

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ClusterClient lets a filter send its own requests to clusters, for example to an authorization
// service or to mirror an exchange. It is safe for concurrent use while exchanges are served and
// on goroutines that Go has started. New must not use it.
type ClusterClient interface {
	// Call sends x to a host of the cluster that currently has the target's name. It waits for the
	// head of the response until x.Deadline, which must be set. Then it calls receive, which may
	// read x.Response but must not retain any of it, and releases the response. Only the filter
	// owns x. x.Meta names the protocol of x; x.Downstream is nil or the result of
	// DisconnectWatcher. A one-way exchange has no response to receive.
	//
	// Call returns Faults, NoCluster among them, or the error of receive. No route's timeout or
	// retries apply. If Call cannot connect to a host, it tries another one.
	Call(ctx context.Context, target Target, x *protocol.Exchange, receive func() error) error

	// Hosts returns the number of usable hosts and of all hosts of a cluster; 0 if the cluster is
	// not configured.
	Hosts(cluster string) (usable, total int)

	// Go runs f on a new goroutine. On shutdown the process waits for f until it cancels ctx, so f
	// must take a bounded time and return soon after ctx is done. ctx does not belong to an
	// exchange. Go recovers a panic of f.
	Go(f func(ctx context.Context))
}

// Target names the destination of a call.
type Target struct {
	Cluster  string
	Protocol config.Protocol // protocol toward the hosts; "": the cluster's, else the exchange's own
}
