package configjson

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestOriginalDstMode verifies which key decides how connections are redirected.
func TestOriginalDstMode(t *testing.T) {
	for text, want := range map[string]config.OriginalDstMode{
		`"listener_filters": [{"type": "original_dst"}]`:                                                                       config.OriginalDstRedirect,
		`"listener_filters": [{"type": "original_dst", "config": {"type": ""}}]`:                                               config.OriginalDstRedirect,
		`"listener_filters": [{"type": "original_dst", "config": {"type": "redirect"}}]`:                                       config.OriginalDstRedirect,
		`"listener_filters": [{"type": "original_dst", "config": {"type": "tproxy"}}]`:                                         config.OriginalDstTProxy,
		`"use_original_dst": true, "listener_filters": [{"type": "original_dst"}]`:                                             config.OriginalDstRedirect,
		`"use_original_dst": true, "listener_filters": [{"type": "original_dst", "config": {"type": "tproxy"}}]`:               config.OriginalDstTProxy,
		`"use_original_dst": false, "listener_filters": [{"type": "original_dst", "config": {"type": "tproxy"}}]`:              "",
		`"use_original_dst": "tproxy", "listener_filters": [{"type": "original_dst"}]`:                                         config.OriginalDstTProxy,
		`"use_original_dst": "tproxy", "listener_filters": [{"type": "original_dst", "config": {"fallback_to_local": false}}]`: config.OriginalDstTProxy,
	} {
		file := `{"servers": [{"listeners": [{"name": "in", "address": "127.0.0.1:1", ` + text + `,
			"filter_chains": [{"filters": [{"type": "tcp_proxy", "config": {"cluster": "a"}}]}]}]}],
			"cluster_manager": {"clusters": [{"name": "a", "type": "ORIGINAL_DST", "lb_type": "LB_ORIGINAL_DST"}]}}`
		s, diags := Parse("a.json", []byte(file), testCapabilities(), Options{})
		if s == nil {
			t.Errorf("%s: %v, want no error", text, diags)
			continue
		}
		if got := s.Listeners[0].OriginalDst; got != want {
			t.Errorf("%s: mode %q, want %q", text, got, want)
		}
	}
}
