package resource

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestListenerHTTP1Options verifies Envoy's defaults and the options that change them.
func TestListenerHTTP1Options(t *testing.T) {
	strict := config.HTTP1Accept{RejectHTTP10: true, RejectMissingHost: true, KnownMethodsOnly: true}
	for name, test := range map[string]struct {
		options *corev3.Http1ProtocolOptions
		want    config.HTTP1Accept
	}{
		"default":       {nil, strict},
		"empty message": {&corev3.Http1ProtocolOptions{}, strict},
		"everything allowed": {&corev3.Http1ProtocolOptions{
			AcceptHttp_10: true, DefaultHostForHttp_10: "d", AllowCustomMethods: true, AllowAbsoluteUrl: wrapperspb.Bool(true),
		}, config.HTTP1Accept{RejectMissingHost: true, DefaultHost: "d"}},
		"absolute form rejected": {&corev3.Http1ProtocolOptions{AllowAbsoluteUrl: wrapperspb.Bool(false)},
			config.HTTP1Accept{RejectHTTP10: true, RejectMissingHost: true, KnownMethodsOnly: true, RejectAbsoluteForm: true}},
	} {
		t.Run(name, func(t *testing.T) {
			out := &config.Proxy{HTTP1: config.DefaultHTTP1Options()}
			p := fieldReader{report: &report{}}
			p.readHTTPOptions(&hcmv3.HttpConnectionManager{HttpProtocolOptions: test.options}, out, &Listener{Config: &config.Listener{}})
			if out.HTTP1.BodyTimeout != 0 || out.HTTP1.StreamIdleTimeout != 5*time.Minute {
				t.Errorf("BodyTimeout = %v, StreamIdleTimeout = %v, want 0 and 5m", out.HTTP1.BodyTimeout, out.HTTP1.StreamIdleTimeout)
			}
			if out.HTTP1.Accept != test.want || len(p.report.ignored) != 0 {
				t.Errorf("Accept = %+v, ignored fields %v; want %+v and none", out.HTTP1.Accept, p.report.ignored, test.want)
			}
		})
	}
}
