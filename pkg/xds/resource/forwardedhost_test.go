package resource

import (
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestXDSListenersAddNoXForwardedHost verifies that xDS listeners add only X-Forwarded-For and
// X-Forwarded-Proto, as in Envoy.
func TestXDSListenersAddNoXForwardedHost(t *testing.T) {
	h := config.HTTP1Options{}
	fieldReader{report: &report{}}.readForwarded(&hcmv3.HttpConnectionManager{UseRemoteAddress: wrapperspb.Bool(true)}, &h)
	if h.XForwarded != config.ForwardedAppend || h.XForwardedHost {
		t.Errorf("XForwarded = %q, XForwardedHost = %v; want append, false", h.XForwarded, h.XForwardedHost)
	}
}
