package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestRedirectLocation(t *testing.T) {
	for want, redirect := range map[string]config.Redirect{
		"*://*/*":             {},
		"https://*/*":         {Scheme: "https"},
		"https://*:8443/*":    {Scheme: "https", Port: 8443},
		"*://new.test:81/a?b": {Host: "new.test", Port: 81, Path: "/a?b"},
		"*://new.test/a":      {Host: "new.test", Path: "a"},
	} {
		if got := location(&redirect); got != want {
			t.Errorf("location(%+v) = %q, want %q", redirect, got, want)
		}
	}
}

// TestDescribeRoute verifies the parts of a route that TestDescribeRoutes does not contain.
func TestDescribeRoute(t *testing.T) {
	rewrite := &config.RegexRewrite{Pattern: "^/(.*)$", Substitution: `\1`}
	for want, r := range map[string]config.Route{
		`{"name":"","match":{"arguments":[{"name":"1","value":"a"}]},"action":"respond","status":200}`: {
			Match:          config.RouteMatch{Arguments: []config.ArgumentMatch{{Index: 1, Matcher: config.ValueMatch{Text: "a"}}}},
			DirectResponse: &config.DirectResponse{Status: 200},
		},
		`{"name":"","match":{"headers":[{"name":"x","value":"a","not":true,"treat_missing_as_empty":true}]},"action":"respond","status":200}`: {
			Match: config.RouteMatch{Headers: []config.HeaderMatch{{
				Name: "x", Matcher: &config.ValueMatch{Text: "a", Invert: true, TreatMissingAsEmpty: true},
			}}},
			DirectResponse: &config.DirectResponse{Status: 200},
		},
		`{"name":"","match":{},"action":"forward","cluster":"c","host_rewrite":"^/(.*)$ -\u003e \\1","timeout":"none"}`: {
			Forward: &config.Forward{Cluster: "c", HostRewritePath: rewrite},
		},
		`{"name":"","match":{},"action":"redirect","prefix_rewrite":"/b","status":301,"location":"*://*/*"}`: {
			Redirect: &config.Redirect{Code: 301, PrefixRewrite: "/b"},
		},
		`{"name":"","match":{},"action":"redirect","regex_rewrite":"^/(.*)$ -\u003e \\1","status":301,"location":"*://*/*"}`: {
			Redirect: &config.Redirect{Code: 301, RegexRewrite: rewrite},
		},
	} {
		got, err := json.Marshal(describeRoute(&r))
		if err != nil || string(got) != want {
			t.Errorf("describeRoute(%+v) = %s, %v, want %s", r, got, err, want)
		}
	}
}

func TestDescribeRoutes(t *testing.T) {
	r := newRig(t)
	r.apply(parse(t, `{"servers": [{
		"listeners": [
			{"name": "b", "address": "127.0.0.1:0", "filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "shop"}}]}],
			 "stream_filters": [{"type": "fault"}]}],
		"routers": [
			{"router_config_name": "shop", "virtual_hosts": [
				{"name": "exact", "domains": ["shop.test", "*.shop.test"], "routers": [
					{"name": "cart", "match": {"path": "/cart", "headers": [{"name": "x-user", "value": "j.*", "regex": true}, {"name": "x-a", "value": "1"}],
						"variables": [{"name": "x-mosn-method", "value": "GET", "model": "or"}, {"name": "x-mosn-method", "value": "HEAD"}]},
						"route": {"cluster_name": "app", "timeout": "2s", "prefix_rewrite": "/v2", "host_rewrite": "app.test",
							"retry_policy": {"retry_on": true, "num_retries": 3, "retry_timeout": "500ms", "status_codes": [429]}},
						"per_filter_config": {"fault": {}}},
					{"name": "split", "match": {"prefix": "/split"}, "route": {"timeout": "0s", "weighted_clusters": [{"cluster": {"name": "app", "weight": 90}}, {"cluster": {"name": "canary", "weight": 10}}]}},
					{"name": "chosen", "match": {"regex": "^/[a-z]+$"}, "route": {"cluster_variable": "request_header_x-cluster"}}]},
				{"name": "rest", "domains": ["*"], "routers": [
					{"match": {"prefix": "/old"}, "redirect": {"response_code": 308, "host_redirect": "new.test"}},
					{"direct_response": {"status": 204}}]}]},
			{"router_config_name": "unused", "virtual_hosts": []}]
	}], "cluster_manager": {"clusters": [`+cluster("app", "127.0.0.1:1")+`, `+cluster("canary", "127.0.0.1:1")+`]}}`))

	got, err := json.MarshalIndent(r.server.DescribeRoutes("shop"), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := `[
  {
    "name": "shop",
    "listeners": [
      "b"
    ],
    "virtual_hosts": [
      {
        "name": "exact",
        "domains": [
          "shop.test",
          "*.shop.test"
        ],
        "routes": [
          {
            "name": "cart",
            "match": {
              "path": "/cart",
              "headers": [
                {
                  "name": "x-user",
                  "regex": "j.*"
                },
                {
                  "name": "x-a",
                  "value": "1"
                }
              ],
              "variables": [
                {
                  "name": "x-mosn-method",
                  "value": "GET",
                  "or": true
                },
                {
                  "name": "x-mosn-method",
                  "value": "HEAD"
                }
              ]
            },
            "action": "forward",
            "cluster": "app",
            "prefix_rewrite": "/v2",
            "host_rewrite": "app.test",
            "timeout": "2s",
            "try_timeout": "500ms",
            "retry": {
              "retry_on": "5xx,retriable-status-codes,retriable-headers,unavailable",
              "num_retries": 3,
              "status_codes": [
                429
              ]
            },
            "filters": [
              "fault"
            ]
          },
          {
            "name": "split",
            "match": {
              "prefix": "/split"
            },
            "action": "forward",
            "weighted_clusters": {
              "app": 90,
              "canary": 10
            },
            "timeout": "none"
          },
          {
            "name": "chosen",
            "match": {
              "regex": "^/[a-z]+$"
            },
            "action": "forward",
            "cluster_variable": "request_header_x-cluster",
            "timeout": "1m0s"
          }
        ]
      },
      {
        "name": "rest",
        "domains": [
          "*"
        ],
        "routes": [
          {
            "name": "rest/0",
            "match": {
              "prefix": "/old"
            },
            "action": "redirect",
            "status": 308,
            "location": "*://new.test/*"
          },
          {
            "name": "rest/1",
            "match": {},
            "action": "respond",
            "status": 204
          }
        ]
      }
    ]
  }
]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("DescribeRoutes (-want +got):\n%s", diff)
	}
	if tables := r.server.DescribeRoutes(""); len(tables) != 2 || tables[1].Name != "unused" || len(tables[1].Listeners) != 0 {
		t.Errorf("status of all tables: %v, want two tables, the second without listeners", tables)
	}
	if unknown := r.server.DescribeRoutes("other"); len(unknown) != 0 {
		t.Errorf("status of an unknown table: %v, want none", unknown)
	}
	if initial := newRig(t).server.DescribeRoutes(""); len(initial) != 0 {
		t.Errorf("status before the first configuration: %v, want none", initial)
	}
}

// TestDescribeRoutesCost verifies that the cost of DescribeRoutes for one table does
// not depend on 50,000 routes of another table.
func TestDescribeRoutesCost(t *testing.T) {
	var b strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&b, `{"match": {"prefix": "/%d"}, "direct_response": {"status": 200}},`, i)
	}
	routes := strings.TrimSuffix(b.String(), ",")
	r := newRig(t)
	r.apply(parse(t, `{"servers": [{"listeners": [], "routers": [
		{"router_config_name": "large", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [`+routes+`]}]},
		{"router_config_name": "small", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [{"direct_response": {"status": 200}}]}]}]}]}`))
	if n := testing.AllocsPerRun(10, func() { r.server.DescribeRoutes("small") }); n > 20 {
		t.Errorf("%v allocations, want at most 20", n)
	}
	large := r.server.DescribeRoutes("large")
	if n := len(large[0].VirtualHosts[0].Routes); n != 50_000 {
		t.Errorf("%d routes, want 50000", n)
	}
}

// TestDescribeChainWithFallback verifies that the status of a chain with proxy and tcp_proxy
// contains both.
func TestDescribeChainWithFallback(t *testing.T) {
	got := describeChain(&config.FilterChain{
		TCPProxy: &config.TCPProxy{Cluster: "db"},
		Proxy:    &config.Proxy{Downstream: []config.Protocol{config.HTTP1}, RouteTable: "t", Fallback: true},
	}, "a")
	want := ChainStatus{Chain: "a", Protocols: []string{"Http1"}, RouteTable: "t", Cluster: "db"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("describeChain (-want +got):\n%s", diff)
	}
}
