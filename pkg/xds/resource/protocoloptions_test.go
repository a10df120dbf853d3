package resource

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestIgnoredProtocolOptionsAreInOrder verifies that every read reports ignored fields in the same
// order.
func TestIgnoredProtocolOptionsAreInOrder(t *testing.T) {
	want := []string{"o.http_protocol_options.accept_http_10", "o.http2_protocol_options.max_concurrent_streams"}
	for range 50 {
		p := fieldReader{report: &report{}}
		p.ignoreProtocolOptions("o", &corev3.Http1ProtocolOptions{AcceptHttp_10: true},
			&corev3.Http2ProtocolOptions{MaxConcurrentStreams: wrapperspb.UInt32(1)})
		if !slices.Equal(p.report.ignored, want) {
			t.Fatalf("ignored fields are %q, want %q", p.report.ignored, want)
		}
	}
}
