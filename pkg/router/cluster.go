package router

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// clusterSelector selects a cluster name for each exchange, either by a variable or by weights.
type clusterSelector struct {
	variable    variable.Variable
	clusters    []weightedCluster // nil: variable selects
	totalWeight uint64
	source      config.WeightSource
}

// weightedCluster is a cluster with the sum of the weights up to and including its own.
type weightedCluster struct {
	cluster           string
	variable          variable.Variable // selects the cluster if cluster is ""
	cumulativeWeight  uint64
	host              *hostRewrite // replaces that of the route; nil: that of the route
	request, response *mutation    // of the cluster, followed by those of the route; nil: no change
}

// ChooseCluster returns the name of the cluster for x. It returns "" if the route does not forward,
// all weights are 0, or the variable has no value. index is the index of the chosen weighted
// cluster; 0 if the route has no weighted clusters. random must be uniform in all its bits: it
// selects among weighted clusters in proportion to their weights, unless the request has the number
// that config.WeightSource names. A cluster of weight 0 is never selected. The caller sets
// x.Record.Hash first.
func (r *Route) ChooseCluster(x *protocol.Exchange, random uint64) (name string, index int) {
	switch {
	case r.cluster == nil && r.Config.Forward == nil:
		return "", 0
	case r.cluster == nil:
		return r.Config.Forward.Cluster, 0
	case r.cluster.clusters == nil:
		name, _ := r.cluster.variable.Text(x)
		return name, 0
	}
	point, ok := r.cluster.pointOf(x)
	if !ok {
		point, _ = bits.Mul64(random, r.cluster.totalWeight) // uniform in [0, totalWeight)
	}
	for i := range r.cluster.clusters {
		switch w := &r.cluster.clusters[i]; {
		case point >= w.cumulativeWeight:
		case w.cluster == "":
			name, _ := w.variable.Text(x)
			return name, i
		default:
			return w.cluster, i
		}
	}
	return "", 0
}

// pointOf returns the point in [0, totalWeight) that the request itself selects, if any.
func (c *clusterSelector) pointOf(x *protocol.Exchange) (point uint64, ok bool) {
	switch {
	case c.totalWeight == 0:
		return 0, false
	case c.source.Hash && x.Record.Hash != 0:
		return x.Record.Hash % c.totalWeight, true
	case c.source.Header == "":
		return 0, false
	}
	n, err := strconv.ParseUint(onlyValue(&x.Request.Header, c.source.Header), 10, 64)
	return n % c.totalWeight, err == nil
}

// onlyValue returns the value of the header called name, or "" if h has none or several.
func onlyValue(h *protocol.Header, name string) (value string) {
	found := false
	for i := range h.Len() {
		f := h.At(i)
		switch {
		case !protocol.EqualFold(f.Name, name):
		case found:
			return ""
		default:
			value, found = f.Value, true
		}
	}
	return value
}

// compileCluster compiles the cluster selection of f. It returns nil for a single fixed cluster.
//
// request and response are the header mutations of the route. They follow those of each weighted
// cluster.
func compileCluster(f *config.Forward, request, response *mutation) (*clusterSelector, error) {
	switch {
	case len(f.WeightedClusters) > math.MaxUint16: // Record.WeightedIndex
		return nil, fmt.Errorf("weighted_clusters: %d clusters, expected at most %d", len(f.WeightedClusters), math.MaxUint16)
	case len(f.WeightedClusters) > 0:
		c := &clusterSelector{clusters: make([]weightedCluster, len(f.WeightedClusters)), source: f.Extra().WeightSource}
		for i := range f.WeightedClusters {
			w := &f.WeightedClusters[i]
			c.totalWeight += uint64(w.Weight)
			if err := c.clusters[i].compile(w, f, inherited{request, response}); err != nil {
				return nil, fmt.Errorf("weighted_clusters: %s: %w", w.Cluster, err)
			}
			c.clusters[i].cumulativeWeight = c.totalWeight
		}
		return c, nil
	case f.Cluster != "":
		return nil, nil
	case f.ClusterVariable != "":
		v, err := lookUpClusterVariable(f.ClusterVariable)
		return &clusterSelector{variable: v}, err
	}
	return nil, errors.New("one of cluster_name, cluster_variable and weighted_clusters is required")
}

// compile compiles c, a weighted cluster of f. route has the mutations of the route.
func (w *weightedCluster) compile(c *config.WeightedCluster, f *config.Forward, route inherited) error {
	var err error
	extra := c.Extra()
	switch {
	case (c.Cluster == "") == (extra.ClusterVariable == ""):
		return errors.New("a cluster has no name")
	case extra.ClusterVariable != "":
		if w.variable, err = lookUpClusterVariable(extra.ClusterVariable); err != nil {
			return err
		}
	}
	w.cluster = c.Cluster
	if extra.HostRewrite != "" {
		if !validAuthority(extra.HostRewrite) {
			return fmt.Errorf("host_rewrite %q is not a host", extra.HostRewrite)
		}
		w.host = &hostRewrite{host: extra.HostRewrite, appendForwarded: f.AppendForwardedHost}
	}
	w.request, w.response, err = compileMutations(&c.Request, &c.Response, route, innerFirst)
	return err
}

func lookUpClusterVariable(name string) (variable.Variable, error) {
	v, ok := variable.Lookup(name)
	if !ok {
		return v, fmt.Errorf("cluster_variable: %w", &variable.UnknownError{Name: name})
	}
	return v, nil
}

// Request headers that override the route's timeouts, in milliseconds, on listeners that trust
// their clients to do that.
const (
	GlobalTimeoutHeader = "x-mosn-global-timeout"
	TryTimeoutHeader    = "x-mosn-try-timeout"
)

// WithTimeoutHeaders returns a copy of r whose Timeouts method lets requests override the route's
// timeouts. It is for listeners that trust their clients to do that.
func (r *Route) WithTimeoutHeaders() *Route {
	clone := *r
	clone.trustTimeoutHeaders = true
	return &clone
}

// Timeouts returns the global timeout of x and the timeout of each attempt; 0 means no limit. They
// come from the configuration of the route. If r is from WithTimeoutHeaders, the request headers
// x-mosn-global-timeout and x-mosn-try-timeout, in milliseconds, override the configured timeouts.
// A header that is not a positive 32-bit number has no effect, and one above 24 hours means 24
// hours. A per-try timeout that is not below the global timeout becomes 0.
func (r *Route) Timeouts(x *protocol.Exchange) (global, perTry time.Duration) {
	f := r.Config.Forward
	if f == nil {
		return 0, 0
	}
	global = f.Timeout
	if f.Retry != nil {
		perTry = f.Retry.PerTryTimeout
	}
	if r.trustTimeoutHeaders {
		globalHeader, perTryHeader := timeoutHeaders(&x.Request.Header)
		if d, ok := milliseconds(globalHeader); ok {
			global = d
		}
		if d, ok := milliseconds(perTryHeader); ok {
			perTry = d
		}
	}
	if global > 0 && perTry >= global {
		perTry = 0
	}
	return global, perTry
}

// timeoutHeaders returns the first values of GlobalTimeoutHeader and TryTimeoutHeader that are not
// empty, or "". It runs for each request, so it reads the headers in one pass and compares lengths
// first.
func timeoutHeaders(h *protocol.Header) (global, perTry string) {
	for i := range h.Len() {
		f := h.At(i)
		switch len(f.Name) {
		case len(GlobalTimeoutHeader):
			if global == "" && protocol.EqualFold(f.Name, GlobalTimeoutHeader) {
				global = f.Value
			}
		case len(TryTimeoutHeader):
			if perTry == "" && protocol.EqualFold(f.Name, TryTimeoutHeader) {
				perTry = f.Value
			}
		}
	}
	return global, perTry
}

// maxTimeout is the maximum timeout of a request header.
const maxTimeout = 24 * time.Hour

func milliseconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 {
		return 0, false
	}
	return min(time.Duration(n)*time.Millisecond, maxTimeout), true
}
