package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

func (r *reader) readClusters(j *clusterManagerJSON) {
	r.managerTLS = r.tls(j.TLS, clusterTLS)
	total := j.Clusters.Len()
	r.snapshot.Clusters = make([]*config.Cluster, 0, total)
	for c := range j.Clusters.All() {
		r.readCluster(c)
	}
	if j.Directory == "" {
		return
	}
	at := j.Node.Get("clusters_configs")
	if total > 0 {
		r.report.Errorf(at, "clusters_configs and clusters are mutually exclusive")
	}
	for _, root := range r.directory(at, j.Directory) {
		var c clusterJSON
		r.decoder.Decode(root, &c)
		r.readCluster(&c)
	}
}

func (r *reader) readCluster(j *clusterJSON) {
	c := &config.Cluster{
		Name: j.Name,

		ConnectTimeout:     j.ConnectTimeout,
		IdleTimeout:        j.IdleTimeout,
		MaxRequestsPerConn: j.MaxRequestPerConn,

		Pool: config.Pool{
			Mode: config.PoolMode(j.Pool.Mode), Connections: j.Pool.Connections, WarmProtocol: config.Protocol(j.Pool.Warm), MaxFrameSize: j.Pool.MaxFrameSize,
			MaxRPCRequests: j.Pool.MaxRequests, MaxConnecting: j.Pool.MaxConnecting, MaxPendingBytes: j.Pool.MaxQueued,
		},
		Heartbeat: config.Heartbeat(j.KeepAlive),

		ProxyProtocol: proxyVersion(j.ProxyHeader),
	}
	r.readTypeAndPolicy(j, c)
	c.Protocol = r.clusterProtocol(j)
	r.readCircuitBreakers(j, c)
	c.TLS = r.clusterTLSContext(j)
	if j.Node.Get("max_request_per_conn").Exists() { // its default does not apply to multiplexed connections
		c.Pool.MaxRequests = j.MaxRequestPerConn
	}
	r.checkPool(j, c)
	r.readHosts(j, c)
	r.readBalancing(j, c)
	r.readHealth(j, c)
	r.readDNS(j, c)
	r.readOriginalDst(j, c)
	r.readSocket(j, c)
	r.readAutoSNI(j, c)
	if j.Name == "" {
		return // reported, unless the name is an explicit ""
	}
	if r.clusters[j.Name] != nil {
		r.report.Errorf(j.Node.Get("name"), "duplicate cluster name %q", j.Name)
		return
	}
	r.clusters[j.Name] = c
	r.snapshot.Clusters = append(r.snapshot.Clusters, c)
}

// checkPool warns of connection settings without effect.
func (r *reader) checkPool(j *clusterJSON, c *config.Cluster) {
	pool := j.Node.Get("connection_pool")
	if at := pool.Get("connections"); at.Exists() && c.Pool.Mode != config.Multiplex {
		r.report.Warnf(at, "connections has no effect with the mode %q, which opens connections on demand: set max_connections of circuit_breakers to limit them", c.Pool.Mode)
	}
	if at := pool.Get("warm"); at.Exists() && c.Pool.Mode != config.Multiplex {
		r.report.Errorf(at, "warm requires the mode %q", config.Multiplex)
	}
	if at := pool.Get("max_requests"); at.Exists() && c.Pool.Mode == config.PingPong {
		r.report.Warnf(at, "max_requests has no effect with the mode %q: set max_request_per_conn, which limits connections that carry one request at a time", c.Pool.Mode)
	}
	keepAlive := j.Node.Get("keepalive")
	if k := c.Heartbeat; k.Timeout < k.Interval {
		r.report.Warnf(keepAlive.Get("timeout").Or(keepAlive.Get("interval")), "the timeout of %v is less than the interval of %v: an idle connection is closed after one interval", k.Timeout, k.Interval)
	}
}

// readTypeAndPolicy converts the type and the policy.
func (r *reader) readTypeAndPolicy(j *clusterJSON, c *config.Cluster) {
	kind := j.Type
	if strings.EqualFold(kind, "SIMPLE") {
		kind = string(config.ClusterStatic)
	}
	if kind != "" && !slices.Contains(r.capabilities.ClusterTypes, config.ClusterType(kind)) {
		c.Type, _ = choose(r.report, j.Node.Get("type").Or(j.Node), "cluster type", kind, r.capabilities.ClusterTypes, knownClusterTypes())
	} else {
		c.Type = config.ClusterType(kind)
	}
	if j.Policy != "" && !slices.Contains(r.capabilities.Policies, config.LBPolicy(j.Policy)) {
		c.LBPolicy, _ = choose(r.report, j.Node.Get("lb_type").Or(j.Node), "lb_type", j.Policy, r.capabilities.Policies, knownPolicies())
	} else {
		c.LBPolicy = config.LBPolicy(j.Policy)
	}
}

// clusterProtocol returns the protocol of the hosts, or "" if the cluster sets none.
func (r *reader) clusterProtocol(j *clusterJSON) config.Protocol {
	var p config.Protocol
	if j.Protocol != "" && !strings.EqualFold(j.Protocol, string(config.Auto)) {
		p, _ = choose(r.report, j.Node.Get("upstream_protocol"), "protocol", j.Protocol, r.capabilities.Protocols, knownProtocols())
	}
	if j.HTTP2 == nil {
		return p
	}
	if at := j.Node.Get("upstream_protocol"); at.Exists() && p != config.HTTP2 {
		r.report.Errorf(j.Node.Get("http2_protocol_options"), "http2_protocol_options and upstream_protocol %q are mutually exclusive", at.Text())
	}
	return config.HTTP2
}

func (r *reader) readHosts(j *clusterJSON, c *config.Cluster) {
	c.Hosts = make([]config.Host, 0, len(j.Hosts))
	clear(r.addresses)
	for i := range j.Hosts {
		h := &j.Hosts[i]
		address, named, err := dialAddress(h.Address)
		if err != nil {
			if at := h.Node.Get("address"); at.Kind() == document.String {
				r.report.Errorf(at, "%v", err)
			}
			continue
		}
		if named {
			r.convertToStrictDNS(h, c)
		}
		if r.addresses[address] {
			r.report.Errorf(h.Node.Get("address"), "duplicate host %q: keep one entry with the sum of the weights", address)
			continue
		}
		r.addresses[address] = true
		c.Hosts = append(c.Hosts, config.Host{
			Address: address, Hostname: h.Hostname, Weight: h.Weight, Metadata: h.Metadata.FilterMetadata.Labels,
			Priority: h.Priority, Locality: config.Locality(h.Locality), NoTLS: h.TLSDisable,
		})
	}
}
