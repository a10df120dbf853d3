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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := config.DefaultHTTP2Options()
			want.StreamIdleTimeout = 0 // the downstream side limits idle streams
			tt.want(&want)
			if diff := cmp.Diff(want, http2Options(tt.cluster)); diff != "" {
				t.Errorf("http2Options (-want +got):\n%s", diff)
			}
		})
	}
}
