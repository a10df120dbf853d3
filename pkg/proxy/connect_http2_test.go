package proxy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestHTTP2OptionsOfCluster(t *testing.T) {
	tests := []struct {
		name    string
		cluster *config.Cluster
		want    func(o *config.HTTP2Options) // sets the differences from the defaults
	}{
		{"removed cluster", nil, func(*config.HTTP2Options) {}},
		{"no keepalive", keepAliveCluster(0, 3*time.Second), func(*config.HTTP2Options) {}},
		{"heartbeats", keepAliveCluster(5*time.Second, 3*time.Second), func(o *config.HTTP2Options) {
			o.PingInterval, o.PingTimeout = 5*time.Second, 3*time.Second
		}},
		{"options of HTTP", &config.Cluster{HTTP: config.UpstreamHTTP{MaxStreams: 7, StreamWindow: 1 << 20, MaxHeaderSize: 1 << 16, MaxHeaderCount: 3}}, func(o *config.HTTP2Options) {
			o.MaxConcurrentStreams, o.StreamWindow, o.MaxHeaderSize, o.MaxHeaderCount = 7, 1<<20, 1<<16, 3
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := config.DefaultHTTP2Options()
			want.StreamIdleTimeout = 0    // the downstream side limits idle streams
			want.MaxConcurrentStreams = 0 // the host limits them
			tt.want(&want)
			if diff := cmp.Diff(want, http2Options(tt.cluster)); diff != "" {
				t.Errorf("http2Options (-want +got):\n%s", diff)
			}
		})
	}
}
