package configjson

import (
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// originalDstJSON contains the cluster keys for redirected connections and the socket mark for
// kernel rules.
type originalDstJSON struct {
	OriginalDst     originalDstLBJSON `key:"original_dst_lb_config" doc:"Destination of clusters of type ORIGINAL_DST, if not the original destination of the client connection."`
	CleanupInterval time.Duration     `key:"cleanup_interval" doc:"ORIGINAL_DST: Weft removes a destination that is unused for this time, and closes its connections." min:"1ms" default:"5s" example:"\"30s\""`
	Mark            document.Node     `key:"mark" doc:"SO_MARK of the sockets to the hosts, by which firewall and routing rules recognize Weft's traffic: 1 to 4294967295, or a string, which may be hexadecimal with \"0x\". Requires CAP_NET_ADMIN, or since Linux 5.17 CAP_NET_RAW." accept:"number|string" example:"\"0x77\""`
}

type originalDstLBJSON struct {
	Node       document.Node `key:"."`
	UseHeader  bool          `key:"use_header" doc:"Send a request that has the header header_name to the ip:port in that header, instead of its original destination. Clients that can set the header can reach any address that Weft can reach: enable it for trusted clients only." example:"true"`
	HeaderName string        `key:"header_name" doc:"Name of the header; for RPC, of the attachment." default:"x-envoy-original-dst-host" example:"\"x-dst\""`
	Port       uint16        `key:"upstream_port_override" doc:"Port that replaces the port of the original destination. 0: no replacement." max:"65535" default:"0" example:"8080"`
}

// readOriginalDst converts the settings of a ClusterOriginalDst. It runs after the readers of
// hosts, balancing and health checks, whose results do not apply to such a cluster.
func (r *clusterReader) readOriginalDst(j *clusterJSON, c *config.Cluster) {
	c.Mark = r.parseMark(j.Mark)
	policy := j.Node.Get("lb_type")
	if c.Type != config.ClusterOriginalDst {
		if c.LBPolicy == config.LBOriginalDst {
			r.report.Errorf(policy, "%s requires a cluster of type %s", config.LBOriginalDst, config.ClusterOriginalDst)
		}
		for _, key := range []string{"original_dst_lb_config", "cleanup_interval"} {
			if node := j.Node.Get(key); node.Exists() {
				r.report.Warnf(node, "%s has no effect on a cluster of type %s", key, j.Type)
			}
		}
		return
	}
	if policy.Exists() && c.LBPolicy != config.LBOriginalDst && c.LBPolicy != "" {
		r.report.Errorf(policy, "a cluster of type %s has no host to select: expected %s", c.Type, config.LBOriginalDst)
	}
	c.LBPolicy = config.LBOriginalDst
	if len(j.Hosts) > 0 {
		r.report.Errorf(j.Node.Get("hosts"), "hosts is not allowed in a cluster of type %s: its hosts are the original destinations of connections", c.Type)
	}
	for _, key := range []string{"health_check", "outlier_detection", "lbconfig", "common_lb_config", "lb_subset_config", "slow_start", "locality_weights"} {
		if node := j.Node.Get(key); node.Exists() && !node.IsDisabled() {
			r.report.Warnf(node, "%s has no effect on a cluster of type %s, which has no host to select", key, c.Type)
		}
	}
	c.HealthCheck, c.OutlierDetection, c.Subsets, c.LocalityWeights = nil, nil, config.Subsets{}, nil
	if node := j.Node.Get("connection_pool").Get("warm"); node.Exists() {
		r.report.Warnf(node, "warm has no effect on a cluster of type %s: its hosts are not known before requests arrive", c.Type)
		c.Pool.WarmProtocol = ""
	}
	o := &j.OriginalDst
	c.OriginalDst = config.OriginalDst{Port: o.Port, CleanupInterval: j.CleanupInterval}
	switch node := o.Node.Get("header_name"); {
	case o.UseHeader && o.HeaderName == "":
		r.report.Errorf(node, "found \"\", expected a header name")
	case o.UseHeader:
		c.OriginalDst.Header = strings.ToLower(o.HeaderName)
	case node.Exists():
		r.report.Warnf(node, "header_name has no effect without use_header")
	}
}
