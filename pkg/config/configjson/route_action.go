package configjson

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

type actionJSON struct {
	Node                  document.Node     `key:"."`
	Cluster               string            `key:"cluster_name" doc:"Name of the cluster. Exactly one of cluster_name, cluster_variable and weighted_clusters." example:"\"shop\""`
	ClusterVariable       string            `key:"cluster_variable" doc:"Variable with the name of the cluster." example:"\"request_header_x-cluster\""`
	ClusterHeader         string            `key:"cluster_header" doc:"Older form: header with the name of the cluster. Use cluster_variable." unsupported:"cluster_header" example:"\"x-cluster\""`
	Weighted              []weightedJSON    `key:"weighted_clusters" doc:"Clusters by weight."`
	UpstreamProtocol      string            `key:"upstream_protocol" choice:"upstream_protocol" doc:"Protocol to the cluster. Absent: the upstream_protocol of the cluster or, if it sets none, of the proxy." example:"\"Http1\""`
	Priority              string            `key:"priority" doc:"Priority of the requests: it selects the circuit_breakers of the cluster. HIGH has separate limits and connections. It does not affect the order of requests." enum:"DEFAULT|HIGH" default:"DEFAULT" example:"\"HIGH\""`
	Timeout               time.Duration     `key:"timeout" doc:"Timeout of the whole request, including retries. 0s: none." default:"60s" example:"\"5s\""`
	IgnoreGRPCTimeout     bool              `key:"ignore_grpc_timeout" doc:"true: ignore the grpc-timeout header of gRPC requests. false: the request ends at the earlier of grpc-timeout and timeout." default:"false" example:"true"`
	Retry                 *retryJSON        `key:"retry_policy" doc:"When to retry a request on another host."`
	Hedge                 *hedgeJSON        `key:"hedge_policy" doc:"Sends concurrent attempts of one request and uses the first good response. Only for idempotent requests whose body has arrived or has a declared length of at most 64 KiB. Attempts after the first count as retries for circuit_breakers."`
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
		Weight   uint32            `key:"weight" doc:"Weight of the cluster. Its fraction of the requests is this number divided by the sum of all weights. 0: no requests." unit:"parts" example:"10"`
		Metadata metadataMatchJSON `key:"metadata_match" doc:"Labels of the hosts, in addition to the labels of the route. For a label in both, the value here applies."`
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
	return `name and weight belong in an object "cluster": write {"cluster": {"name": ` + string(text) + `}}`
}

type regexRewriteJSON struct {
	Node    document.Node `key:"."`
	Pattern struct {
		Regex string `key:"regex" doc:"Regular expression (RE2); every match is replaced." required:"true" example:"\"^/v[0-9]+\""`
		// Files made for Envoy have google_re2 and similar keys next to regex.
		RE2 document.Node `key:"google_re2" doc:"Dialect of the expression, which is always RE2." accept:"object" ignored:"true" example:"{}"`
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
		// Envoy has attributes; MOSN does not.
		Attributes []struct {
			Name  string `key:"name" doc:"Name of the attribute." required:"true" example:"\"SameSite\""`
			Value string `key:"value" doc:"Value of the attribute. Empty: none." example:"\"Strict\""`
		} `key:"attributes" doc:"Further attributes of the generated cookie. HttpOnly is always set."`
	} `key:"http_cookie,cookie" doc:"Hash a cookie. Weft generates it for clients that have none. HTTP only."`
	SourceIP *struct{} `key:"source_ip" doc:"Hash the client address. The value is {}."`
	Query    *struct {
		Name string `key:"name" doc:"Name of the parameter; its first value is used, without decoding." required:"true" example:"\"user\""`
	} `key:"query_parameter" doc:"Hash a query parameter. HTTP only."`
}

// metadataMatchJSON contains the labels that select the hosts of a subset, or describe a host.
type metadataMatchJSON struct {
	FilterMetadata struct {
		Labels map[string]string `key:"mosn.lb" doc:"Labels and their values." example:"{\"version\": \"v2\"}"`
	} `key:"filter_metadata" doc:"Labels by namespace."`
}

// readForward converts the action "route".
func (r *routeReader) readForward(j *actionJSON, m *config.RouteMatch) *config.Forward {
	f := &config.Forward{
		ClusterVariable:       j.ClusterVariable,
		Priority:              parsePriority(j.Priority),
		Timeout:               j.Timeout,
		GRPCTimeout:           config.GRPCTimeout{Ignore: j.IgnoreGRPCTimeout},
		PrefixRewrite:         j.PrefixRewrite,
		HostRewrite:           j.HostRewrite,
		AutoHostRewrite:       j.AutoHostRewrite,
		AutoHostRewriteHeader: j.AutoHostRewriteHeader,
	}
	f.Request, f.Response = r.readMutations(j.Node, &j.mutationJSON)
	r.readTarget(j, f)
	if j.UpstreamProtocol != "" && !strings.EqualFold(j.UpstreamProtocol, string(config.Auto)) {
		f.Upstream, _ = choose(r.report, j.Node.Get("upstream_protocol"), "protocol", j.UpstreamProtocol, r.capabilities.Protocols, knownProtocols())
	}
	if p := j.Retry; p != nil {
		f.Retry = r.readRetryPolicy(p)
	}
	if h := j.Hedge; h != nil {
		f.Hedge = r.readHedgePolicy(h, f.Retry)
	}
	for i := range j.Hash {
		f.HashPolicies = append(f.HashPolicies, r.readHashPolicy(&j.Hash[i]))
	}
	r.warnUnusedHashPolicy(j.Node, f)
	f.Metadata = r.readLabels(j.Node, &j.MetadataMatch, f.Cluster)
	r.readRewrites(j, m, f)
	return f
}

// readTarget sets the cluster, the weighted clusters or the variable that selects the cluster.
func (r *routeReader) readTarget(j *actionJSON, f *config.Forward) {
	targets := 0
	if j.Cluster != "" {
		targets++
		f.Cluster = r.clusters.resolve(j.Node, "cluster_name", j.Cluster)
	}
	if j.ClusterVariable != "" {
		targets++
		r.checkVariable(j.Node, "cluster_variable", j.ClusterVariable)
	}
	if len(j.Weighted) > 0 {
		targets++
	}
	if targets != 1 && j.Node.Kind() == document.Object {
		r.report.Errorf(j.Node, "expected exactly one of \"cluster_name\", \"cluster_variable\" and \"weighted_clusters\", found %d", targets)
	}
	var sum uint64
	for i := range j.Weighted {
		w := &j.Weighted[i].Cluster
		sum += uint64(w.Weight)
		f.WeightedClusters = append(f.WeightedClusters, config.WeightedCluster{
			Cluster: r.clusters.resolve(w.Node, "name", w.Name), Weight: w.Weight, Metadata: r.readLabels(w.Node, &w.Metadata, w.Name),
		})
	}
	allPresent := !slices.ContainsFunc(j.Weighted, func(w weightedJSON) bool { return !w.Cluster.Node.Exists() })
	if len(j.Weighted) > 0 && allPresent && (sum == 0 || sum > 1<<32-1) {
		r.report.Errorf(j.Node.Get("weighted_clusters"), "the sum of the weights is %d, expected 1 to %d", sum, uint32(1<<32-1))
	}
}

// readRewrites converts path and host rewrites. The router applies prefix_rewrite rather than
// regex_rewrite, and of several host rewrites the first in the list below. readRewrites warns about
// the others.
func (r *routeReader) readRewrites(j *actionJSON, m *config.RouteMatch, f *config.Forward) {
	if j.PrefixRewrite != "" && m.PathKind != config.PathPrefix && m.PathKind != config.PathExact {
		r.report.Errorf(j.Node.Get("prefix_rewrite"), "prefix_rewrite requires \"prefix\" or \"path\" in match")
	}
	if w := j.RegexRewrite; w != nil {
		r.checkRegex(w.Node.Get("pattern"), "regex", w.Pattern.Regex)
		if j.PrefixRewrite != "" {
			r.report.Warnf(w.Node, "regex_rewrite has no effect together with prefix_rewrite")
		} else {
			f.RegexRewrite = &config.RegexRewrite{Pattern: w.Pattern.Regex, Substitution: w.Substitution}
		}
	}
	if w := j.HostRewritePath; w != nil {
		r.checkRegex(w.Node.Get("pattern"), "regex", w.Pattern.Regex)
		f.HostRewritePath = &config.RegexRewrite{Pattern: w.Pattern.Regex, Substitution: w.Substitution}
	}
	active := ""
	for _, rewrite := range []struct {
		key string
		set bool
	}{
		{"host_rewrite", j.HostRewrite != ""},
		{"auto_host_rewrite_header", j.AutoHostRewriteHeader != ""},
		{"auto_host_rewrite", j.AutoHostRewrite},
		{"host_rewrite_path_regex", j.HostRewritePath != nil},
	} {
		switch {
		case rewrite.set && active != "":
			r.report.Warnf(j.Node.Get(rewrite.key), "%s has no effect together with %s", rewrite.key, active)
		case rewrite.set:
			active = rewrite.key
		}
	}
}

// readHashPolicy converts an element of hash_policy.
func (r *routeReader) readHashPolicy(j *hashJSON) config.HashPolicy {
	var out config.HashPolicy
	sources := 0
	if j.Header != nil {
		sources++
		out.Header = j.Header.Key
	}
	if j.Cookie != nil {
		sources++
		out.Cookie, out.CookiePath, out.CookieTTL = j.Cookie.Name, j.Cookie.Path, j.Cookie.TTL
		for _, a := range j.Cookie.Attributes {
			out.CookieAttributes = append(out.CookieAttributes, config.CookieAttribute{Name: a.Name, Value: a.Value})
		}
	}
	if j.SourceIP != nil {
		sources++
		out.SourceIP = true
	}
	if j.Query != nil {
		sources++
		out.Query = j.Query.Name
	}
	if sources != 1 {
		r.report.Errorf(j.Node, "expected exactly one of \"header\", \"http_cookie\", \"source_ip\" and \"query_parameter\"")
	}
	return out
}

// readLabels returns the labels of a metadata_match, and warns if the cluster has no subsets.
func (r *routeReader) readLabels(n document.Node, m *metadataMatchJSON, cluster string) map[string]string {
	labels := m.FilterMetadata.Labels
	if c := r.clusters.byName[cluster]; len(labels) > 0 && c != nil && len(c.Subsets.Selectors) == 0 {
		r.report.Warnf(n.Get("metadata_match"), "metadata_match has no effect: cluster %q has no subset_selectors", cluster)
	}
	return labels
}

// warnUnusedHashPolicy warns about a hash_policy if the load balancer of no cluster of the route
// uses a hash. It does not warn if a cluster is unknown. The unknown name is an error, and the
// cluster that the user meant may use a hash.
func (r *routeReader) warnUnusedHashPolicy(n document.Node, f *config.Forward) {
	if len(f.HashPolicies) == 0 || f.ClusterVariable != "" {
		return
	}
	names := []string{f.Cluster}
	if len(f.WeightedClusters) > 0 {
		names = names[:0]
	}
	for i := range f.WeightedClusters {
		names = append(names, f.WeightedClusters[i].Cluster)
	}
	for _, name := range names {
		if c := r.clusters.byName[name]; c == nil || c.LBPolicy.UsesHash() {
			return
		}
	}
	r.report.Warnf(n.Get("hash_policy"), "hash_policy has no effect: lb_type of cluster %q is %s", names[0], r.clusters.byName[names[0]].LBPolicy)
}
