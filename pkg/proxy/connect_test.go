package proxy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

// A host is given up when keepalive.timeout has passed since the first heartbeat
// that nothing followed: that is counted in heartbeats, and rounded up.
func TestRPCOptionsOfACluster(t *testing.T) {
	tests := []struct {
		name    string
		cluster *config.Cluster
		want    func(o *config.RPCOptions) // what differs from the defaults
	}{
		{"a cluster that has left the configuration", nil, func(*config.RPCOptions) {}},
		{
			"largest frame",
			&config.Cluster{Pool: config.Pool{MaxFrameSize: 1 << 20}, KeepAlive: config.KeepAlive{Interval: 15 * time.Second, Timeout: 90 * time.Second}},
			func(o *config.RPCOptions) { o.MaxFrameSize = 1 << 20 },
		},
		{
			"any frame",
			&config.Cluster{KeepAlive: config.KeepAlive{Interval: 15 * time.Second, Timeout: 90 * time.Second}},
			func(o *config.RPCOptions) { o.MaxFrameSize = 0 },
		},
		{
			"a bound of the queue",
			&config.Cluster{Pool: config.Pool{MaxQueued: 2 << 20}, KeepAlive: config.KeepAlive{Interval: 15 * time.Second, Timeout: 90 * time.Second}},
			func(o *config.RPCOptions) { o.MaxFrameSize, o.MaxQueued = 0, 2<<20 },
		},
		{
			"timeout is whole intervals",
			alive(time.Second, 3*time.Second),
			func(o *config.RPCOptions) { o.PingInterval, o.PingMisses = time.Second, 3 },
		},
		{
			"timeout is not whole intervals",
			alive(2*time.Second, 3*time.Second),
			func(o *config.RPCOptions) { o.PingInterval, o.PingMisses = 2*time.Second, 2 },
		},
		{
			"timeout is shorter than the interval",
			alive(10*time.Second, time.Second),
			func(o *config.RPCOptions) { o.PingInterval, o.PingMisses = 10*time.Second, 1 },
		},
		{
			"no timeout",
			alive(10*time.Second, 0),
			func(o *config.RPCOptions) { o.PingInterval, o.PingMisses = 10*time.Second, 1 },
		},
		{
			"no heartbeats",
			alive(0, 3*time.Second),
			func(o *config.RPCOptions) { o.PingInterval = 0 },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := config.DefaultRPCOptions()
			tt.want(&want)
			if diff := cmp.Diff(want, rpcOptions(tt.cluster)); diff != "" {
				t.Errorf("rpcOptions (-want +got):\n%s", diff)
			}
		})
	}
}

// alive returns a cluster that asks its hosts whether they live.
func alive(interval, timeout time.Duration) *config.Cluster {
	return &config.Cluster{
		Pool:      config.Pool{MaxFrameSize: config.DefaultRPCOptions().MaxFrameSize},
		KeepAlive: config.KeepAlive{Interval: interval, Timeout: timeout},
	}
}
