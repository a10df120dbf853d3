package filtertest

import (
	"context"
	"strings"
	"sync"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ClusterClient is a filter.ClusterClient whose clusters are services of the test. When Call
// returns, it overwrites the memory of the response headers, as an engine that reuses a buffer
// does. The test sets its fields before the first use.
type ClusterClient struct {
	Clusters      map[string]protocol.Service
	HostCounts    map[string]int // number of hosts; 1 for a cluster without an entry
	UnusableHosts map[string]int // number of hosts that are not usable

	tasks sync.WaitGroup
}

// Call implements filter.ClusterClient.
func (c *ClusterClient) Call(ctx context.Context, target filter.Target, x *protocol.Exchange, receive func() error) error {
	s := c.Clusters[target.Cluster]
	if s == nil {
		return protocol.Faultf(protocol.NoCluster, "cluster %q is not defined", target.Cluster)
	}
	if err := x.Serve(ctx, s); err != nil {
		return err
	}
	overwrite := moveToBuffer(&x.Response.Header)
	defer x.ResetResponse()
	defer overwrite()
	return receive()
}

// moveToBuffer makes the strings of h borrow one buffer, which overwrite overwrites.
func moveToBuffer(h *protocol.Header) (overwrite func()) {
	var text strings.Builder
	for name, value := range h.All() {
		text.WriteString(name + value)
	}
	buffer := []byte(text.String())
	rest := unsafe.String(unsafe.SliceData(buffer), len(buffer))
	for i := range h.Len() {
		f := h.At(i)
		n := len(f.Name)
		f.Name, rest = rest[:n], rest[n:]
		n = len(f.Value)
		f.Value, rest = rest[:n], rest[n:]
	}
	return func() {
		for i := range buffer {
			buffer[i] = '!'
		}
	}
}

// Hosts implements filter.ClusterClient.
func (c *ClusterClient) Hosts(cluster string) (usable, total int) {
	if c.Clusters[cluster] == nil {
		return 0, 0
	}
	total = 1
	if n, ok := c.HostCounts[cluster]; ok {
		total = n
	}
	return total - c.UnusableHosts[cluster], total
}

// Go implements filter.ClusterClient. It recovers a panic, as a server does.
func (c *ClusterClient) Go(f func(ctx context.Context)) {
	c.tasks.Go(func() {
		_ = recoverPanic(func() error { f(context.Background()); return nil }) // the test checks what f did
	})
}

// Wait returns when all functions started by Go have returned.
func (c *ClusterClient) Wait() { c.tasks.Wait() }
