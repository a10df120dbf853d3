package filter

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ClusterClient lets a filter call clusters itself, in addition to the exchange that passes it:
// to ask a service, or to send a copy. It is safe for concurrent use while exchanges are served
// and on goroutines that Go has started. New must not use it.
type ClusterClient interface {
	// Call sends x to a host of the cluster that has the name now. It waits for the head of the
	// response until x.Deadline, which must be set. Then it calls receive, which may read x.Response
	// and keeps nothing of it, and releases the response. The filter alone owns x. Its Meta names
	// the protocol that it is written in; its Downstream is nil or the result of DisconnectWatcher.
	// A one-way exchange has no response to receive.
	//
	// Call returns Faults, NoCluster among them, or the error of receive. No route's timeout or
	// retries apply. If Call cannot connect to a host, it tries another one.
	Call(ctx context.Context, to Target, x *protocol.Exchange, receive func() error) error

	// Hosts returns how many hosts a cluster has, and how many of them are usable; 0 if the
	// cluster is not configured.
	Hosts(cluster string) (usable, all int)

	// Go runs f on a new goroutine. At the end the process waits for f, so f must be bounded in
	// time and return soon after ctx is done; then the process may stop waiting. ctx is not an
	// exchange's. Go recovers a panic of f.
	Go(f func(ctx context.Context))
}

// Target names the destination of a call.
type Target struct {
	Cluster  string
	Protocol config.Protocol // protocol toward the hosts; "": the cluster's, else the exchange's own
}
