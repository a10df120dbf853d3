package filter

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ClusterClient lets a filter send its own requests to clusters, for example to an authorization
// service or to mirror an exchange. A filter may use it while it serves an exchange and in
// functions started by Go, but not in New. It is safe for concurrent use.
type ClusterClient interface {
	// Call sends x to a host of the cluster that currently has the target's name. It waits for the
	// head of the response until x.Deadline, which must be set. Then it calls receive and releases
	// the response. receive may read x.Response but must not retain any of it. x is a
	// new exchange that the filter owns, not the exchange that it serves. x.Meta names the protocol
	// of x. x.Downstream is nil or the result of DisconnectWatcher. For a one-way exchange,
	// x.Response is empty.
	//
	// Errors are Faults (NoCluster if the cluster is not configured) or the error of receive. The
	// timeouts and retries of routes do not apply. If Call cannot connect to a host, it tries
	// another one.
	Call(ctx context.Context, target Target, x *protocol.Exchange, receive func() error) error

	// Hosts returns the number of usable hosts and of all hosts of a cluster. Both are 0 if the
	// cluster is not configured.
	Hosts(cluster string) (usable, total int)

	// Go runs f on a new goroutine. On shutdown the process waits for f until the drain deadline
	// and then cancels ctx. f must take a bounded time and return soon after ctx is done. ctx does
	// not belong to an exchange. Go recovers a panic of f.
	Go(f func(ctx context.Context))
}

// Target names the destination of a call.
type Target struct {
	Cluster  string
	Protocol config.Protocol // protocol toward the hosts; "": the protocol of the cluster, else of the exchange
	Timeout  time.Duration   // the timeout that the settings of the filter set; hosts of an Envoy configuration learn it; 0: none
}
