package service

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestXForwardedHostOption: without it X-Forwarded-Host is not added, and what
// the caller sent is treated as the mode says.
func TestXForwardedHostOption(t *testing.T) {
	for _, test := range []struct {
		mode   config.ForwardedMode
		host   bool
		fields []string
		want   string
	}{
		{config.ForwardedAppend, false, nil, ""},
		{config.ForwardedAppend, true, nil, "shop.test"},
		{config.ForwardedAppend, false, []string{"X-Forwarded-Host: front.test"}, "front.test"},
		{config.ForwardedAppend, true, []string{"X-Forwarded-Host: front.test"}, "front.test"},
		{config.ForwardedSet, false, []string{"X-Forwarded-Host: front.test"}, ""},
		{config.ForwardedSet, true, []string{"X-Forwarded-Host: front.test"}, "shop.test"},
		{config.ForwardedKeep, true, nil, ""},
		{config.ForwardedStrip, true, []string{"X-Forwarded-Host: front.test"}, ""},
	} {
		x := newTestExchange(test.fields...)
		x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
		forwardedTo(t, config.HTTP1Options{XForwarded: test.mode, XForwardedHost: test.host}, x)
		if got := x.Request.Header.Get(forwardedHost); got != test.want {
			t.Errorf("%q, %v, %q: the upstream got %q, want %q", test.mode, test.host, test.fields, got, test.want)
		}
	}
}
