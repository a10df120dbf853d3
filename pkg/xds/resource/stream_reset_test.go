package resource

import (
	"math"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestStreamResetLimits verifies that stream_reset_burst and stream_reset_rate independently set
// the limit of resets on a connection.
func TestStreamResetLimits(t *testing.T) {
	number := wrapperspb.UInt64
	defaults := config.DefaultHTTP2Options().ConnectionResets
	for _, test := range []struct {
		options *corev3.Http2ProtocolOptions
		want    config.TokenBucket
	}{
		{nil, defaults},
		{&corev3.Http2ProtocolOptions{}, defaults},
		{&corev3.Http2ProtocolOptions{StreamResetBurst: number(7)}, config.TokenBucket{Burst: 7, PerSecond: defaults.PerSecond}},
		{&corev3.Http2ProtocolOptions{StreamResetRate: number(7)}, config.TokenBucket{Burst: defaults.Burst, PerSecond: 7}},
		{&corev3.Http2ProtocolOptions{StreamResetBurst: number(0), StreamResetRate: number(0)}, config.TokenBucket{Burst: 1, PerSecond: 1}},
		{&corev3.Http2ProtocolOptions{StreamResetBurst: number(math.MaxUint64), StreamResetRate: number(math.MaxUint64)}, config.TokenBucket{Burst: 1_000_000, PerSecond: 1_000_000}},
	} {
		out := &config.Proxy{HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options()}
		p := fieldReader{report: &report{}}
		p.readHTTPOptions(&hcmv3.HttpConnectionManager{Http2ProtocolOptions: test.options}, out, &Listener{Config: &config.Listener{}})
		if out.HTTP2.ConnectionResets != test.want || len(p.report.ignored) != 0 {
			t.Errorf("%v is read as %+v, ignored %v, want %+v", test.options, out.HTTP2.ConnectionResets, p.report.ignored, test.want)
		}
	}
}
