package proxy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestRPCOptionsOfCluster verifies the RPC options of a cluster. keepalive.timeout, counted from
// the first unanswered heartbeat, becomes a number of heartbeats, rounded up.
func TestRPCOptionsOfCluster(t *testing.T) {
	tests := []struct {
		name    string
		cluster *config.Cluster
		want    func(o *config.RPCOptions) // sets the differences from the defaults
	}{
		{"removed cluster", nil, func(*config.RPCOptions) {}},
		{
			"maximum frame size",
			&config.Cluster{Pool: config.Pool{MaxFrameSize: 1 << 20}, Heartbeat: config.Heartbeat{Interval: 15 * time.Second, Timeout: 90 * time.Second}},
			func(o *config.RPCOptions) { o.MaxFrameSize = 1 << 20 },
		},
		{
			"unlimited frame size",
			&config.Cluster{Heartbeat: config.Heartbeat{Interval: 15 * time.Second, Timeout: 90 * time.Second}},
			func(o *config.RPCOptions) { o.MaxFrameSize = 0 },
		},
		{
			"queue limit",
			&config.Cluster{Pool: config.Pool{MaxPendingBytes: 2 << 20}, Heartbeat: config.Heartbeat{Interval: 15 * time.Second, Timeout: 90 * time.Second}},
			func(o *config.RPCOptions) { o.MaxFrameSize, o.MaxPendingBytes = 0, 2<<20 },
		},
		{
			"timeout is a multiple of the interval",
			keepAliveCluster(time.Second, 3*time.Second),
			func(o *config.RPCOptions) { o.HeartbeatInterval, o.MaxMissedHeartbeats = time.Second, 3 },
		},
		{
			"timeout is not a multiple of the interval",
			keepAliveCluster(2*time.Second, 3*time.Second),
			func(o *config.RPCOptions) { o.HeartbeatInterval, o.MaxMissedHeartbeats = 2*time.Second, 2 },
		},
		{
			"timeout is shorter than the interval",
			keepAliveCluster(10*time.Second, time.Second),
			func(o *config.RPCOptions) { o.HeartbeatInterval, o.MaxMissedHeartbeats = 10*time.Second, 1 },
		},
		{
			"no timeout",
			keepAliveCluster(10*time.Second, 0),
			func(o *config.RPCOptions) { o.HeartbeatInterval, o.MaxMissedHeartbeats = 10*time.Second, 1 },
		},
		{
			"no heartbeats",
			keepAliveCluster(0, 3*time.Second),
			func(o *config.RPCOptions) { o.HeartbeatInterval = 0 },
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

// keepAliveCluster returns a cluster with heartbeats at that interval.
func keepAliveCluster(interval, timeout time.Duration) *config.Cluster {
	return &config.Cluster{
		Pool:      config.Pool{MaxFrameSize: config.DefaultRPCOptions().MaxFrameSize},
		Heartbeat: config.Heartbeat{Interval: interval, Timeout: timeout},
	}
}
