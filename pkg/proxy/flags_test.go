package proxy

import (
	"net"
	"net/http"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestResponseFlags verifies that observers see Envoy's response flags in ended exchanges.
func TestResponseFlags(t *testing.T) {
	ended := make(chan string, 1)
	flags := filter.StreamFilterFactory{
		Name: "flags", Stage: filter.BeforeRoute,
		Config: func() any { return new(struct{}) },
		New: func(_ any, env filter.Env) (filter.Filter, error) {
			env.Observe(func(x *protocol.Exchange) { ended <- x.Record.Flags.NamesWith(x.Record.Reason) })
			return func(next protocol.Service) protocol.Service { return next }, nil
		},
	}
	busy := origin(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	_ = ln.Close()
	r := newRig(t, flags)
	r.apply(parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
		"stream_filters": [{"type": "flags", "config": {}}, {"type": "fault", "config": {}}, {"type": "rbac", "config": {}}, {"type": "csrf", "config": {"filter_enabled": {"default_value": {"numerator": 100}}}}],
		"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "upstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [
			{"match": {"path": "/late"}, "direct_response": {"status": 200}, "per_filter_config": {"fault": {"delay": {"fixed_delay": "1ms", "percentage": 100}}}},
			{"match": {"path": "/late-abort"}, "direct_response": {"status": 200}, "per_filter_config": {"fault": {"delay": {"fixed_delay": "1ms", "percentage": 100}, "abort": {"percentage": 100}}}},
			{"match": {"path": "/rbac"}, "direct_response": {"status": 200}, "per_filter_config": {"rbac": {"rules": {"policies": {}}}}},
			{"match": {"path": "/busy"}, "route": {"cluster_name": "busy", "retry_policy": {"retry_on": "5xx", "num_retries": 1}}},
			{"match": {"path": "/busy-once"}, "route": {"cluster_name": "busy"}},
			{"match": {"path": "/dead"}, "route": {"cluster_name": "dead", "retry_policy": {"retry_on": "connect-failure", "num_retries": 1}}},
			{"match": {"path": "/ok"}, "direct_response": {"status": 200}}]}]}]}],
		"cluster_manager": {"clusters": [`+cluster("busy", busy)+`, `+cluster("dead", dead)+`]}}`, flags))
	for path, want := range map[string]string{
		"/ok": "-", "/late": "DI", "/late-abort": "DI,FI", "/rbac": "-", "/busy": "URX", "/busy-once": "-", "/dead": "URX,UF", "/none": "NR",
	} {
		dialClient(t, r.address("front")).roundTrip(get(path))
		if got := <-ended; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	dialClient(t, r.address("front")).roundTrip("POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
	if got := <-ended; got != "-" {
		t.Errorf("csrf: flags %q, want none", got)
	}
}
