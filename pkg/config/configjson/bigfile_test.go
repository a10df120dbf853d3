package configjson

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// bigFile returns a file with the given number of clusters, each with two hosts, and five times as
// many routes.
func bigFile(clusters int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"servers": [{"routers": [{"router_config_name": "big", "virtual_hosts": [` + "\n")
	for v := range clusters / 10 {
		fmt.Fprintf(&b, `{"name": "vh%d", "domains": ["host%d.example"], "routers": [`, v, v)
		for i := range 50 {
			n := v*50 + i
			if i > 0 {
				b.WriteString(",\n")
			}
			fmt.Fprintf(&b, `  {
    "match": {"prefix": "/service/%d/", "headers": [{"name": "x-tenant", "value": "t%d"}]},
    "route": {"cluster_name": "cluster%d", "timeout": "30s", "retry_policy": {"retry_on": true, "num_retries": 2}}
  }`, n, n%7, n%clusters)
		}
		b.WriteString("]},\n")
	}
	b.WriteString(`]}], "listeners": [{"name": "l", "address": "127.0.0.1:2045", "filter_chains": [{"filters": [{"type": "proxy",
		"config": {"downstream_protocol": "Http1", "router_config_name": "big"}}]}]}]}],
		"cluster_manager": {"clusters": [` + "\n")
	for c := range clusters {
		fmt.Fprintf(&b, `{"name": "cluster%d", "type": "SIMPLE", "lb_type": "LB_ROUNDROBIN", "connect_timeout": "5s", "hosts": [
  {"address": "10.%d.%d.1:8080", "weight": 10}, {"address": "10.%d.%d.2:8080", "weight": 20}]},`+"\n", c, c/256, c%256, c/256, c%256)
	}
	b.WriteString("]}}")
	return b.Bytes()
}

// BenchmarkBigFile reads 10,000 clusters, 20,000 hosts and 50,000 routes.
func BenchmarkBigFile(b *testing.B) {
	data := bigFile(10_000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var s *config.Snapshot
	for b.Loop() {
		var err error
		if s, err = parseConfig("big.json", data); s == nil {
			b.Fatal(err)
		}
	}
	if len(s.Clusters) != 10_000 || len(s.Routes[0].VirtualHosts) != 1000 {
		b.Fatalf("%d clusters, %d virtual hosts; want 10000, 1000", len(s.Clusters), len(s.Routes[0].VirtualHosts))
	}
}

// parseConfig parses a file with testCapabilities and returns its errors, without the warnings.
func parseConfig(name string, data []byte) (*config.Snapshot, error) {
	s, diags := Parse(name, data, testCapabilities(), Options{})
	return s, diags.Err()
}
