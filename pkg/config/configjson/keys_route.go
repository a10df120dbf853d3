package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// mutationJSON contains the header mutations of tables, virtual hosts and routes.
type mutationJSON struct {
	RequestAdd     []headerAddJSON `key:"request_headers_to_add" doc:"Headers to add to requests."`
	RequestRemove  []string        `key:"request_headers_to_remove" doc:"Headers to remove from requests, before any are added." example:"[\"x-internal\"]"`
	ResponseAdd    []headerAddJSON `key:"response_headers_to_add" doc:"Headers to add to responses."`
	ResponseRemove []string        `key:"response_headers_to_remove" doc:"Headers to remove from responses, before any are added." example:"[\"server\"]"`
}

type headerAddJSON struct {
	Header struct {
		Node  document.Node `key:"."`
		Key   string        `key:"key" doc:"Name of the header." required:"true" example:"\"x-added\""`
		Value string        `key:"value" doc:"Value of the header, with %variables%." example:"\"%request_header_x-id%\""`
	} `key:"header" doc:"The header." required:"true"`
	Append bool `key:"append" doc:"true: keep existing headers with the name; false: replace them. The RPC headers service, method, version and group occur once: use false." example:"false" default:"true"`
}

// routerJSON is a route table, in routers[] or in a connection_manager.
type routerJSON struct {
	Node         document.Node     `key:"."`
	Name         string            `key:"router_config_name" doc:"Name of the table, unique; proxies refer to it." required:"true" example:"\"routes\""`
	VirtualHosts []virtualHostJSON `key:"virtual_hosts" doc:"Virtual hosts: routes by domain."`
	Directory    string            `key:"router_configs" doc:"Directory with one file for each virtual host, instead of virtual_hosts." example:"\"routes.d\""`
	Validate     bool              `key:"validate_clusters" doc:"Check that clusters exist." noeffect:"clusters are always checked" example:"true"`
	mutationJSON
}

type virtualHostJSON struct {
	Node    document.Node              `key:"."`
	Name    string                     `key:"name" doc:"Name of the virtual host, for logs and route names." example:"\"shop\""`
	Domains []string                   `key:"domains" doc:"Domains: host, host:port, host:*, *.suffix, *.suffix:port, prefix.* (any port) or *. The most specific match wins: an exact host, then the longest suffix, then the longest prefix, then *. For RPC: the service, without its version." required:"true" example:"[\"shop.example\", \"*.shop.example\"]"`
	Routes  document.Stream[routeJSON] `key:"routers" doc:"Routes; the first one that matches is used."`
	TLS     string                     `key:"require_tls" doc:"Redirect plaintext requests to TLS." unbuilt:"require_tls" example:"\"ALL\""`
	mutationJSON
}

type routeJSON struct {
	Node           document.Node            `key:"."`
	Name           string                   `key:"name" doc:"Name of the route, unique in its table. Absent: virtual host and index." example:"\"checkout\""`
	Match          matchJSON                `key:"match" doc:"Conditions; all must match. Empty: every request matches."`
	Route          *actionJSON              `key:"route" doc:"Forward the request. Exactly one of route, redirect and direct_response."`
	Redirect       *redirectJSON            `key:"redirect" doc:"Respond with a redirect. HTTP only."`
	DirectResponse *directJSON              `key:"direct_response" doc:"Respond without an upstream. HTTP only."`
	Mirror         document.Node            `key:"request_mirror_policies" doc:"Copies requests to another cluster: settings of the stream filter mirror (cluster, percent and others) that replace those of the listener. The listener must have the filter." accept:"object" example:"{\"cluster\": \"shadow\", \"percent\": 10}"`
	PerFilter      map[string]document.Node `key:"per_filter_config" doc:"Settings of stream filters for this route, by filter name." variant:"stream_filter" accept:"object" example:"{\"fault\": {}}"`
	Metadata       map[string]any           `key:"metadata" doc:"Arbitrary data about the route, for filters and logs." example:"{\"team\": \"a\"}"`
}

type matchJSON struct {
	Node      document.Node       `key:"."`
	Prefix    *string             `key:"prefix" doc:"Prefix of the path. At most one of prefix, path and regex." example:"\"/shop/\""`
	Path      *string             `key:"path" doc:"Exact path, without the query." example:"\"/shop\""`
	Regex     *string             `key:"regex" doc:"Regular expression (RE2) that matches the path, without the query." example:"\"^/v[0-9]+/\""`
	Headers   []headerMatchJSON   `key:"headers" doc:"Headers of the request; method, host and path refer to the request itself. Each value of a repeated header is compared separately."`
	Variables []variableMatchJSON `key:"variables" doc:"Variables of the request."`
	DSL       []document.Node     `key:"dsl_expressions" doc:"Expressions over the request." unbuilt:"dsl_expressions" example:"[{\"expression\": \"true\"}]"`
}

type headerMatchJSON struct {
	Node  document.Node `key:"."`
	Name  string        `key:"name" doc:"Name of the header, case-insensitive." required:"true" example:"\"service\""`
	Value string        `key:"value" doc:"Required value." example:"\"v2\""`
	Regex bool          `key:"regex" doc:"Treat value as a regular expression (RE2). The value \".*\" always is one." example:"true"`
}

type variableMatchJSON struct {
	Node  document.Node `key:"."`
	Name  string        `key:"name" doc:"Name of the variable." required:"true" example:"\"x-mosn-method\""`
	Value *string       `key:"value" doc:"Required value." example:"\"GET\""`
	Regex *string       `key:"regex" doc:"Regular expression (RE2), instead of value." example:"\"^(GET|HEAD)$\""`
	Model string        `key:"model" doc:"How the condition combines with those before it." enum:"and|or" default:"and" example:"\"or\""`
}

type actionJSON struct {
	Node                  document.Node     `key:"."`
	Cluster               string            `key:"cluster_name" doc:"Name of the cluster. Exactly one of cluster_name, cluster_variable and weighted_clusters." example:"\"shop\""`
	ClusterVariable       string            `key:"cluster_variable" doc:"Variable with the name of the cluster." example:"\"request_header_x-cluster\""`
	ClusterHeader         string            `key:"cluster_header" doc:"Older form: header with the name of the cluster. Use cluster_variable." unbuilt:"cluster_header" example:"\"x-cluster\""`
	Weighted              []weightedJSON    `key:"weighted_clusters" doc:"Clusters by weight."`
	Upstream              string            `key:"upstream_protocol" choice:"upstream_protocol" doc:"Protocol to the cluster. Absent: as the cluster sets, else the proxy." example:"\"Http1\""`
	Priority              string            `key:"priority" doc:"Priority of the requests: it selects the circuit_breakers of the cluster. HIGH has limits and connections of its own. It does not affect the order of requests." enum:"DEFAULT|HIGH" default:"DEFAULT" example:"\"HIGH\""`
	Timeout               time.Duration     `key:"timeout" doc:"Timeout of the whole request, including retries. 0s: none." default:"60s" example:"\"5s\""`
	IgnoreGRPCTimeout     bool              `key:"ignore_grpc_timeout" doc:"true: ignore the grpc-timeout header of gRPC requests. false: the request ends at the earlier of grpc-timeout and timeout." default:"false" example:"true"`
	Retry                 *retryJSON        `key:"retry_policy" doc:"When to retry a request on another host."`
	Hedge                 *hedgeJSON        `key:"hedge_policy" doc:"Concurrent attempts of one request, of which the first good response is used. Only for idempotent requests that Weft has received completely. Attempts beyond the first count as retries for circuit_breakers."`
	PrefixRewrite         string            `key:"prefix_rewrite" doc:"Replacement for the matched prefix or path. For RPC, whose path is /service/method, the new path sets service and method." example:"\"/\""`
	RegexRewrite          *regexRewriteJSON `key:"regex_rewrite" doc:"Regular expression replacement in the path. For RPC as with prefix_rewrite; a result that is not /service/method is ignored."`
	HostRewrite           string            `key:"host_rewrite" doc:"New value of the Host header. HTTP only." example:"\"shop.internal\""`
	AutoHostRewrite       bool              `key:"auto_host_rewrite" doc:"Set the Host header to the hostname of the selected host. HTTP only." example:"true"`
	AutoHostRewriteHeader string            `key:"auto_host_rewrite_header" doc:"Set the Host header to the value of this header. HTTP only." example:"\"x-host\""`
	HostRewritePath       *regexRewriteJSON `key:"host_rewrite_path_regex" doc:"Set the Host header to the result of this replacement in the original path, without its query, if the pattern matches and the result is a valid host. HTTP only."`
	Hash                  []hashJSON        `key:"hash_policy" doc:"Inputs of the hash for LB_RINGHASH and LB_MAGLEV; the first that the request has is used."`
	MetadataMatch         metadataMatchJSON `key:"metadata_match" doc:"Labels of the hosts that the request may go to, in a cluster with lb_subset_config."`
	mutationJSON
}

type weightedJSON struct {
	Cluster struct {
		Node     document.Node     `key:"."`
		Name     string            `key:"name" doc:"Name of the cluster." required:"true" example:"\"shop-v2\""`
		Weight   uint32            `key:"weight" doc:"Share of the sum of all weights. 0: no requests." unit:"parts" example:"10"`
		Metadata metadataMatchJSON `key:"metadata_match" doc:"Labels of the hosts, in addition to those of the route; these take precedence."`
	} `key:"cluster" doc:"A cluster and its weight." required:"true"`
}

// DetectMistake detects a weighted cluster whose keys are not in the object "cluster".
func (*weightedJSON) DetectMistake(n document.Node) string {
	if n.Get("cluster").Kind() == document.Object || !n.Get("name", "weight", "cluster").Exists() {
		return ""
	}
	name := n.Get("name").Or(n.Get("cluster"))
	weight := n.Get("weight")
	if name.Kind() != document.String || weight.Exists() && weight.Kind() != document.Number {
		return ""
	}
	text := document.AppendString(nil, name.Text())
	if weight.Exists() {
		text = append(append(text, `, "weight": `...), weight.Text()...)
	}
	return `name and weight belong into an object "cluster": write {"cluster": {"name": ` + string(text) + `}}`
}

type regexRewriteJSON struct {
	Node    document.Node `key:"."`
	Pattern struct {
		Regex string `key:"regex" doc:"Regular expression (RE2); every match is replaced." required:"true" example:"\"^/v[0-9]+\""`
		// Files made for Envoy have google_re2 and similar keys next to regex.
		RE2 document.Node `key:"google_re2" doc:"Dialect of the expression, which is always RE2." accept:"object" noeffect:"true" example:"{}"`
	} `key:"pattern" doc:"Pattern to replace." required:"true"`
	Substitution string `key:"substitution" doc:"Replacement; \\1 is the first group." example:"\"/\\\\1\""`
}

type hashJSON struct {
	Node   document.Node `key:"."`
	Header *struct {
		Key string `key:"key" doc:"Name of the header." required:"true" example:"\"x-user\""`
	} `key:"header" doc:"Hash a header (RPC: an attachment); :path, :authority, :method and :scheme refer to the request itself."`
	Cookie *struct {
		Name string        `key:"name" doc:"Name of the cookie." required:"true" example:"\"session\""`
		Path string        `key:"path" doc:"Path of the generated cookie." example:"\"/\""`
		TTL  time.Duration `key:"ttl" doc:"Lifetime of the generated cookie. 0s: a session cookie." default:"0s" example:"\"1h\""`
		// Attributes follows Envoy.
		Attributes []struct {
			Name  string `key:"name" doc:"Name of the attribute." required:"true" example:"\"SameSite\""`
			Value string `key:"value" doc:"Value of the attribute. Empty: none." example:"\"Strict\""`
		} `key:"attributes" doc:"Further attributes of the generated cookie. HttpOnly is always set."`
	} `key:"http_cookie,cookie" doc:"Hash a cookie. Weft generates it for clients that have none. HTTP only."`
	SourceIP *struct{} `key:"source_ip" doc:"Hash the client address: {}."`
	Query    *struct {
		Name string `key:"name" doc:"Name of the parameter; its first value is used, without decoding." required:"true" example:"\"user\""`
	} `key:"query_parameter" doc:"Hash a query parameter. HTTP only."`
}

type redirectJSON struct {
	Code   int    `key:"response_code" doc:"Status of the redirect." min:"301" max:"308" default:"301" example:"308"`
	Path   string `key:"path_redirect" doc:"New path and query. Empty: those of the request." example:"\"/new\""`
	Host   string `key:"host_redirect" doc:"New host. Empty: that of the request." example:"\"new.example\""`
	Scheme string `key:"scheme_redirect" doc:"New scheme. Empty: that of the request." enum:"|http|https" example:"\"https\""`
}

type directJSON struct {
	Status int    `key:"status" doc:"Status of the response." min:"200" max:"599" default:"200" example:"503"`
	Body   string `key:"body" doc:"Body of the response." example:"\"closed\""`
}

// metadataMatchJSON contains the labels that select the hosts of a subset, or describe a host.
type metadataMatchJSON struct {
	FilterMetadata struct {
		Labels map[string]string `key:"mosn.lb" doc:"Labels and their values." example:"{\"version\": \"v2\"}"`
	} `key:"filter_metadata" doc:"Labels by namespace."`
}
