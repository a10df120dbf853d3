package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// mutationJSON contains the header mutations of tables, virtual hosts and routes.
type mutationJSON struct {
	RequestAdd     []headerAddJSON `key:"request_headers_to_add" doc:"Fields that requests get."`
	RequestRemove  []string        `key:"request_headers_to_remove" doc:"Fields that requests lose, before any are added." example:"[\"x-internal\"]"`
	ResponseAdd    []headerAddJSON `key:"response_headers_to_add" doc:"Fields that answers get."`
	ResponseRemove []string        `key:"response_headers_to_remove" doc:"Fields that answers lose, before any are added." example:"[\"server\"]"`
}

type headerAddJSON struct {
	Header struct {
		Node  document.Node `key:"."`
		Key   string        `key:"key" doc:"Name of the field." required:"true" example:"\"x-added\""`
		Value string        `key:"value" doc:"Its value, with %variables%." example:"\"%request_header_x-id%\""`
	} `key:"header" doc:"The field." required:"true"`
	Append bool `key:"append" doc:"true: beside fields of that name; false: in their place. A call of RPC has service, method, version and group once: false." example:"false" default:"true"`
}

// routerJSON is a route table, in routers[] or in a connection_manager.
type routerJSON struct {
	Node         document.Node     `key:"."`
	Name         string            `key:"router_config_name" doc:"Name of the table, unique; proxies refer to it." required:"true" example:"\"routes\""`
	VirtualHosts []virtualHostJSON `key:"virtual_hosts" doc:"Routes by domain."`
	Directory    string            `key:"router_configs" doc:"Directory with a file for each virtual host, in the place of virtual_hosts." example:"\"routes.d\""`
	Validate     bool              `key:"validate_clusters" doc:"Check that clusters exist; it is always done." noeffect:"clusters are always checked" example:"true"`
	mutationJSON
}

type virtualHostJSON struct {
	Node    document.Node              `key:"."`
	Name    string                     `key:"name" doc:"Name, for logs and route names." example:"\"shop\""`
	Domains []string                   `key:"domains" doc:"host, host:port, host:*, *.suffix, *.suffix:port, prefix.* (on any port) or *; the most exact wins: a host, the longest suffix, the longest prefix, *. Of RPC: the service, without a version." required:"true" example:"[\"shop.example\", \"*.shop.example\"]"`
	Routes  document.Stream[routeJSON] `key:"routers" doc:"The routes; the first that matches is taken."`
	TLS     string                     `key:"require_tls" doc:"Redirect plaintext requests." unbuilt:"require_tls" example:"\"ALL\""`
	mutationJSON
}

type routeJSON struct {
	Node           document.Node            `key:"."`
	Name           string                   `key:"name" doc:"Name, unique in its table; absent: virtual host and number." example:"\"checkout\""`
	Match          matchJSON                `key:"match" doc:"Conditions; all must hold. None: every request."`
	Route          *actionJSON              `key:"route" doc:"Forward the request. Exactly one of route, redirect and direct_response."`
	Redirect       *redirectJSON            `key:"redirect" doc:"Answer with another place. HTTP only."`
	DirectResponse *directJSON              `key:"direct_response" doc:"Answer at once. HTTP only."`
	Mirror         document.Node            `key:"request_mirror_policies" doc:"Copies requests to another cluster: cluster, percent and what else the stream filter mirror has, in the place of the listener's settings of it, which has to be there." accept:"object" example:"{\"cluster\": \"shadow\", \"percent\": 10}"`
	PerFilter      map[string]document.Node `key:"per_filter_config" doc:"Settings of stream filters for this route, by the filter's name." variant:"stream_filter" accept:"object" example:"{\"fault\": {}}"`
	Metadata       map[string]any           `key:"metadata" doc:"Whatever filters and logs want to know of the route." example:"{\"team\": \"a\"}"`
}

type matchJSON struct {
	Node      document.Node       `key:"."`
	Prefix    *string             `key:"prefix" doc:"Beginning of the path. At most one of prefix, path and regex." example:"\"/shop/\""`
	Path      *string             `key:"path" doc:"The whole path, without the query." example:"\"/shop\""`
	Regex     *string             `key:"regex" doc:"Expression that the path matches, without the query (RE2)." example:"\"^/v[0-9]+/\""`
	Headers   []headerMatchJSON   `key:"headers" doc:"Fields of the request; method, host and path mean the request's own. Each value of a repeated field is compared by itself."`
	Variables []variableMatchJSON `key:"variables" doc:"Variables of the request."`
	DSL       []document.Node     `key:"dsl_expressions" doc:"Expressions over the request." unbuilt:"dsl_expressions" example:"[{\"expression\": \"true\"}]"`
}

type headerMatchJSON struct {
	Node  document.Node `key:"."`
	Name  string        `key:"name" doc:"Name of the field, in any case." required:"true" example:"\"service\""`
	Value string        `key:"value" doc:"What it must be." example:"\"v2\""`
	Regex bool          `key:"regex" doc:"The value is an expression (RE2); \".*\" is one in any case." example:"true"`
}

type variableMatchJSON struct {
	Node  document.Node `key:"."`
	Name  string        `key:"name" doc:"Name of the variable." required:"true" example:"\"x-mosn-method\""`
	Value *string       `key:"value" doc:"What it must be." example:"\"GET\""`
	Regex *string       `key:"regex" doc:"Expression that it matches, in the place of value (RE2)." example:"\"^(GET|HEAD)$\""`
	Model string        `key:"model" doc:"How it joins the conditions before it." enum:"and|or" default:"and" example:"\"or\""`
}

type actionJSON struct {
	Node                  document.Node     `key:"."`
	Cluster               string            `key:"cluster_name" doc:"The cluster. Exactly one of cluster_name, cluster_variable and weighted_clusters." example:"\"shop\""`
	ClusterVariable       string            `key:"cluster_variable" doc:"Variable that holds the cluster's name." example:"\"request_header_x-cluster\""`
	ClusterHeader         string            `key:"cluster_header" doc:"Older name of a field that holds the cluster's name: use cluster_variable." unbuilt:"cluster_header" example:"\"x-cluster\""`
	Weighted              []weightedJSON    `key:"weighted_clusters" doc:"A choice of clusters by weight."`
	Upstream              string            `key:"upstream_protocol" choice:"upstream_protocol" doc:"What the cluster is spoken to; absent: as the cluster says, else the proxy." example:"\"Http1\""`
	Priority              string            `key:"priority" doc:"Which of the cluster's circuit_breakers requests are held to: HIGH has limits and connections of its own. It is no order in which they are served." enum:"DEFAULT|HIGH" default:"DEFAULT" example:"\"HIGH\""`
	Timeout               time.Duration     `key:"timeout" doc:"For the whole exchange, retries included. 0s: none." default:"60s" example:"\"5s\""`
	IgnoreGRPCTimeout     bool              `key:"ignore_grpc_timeout" doc:"The grpc-timeout field of a call of gRPC counts for nothing; false: the call ends with it, if that is before timeout." default:"false" example:"true"`
	Retry                 *retryJSON        `key:"retry_policy" doc:"When a request is tried again, on another host."`
	Hedge                 *hedgeJSON        `key:"hedge_policy" doc:"Several tries at once, of whose answers the first good one counts, of requests that may be sent twice and have come whole. Tries beyond the first count as retries for circuit_breakers."`
	PrefixRewrite         string            `key:"prefix_rewrite" doc:"What the matched prefix or path becomes. Of RPC, whose path is /service/method: service and method become what the new path says." example:"\"/\""`
	RegexRewrite          *regexRewriteJSON `key:"regex_rewrite" doc:"What the path becomes by an expression; of RPC as for prefix_rewrite, unless it is no /service/method: then nothing."`
	HostRewrite           string            `key:"host_rewrite" doc:"What Host becomes. HTTP only." example:"\"shop.internal\""`
	AutoHostRewrite       bool              `key:"auto_host_rewrite" doc:"Host becomes the chosen host's hostname. HTTP only." example:"true"`
	AutoHostRewriteHeader string            `key:"auto_host_rewrite_header" doc:"Host becomes the value of this field. HTTP only." example:"\"x-host\""`
	HostRewritePath       *regexRewriteJSON `key:"host_rewrite_path_regex" doc:"Host becomes what this makes of the path as it came, without its query, if the pattern is found and that is a host. HTTP only."`
	Hash                  []hashJSON        `key:"hash_policy" doc:"What LB_RINGHASH and LB_MAGLEV hash: the first that the request has."`
	MetadataMatch         metadataMatchJSON `key:"metadata_match" doc:"Labels of the hosts that the request may go to, in a cluster with lb_subset_config."`
	mutationJSON
}

type weightedJSON struct {
	Cluster struct {
		Node     document.Node     `key:"."`
		Name     string            `key:"name" doc:"The cluster." required:"true" example:"\"shop-v2\""`
		Weight   uint32            `key:"weight" doc:"Its share of the sum of the weights; 0: nothing." unit:"parts" example:"10"`
		Metadata metadataMatchJSON `key:"metadata_match" doc:"Labels of the hosts, with those of the route, which count for less."`
	} `key:"cluster" doc:"One choice." required:"true"`
}

// Misread detects a weighted cluster whose keys are not in the object "cluster".
func (*weightedJSON) Misread(n document.Node) string {
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
		Regex string `key:"regex" doc:"The expression (RE2); every match is replaced." required:"true" example:"\"^/v[0-9]+\""`
		// Files made for Envoy have google_re2 and similar keys next to regex.
		RE2 document.Node `key:"google_re2" doc:"The dialect, which is always RE2." accept:"object" noeffect:"true" example:"{}"`
	} `key:"pattern" doc:"What is replaced." required:"true"`
	Substitution string `key:"substitution" doc:"What replaces it; \\1 is the first group." example:"\"/\\\\1\""`
}

type hashJSON struct {
	Node   document.Node `key:"."`
	Header *struct {
		Key string `key:"key" doc:"Name of the field." required:"true" example:"\"x-user\""`
	} `key:"header" doc:"Hash a field, of RPC an attachment; :path, :authority, :method and :scheme are parts of the request."`
	Cookie *struct {
		Name string        `key:"name" doc:"Name of the cookie." required:"true" example:"\"session\""`
		Path string        `key:"path" doc:"Path of the cookie that is set for those who have none." example:"\"/\""`
		TTL  time.Duration `key:"ttl" doc:"Its life; 0s: as long as the browser runs." default:"0s" example:"\"1h\""`
		// Attributes follows Envoy.
		Attributes []struct {
			Name  string `key:"name" doc:"Name of the attribute." required:"true" example:"\"SameSite\""`
			Value string `key:"value" doc:"Its value; empty: it has none." example:"\"Strict\""`
		} `key:"attributes" doc:"More attributes of the cookie that is set. HttpOnly always is one."`
	} `key:"http_cookie,cookie" doc:"Hash a cookie. It is set for those who have none. HTTP only."`
	SourceIP *struct{} `key:"source_ip" doc:"Hash the caller's address: {}."`
	Query    *struct {
		Name string `key:"name" doc:"Name of the parameter; its first value counts, as it is written." required:"true" example:"\"user\""`
	} `key:"query_parameter" doc:"Hash a parameter of the query. HTTP only."`
}

type redirectJSON struct {
	Code   int    `key:"response_code" doc:"Status." min:"301" max:"308" default:"301" example:"308"`
	Path   string `key:"path_redirect" doc:"Path and query of the other place; empty: the request's." example:"\"/new\""`
	Host   string `key:"host_redirect" doc:"Its host; empty: the request's." example:"\"new.example\""`
	Scheme string `key:"scheme_redirect" doc:"Its scheme; empty: the request's." enum:"|http|https" example:"\"https\""`
}

type directJSON struct {
	Status int    `key:"status" doc:"Status of the answer." min:"200" max:"599" default:"200" example:"503"`
	Body   string `key:"body" doc:"Content of the answer." example:"\"closed\""`
}

// metadataMatchJSON contains the labels that select the hosts of a subset, or describe a host.
type metadataMatchJSON struct {
	FilterMetadata struct {
		Labels map[string]string `key:"mosn.lb" doc:"Labels and their values." example:"{\"version\": \"v2\"}"`
	} `key:"filter_metadata" doc:"Labels by who reads them."`
}
