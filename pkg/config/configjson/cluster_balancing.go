package configjson

import (
	"math/big"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// balancingJSON contains the load balancing keys of a cluster.
type balancingJSON struct {
	Policy     string               `key:"lb_type" choice:"policy" doc:"Load-balancing policy: LB_ROUNDROBIN, LB_WEIGHTED_ROUNDROBIN, LB_RANDOM, LB_LEAST_REQUEST, LB_LEAST_CONNECTION, LB_PEAK_EWMA (lowest product of latency and requests in flight), LB_RINGHASH and LB_MAGLEV (by the hash_policy of the route; random without one), LB_REQUEST_ROUNDROBIN (the first host; each other host only if those before it cannot be used), or LB_ORIGINAL_DST (the only policy of the type ORIGINAL_DST, and only for that type)." default:"LB_ROUNDROBIN" example:"\"LB_RANDOM\""`
	LB         lbJSON               `key:"lbconfig" doc:"Settings of individual load-balancing policies."`
	Common     commonLBJSON         `key:"common_lb_config" doc:"Failover between priorities and localities, and the panic threshold."`
	Subset     subsetJSON           `key:"lb_subset_config" doc:"Host selection by labels: the metadata_match of the route, and the labels that filters set in the metadata namespace mosn.lb, which take precedence."`
	SlowStart  slowStartJSON        `key:"slow_start" doc:"Reduces the load of hosts that are new or have recovered. Ignored by LB_RINGHASH, LB_MAGLEV and LB_REQUEST_ROUNDROBIN."`
	Localities []localityWeightJSON `key:"locality_weights" doc:"Weights of localities within a priority. Absent: localities are ignored. If present, a locality that is not listed gets no requests."`
}

type lbJSON struct {
	ChoiceCount       int     `key:"choice_count" doc:"LB_LEAST_REQUEST, LB_LEAST_CONNECTION, LB_PEAK_EWMA: number of random hosts to compare." unit:"hosts" min:"2" max:"1000" default:"2" example:"3"`
	ActiveRequestBias float64 `key:"active_request_bias" doc:"LB_LEAST_REQUEST: how strongly requests in flight reduce the weight of a host (exponent)." min:"0" max:"100" default:"1" example:"0.5"`
	MinRingSize       int     `key:"minimum_ring_size" doc:"LB_RINGHASH: minimum number of points on the ring. 0: depends on the number of hosts, from 256 per host (few hosts) to 16 per host (many hosts)." unit:"points" min:"0" max:"8388608" default:"0" example:"65536"`
	MaxRingSize       int     `key:"maximum_ring_size" doc:"LB_RINGHASH: maximum number of points on the ring; each host has at least one." unit:"points" min:"1" max:"8388608" default:"8388608" example:"131072"`
	TableSize         int     `key:"table_size" doc:"LB_MAGLEV: table size, a prime number. 0: 65537, or 655373 for more than 16384 hosts." unit:"entries" min:"0" max:"5000011" default:"0" example:"5003"`
}

type commonLBJSON struct {
	PanicThreshold   float64 `key:"healthy_panic_threshold" doc:"Panic threshold: if fewer than this percentage of the hosts of a priority are healthy, and the other priorities cannot take the load, Weft ignores the health of its hosts, except of draining hosts and of hosts that refuse connections. 0: never." unit:"percent" min:"0" max:"100" default:"50" example:"30"`
	Overprovisioning float64 `key:"overprovisioning_factor" doc:"Capacity of a priority or locality, as a percentage of its fraction of healthy hosts. With 140, it gets all of its requests while at least 72 % of its hosts are healthy; below that, the rest goes to the next priority or to other localities." unit:"percent" min:"100" max:"1000" default:"140" example:"200"`
}

type subsetJSON struct {
	FallBackPolicy uint8             `key:"fall_back_policy" doc:"Hosts for requests that match no subset: 0 none, 1 any host, 2 the default subset." max:"2" default:"0" example:"1"`
	DefaultSubset  map[string]string `key:"default_subset" doc:"Labels of the hosts in the default subset." example:"{\"version\": \"v1\"}"`
	Selectors      [][]string        `key:"subset_selectors" doc:"Sets of label names that define subsets. A request must have exactly the labels of one set. Empty: no subsets." example:"[[\"version\"]]"`
}

type slowStartJSON struct {
	Mode       string        `key:"mode" doc:"Growth mode of the load." enum:"duration" default:"duration" example:"\"duration\""`
	Duration   time.Duration `key:"slow_start_duration" doc:"Duration of the slow start. 0s: no slow start." default:"0s" example:"\"30s\""`
	Aggression float64       `key:"aggression" doc:"Shape of the growth: the load factor is (age / duration) to the power of 1 / aggression." min:"0.1" max:"100" default:"1" example:"1.5"`
	MinPercent float64       `key:"min_weight_percent" doc:"Minimum percentage of its weight that a host gets." unit:"percent" min:"0" max:"100" default:"10" example:"20"`
}

type localityJSON struct {
	Region  string `key:"region" doc:"Name of the region." example:"\"eu\""`
	Zone    string `key:"zone" doc:"Name of the zone within the region." example:"\"eu-1\""`
	SubZone string `key:"sub_zone" doc:"Name of the sub-zone within the zone." example:"\"rack-7\""`
}

type localityWeightJSON struct {
	Node     document.Node `key:"."`
	Locality localityJSON  `key:"locality" doc:"Locality that the weight applies to."`
	Priority uint32        `key:"priority" doc:"Priority of the hosts that the weight applies to." max:"128" default:"0" example:"1"`
	Weight   uint32        `key:"weight" doc:"Weight of the locality. Its fraction of the requests is this number divided by the sum of all weights, and decreases when its hosts fail. 0: no requests." unit:"parts" max:"1000000" default:"1" example:"3"`
}

// readBalancing converts the load balancing of a cluster. It runs after readHosts.
func (r *clusterReader) readBalancing(j *clusterJSON, c *config.Cluster) {
	c.ChoiceCount, c.ActiveRequestBias = j.LB.ChoiceCount, j.LB.ActiveRequestBias
	c.MinRingSize, c.MaxRingSize, c.MaglevTableSize = j.LB.MinRingSize, j.LB.MaxRingSize, j.LB.TableSize
	c.Subsets = config.Subsets{
		Selectors: j.Subset.Selectors,
		Fallback:  config.SubsetFallback(j.Subset.FallBackPolicy),
		Default:   j.Subset.DefaultSubset,
	}
	c.SlowStart = config.SlowStart{
		Duration: j.SlowStart.Duration, Aggression: j.SlowStart.Aggression, MinWeightPercent: j.SlowStart.MinPercent,
	}
	c.Failover = config.Failover{
		Overprovisioning: j.Common.Overprovisioning / 100,
		PanicThreshold:   j.Common.PanicThreshold,
	}
	if c.Failover.PanicThreshold == 0 {
		c.Failover.PanicThreshold = -1 // the model's value for "never"
	}
	r.checkHashTables(j.Node.Get("lbconfig"), c)
	r.checkSubsets(j.Node.Get("lb_subset_config"), c)
	r.checkSlowStart(j.Node.Get("slow_start"), c)
	r.readLocalities(j, c)
}

// checkHashTables checks the sizes of the ring hash and maglev tables.
func (r *clusterReader) checkHashTables(n document.Node, c *config.Cluster) {
	if c.MinRingSize > c.MaxRingSize {
		r.report.Errorf(n.Get("minimum_ring_size"), "minimum_ring_size (%d) is greater than maximum_ring_size (%d)", c.MinRingSize, c.MaxRingSize)
	}
	if c.MaglevTableSize > 0 && !big.NewInt(int64(c.MaglevTableSize)).ProbablyPrime(0) { // exact below 2^64
		r.report.Errorf(n.Get("table_size"), "found %d, expected a prime number", c.MaglevTableSize)
	}
	for _, setting := range []struct {
		key   string
		needs config.LBPolicy
	}{
		{"minimum_ring_size", config.RingHash}, {"maximum_ring_size", config.RingHash}, {"table_size", config.Maglev},
	} {
		if node := n.Get(setting.key); node.Exists() && c.LBPolicy != setting.needs {
			r.report.Warnf(node, "%s has no effect with lb_type %s", setting.key, c.LBPolicy)
		}
	}
}

// checkSubsets warns about subset settings without effect.
func (r *clusterReader) checkSubsets(n document.Node, c *config.Cluster) {
	s := &c.Subsets
	switch {
	case len(s.Selectors) == 0 && (len(s.Default) > 0 || s.Fallback != config.NoFallback):
		r.report.Warnf(n, "lb_subset_config has no effect without subset_selectors: all hosts are used")
	case len(s.Default) > 0 && s.Fallback != config.DefaultSubset:
		r.report.Warnf(n.Get("default_subset"), "default_subset has no effect with the fall_back_policy %d", s.Fallback)
	}
	i := 0
	for node := range n.Get("subset_selectors").All() {
		if i < len(s.Selectors) && len(s.Selectors[i]) == 0 {
			r.report.Errorf(node, "the selector is empty: expected at least one label name")
		}
		i++
	}
}

func (r *clusterReader) checkSlowStart(n document.Node, c *config.Cluster) {
	switch {
	case n.Get("mode").Exists() && c.SlowStart.Duration == 0:
		r.report.Warnf(n, "slow_start has no effect without slow_start_duration")
	case c.SlowStart.Duration > 0 && (c.LBPolicy.UsesHash() || c.LBPolicy == config.RequestRoundRobin):
		r.report.Warnf(n, "slow_start has no effect with lb_type %s", c.LBPolicy)
	}
}

// readLocalities converts the weights of localities and checks them against the hosts.
func (r *clusterReader) readLocalities(j *clusterJSON, c *config.Cluster) {
	type localityKey struct {
		locality config.Locality
		priority uint32
	}
	seen := make(map[localityKey]bool, len(j.Localities))
	for i := range j.Localities {
		l := &j.Localities[i]
		key := localityKey{config.Locality(l.Locality), l.Priority}
		if seen[key] {
			r.report.Errorf(l.Node, "duplicate locality: it already has a weight with this priority")
			continue
		}
		seen[key] = true
		c.LocalityWeights = append(c.LocalityWeights, config.LocalityWeight{Locality: key.locality, Priority: key.priority, Weight: l.Weight})
	}
	for i := range c.Hosts {
		h := &c.Hosts[i]
		switch {
		case len(seen) == 0 && h.Locality != config.Locality{}:
			r.report.Warnf(j.Node.Get("hosts"), "the locality of hosts has no effect without locality_weights")
			return
		case len(seen) > 0 && !seen[localityKey{h.Locality, h.Priority}]:
			r.report.Warnf(j.Node.Get("hosts"), "host %q gets no requests: locality_weights has no entry for its locality with priority %d", h.Address, h.Priority)
		}
	}
}
