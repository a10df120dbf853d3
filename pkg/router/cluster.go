package router

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// clusterSelector names a cluster for each exchange. One of its two ways is set.
type clusterSelector struct {
	variable variable.Variable
	shares   []weightedCluster // by weight; empty: by variable
	total    uint64
}

// weightedCluster is a cluster and the sum of the weights up to and including its own.
type weightedCluster struct {
	cluster           string
	cumulativeWeight  uint64
	request, response *mutation // the route's follow; nil: nothing
}

// ChooseCluster returns the name of the cluster that x goes to, "" if there is none:
// the route does not forward, all weights are 0, or the variable has no value. Of
// weighted clusters it returns the place of the chosen one, too, else 0.
// random must be uniform in all its bits; it decides between weighted clusters,
// each of which gets its weight's share. A cluster of weight 0 gets nothing.
func (r *Route) ChooseCluster(x *protocol.Exchange, random uint64) (name string, place int) {
	switch {
	case r.cluster == nil && r.Config.Forward == nil:
		return "", 0
	case r.cluster == nil:
		return r.Config.Forward.Cluster, 0
	case r.cluster.shares == nil:
		name, _ := r.cluster.variable.Text(x)
		return name, 0
	}
	point, _ := bits.Mul64(random, r.cluster.total) // of [0, total), evenly
	for i := range r.cluster.shares {
		if s := &r.cluster.shares[i]; point < s.cumulativeWeight {
			return s.cluster, i
		}
	}
	return "", 0
}

// compileCluster compiles the choice; nil for the one cluster of f.
//
// What its weighted clusters change of fields is followed by what request and response
// do.
func compileCluster(f *config.Forward, request, response *mutation) (*clusterSelector, error) {
	switch {
	case len(f.Weighted) > 0:
		c := &clusterSelector{shares: make([]weightedCluster, len(f.Weighted))}
		for i := range f.Weighted {
			w := &f.Weighted[i]
			if w.Cluster == "" {
				return nil, errors.New("weighted_clusters: a cluster has no name")
			}
			c.total += uint64(w.Weight)
			in, out, err := compileMutations(&w.Request, &w.Response, request, response)
			if err != nil {
				return nil, fmt.Errorf("weighted_clusters: %s: %w", w.Cluster, err)
			}
			c.shares[i] = weightedCluster{w.Cluster, c.total, in, out}
		}
		return c, nil
	case f.Cluster != "":
		return nil, nil
	case f.ClusterVariable != "":
		v, ok := variable.Lookup(f.ClusterVariable)
		if !ok {
			return nil, fmt.Errorf("cluster_variable: %w", &variable.UnknownError{Name: f.ClusterVariable})
		}
		return &clusterSelector{variable: v}, nil
	}
	return nil, errors.New("one of cluster_name, cluster_variable and weighted_clusters is needed")
}

// Fields of requests that override the route's timeouts, in milliseconds, on listeners
// whose callers are trusted to do that.
const (
	GlobalTimeoutField = "x-mosn-global-timeout"
	TryTimeoutField    = "x-mosn-try-timeout"
)

// WithTimeoutFields returns a copy of r whose Timeouts lets requests override the
// route's timeouts. It is for listeners whose callers are trusted to do that.
func (r *Route) WithTimeoutFields() *Route {
	trusting := *r
	trusting.timeoutFields = true
	return &trusting
}

// Timeouts returns how long x and each attempt for it may take; 0 means no limit. The
// route decides. If r is from WithTimeoutFields, the request's x-mosn-global-timeout and
// x-mosn-try-timeout fields, in milliseconds, override it; a field that is not a
// positive number is ignored. A try that may take as long as the whole has no limit of
// its own.
func (r *Route) Timeouts(x *protocol.Exchange) (global, try time.Duration) {
	f := r.Config.Forward
	if f == nil {
		return 0, 0
	}
	global = f.Timeout
	if f.Retry != nil {
		try = f.Retry.TryTimeout
	}
	if r.timeoutFields {
		ofGlobal, ofTry := timeoutFields(&x.Request.Header)
		if d, ok := milliseconds(ofGlobal); ok {
			global = d
		}
		if d, ok := milliseconds(ofTry); ok {
			try = d
		}
	}
	if global > 0 && try >= global {
		try = 0
	}
	return global, try
}

// timeoutFields returns the values of the first fields of either name, "" for none.
// Each request is asked: so it is one way through the fields, by their lengths.
func timeoutFields(h *protocol.Header) (global, try string) {
	for i := range h.Len() {
		f := h.At(i)
		switch len(f.Name) {
		case len(GlobalTimeoutField):
			if global == "" && protocol.EqualFold(f.Name, GlobalTimeoutField) {
				global = f.Value
			}
		case len(TryTimeoutField):
			if try == "" && protocol.EqualFold(f.Name, TryTimeoutField) {
				try = f.Value
			}
		}
	}
	return global, try
}

// maxTimeout keeps sums of a time and a timeout far from overflow.
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
