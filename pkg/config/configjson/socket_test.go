package configjson

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestClusterSocketOptions(t *testing.T) {
	tests := []struct {
		name, keys string
		want       config.Socket
	}{
		{"no options", "", config.Socket{}},
		{"address", `, "upstream_bind_config": {"source_address": "10.0.0.5"}`, config.Socket{SourceIPv4: "10.0.0.5"}},
		{"object", `, "upstream_bind_config": {"source_address": {"address": "fd00::5", "port_value": 0}}`, config.Socket{SourceIPv6: "fd00::5"}},
		{"IPv4 and IPv6", `, "upstream_bind_config": {"source_address": ["fd00:0::5", {"address": "10.0.0.5"}]}`,
			config.Socket{SourceIPv4: "10.0.0.5", SourceIPv6: "fd00::5"}},
		{"keepalive with the values of the system", `, "upstream_connection_options": {"tcp_keepalive": {}}`,
			config.Socket{KeepAlive: config.TCPKeepAlive{Enabled: true}}},
		{"keepalive", `, "upstream_connection_options": {"tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": 60, "keepalive_interval": 10}}`,
			config.Socket{KeepAlive: config.TCPKeepAlive{Enabled: true, Idle: time.Minute, Interval: 10 * time.Second, Probes: 3}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, diags := Parse("a.json", []byte(`{"servers": [{}], "cluster_manager": {"clusters": [{"name": "a", "hosts": []`+tt.keys+`}]}}`), testCapabilities(), Options{})
			if s == nil {
				t.Fatal(diags)
			}
			if diff := cmp.Diff(tt.want, s.Clusters[0].Socket); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
