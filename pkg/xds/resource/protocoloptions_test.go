package resource

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestIgnoredProtocolOptionsAreInOrder verifies that every read reports ignored fields in the same
// order.
func TestIgnoredProtocolOptionsAreInOrder(t *testing.T) {
	want := []string{"o.http_protocol_options.accept_http_10", "o.http2_protocol_options.allow_connect"}
	for range 50 {
		p := fieldReader{report: &report{}}
		p.field("o").readProtocolOptions(&corev3.Http1ProtocolOptions{AcceptHttp_10: true}, &corev3.Http2ProtocolOptions{AllowConnect: true}, &config.Cluster{})
		if !slices.Equal(p.report.ignored, want) {
			t.Fatalf("ignored fields are %q, want %q", p.report.ignored, want)
		}
	}
}
