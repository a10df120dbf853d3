package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// balancingJSON contains the load balancing keys of a cluster.
type balancingJSON struct {
	Policy     string               `key:"lb_type" choice:"policy" doc:"How a host is chosen: LB_ROUNDROBIN, LB_WEIGHTED_ROUNDROBIN, LB_RANDOM, LB_LEAST_REQUEST, LB_LEAST_CONNECTION, LB_PEAK_EWMA (the least latency times work), LB_RINGHASH and LB_MAGLEV (by the hash_policy of the route; at random without), LB_REQUEST_ROUNDROBIN (the first host; each of the others when those before it fail), or LB_ORIGINAL_DST, of the type ORIGINAL_DST alone, which has no other." default:"LB_ROUNDROBIN" example:"\"LB_RANDOM\""`
	LB         lbJSON               `key:"lbconfig" doc:"Settings of some lb_types."`
	Common     commonLBJSON         `key:"common_lb_config" doc:"When requests leave the hosts that they should go to."`
	Subset     subsetJSON           `key:"lb_subset_config" doc:"Choice among hosts by their labels: those of metadata_match of the route, and those of the namespace mosn.lb that filters give a request, which count for more."`
	SlowStart  slowStartJSON        `key:"slow_start" doc:"Less for hosts that are new, or usable again. Without effect on LB_RINGHASH, LB_MAGLEV and LB_REQUEST_ROUNDROBIN."`
	Localities []localityWeightJSON `key:"locality_weights" doc:"Shares of localities in the requests of a priority. Absent: localities do not count; else a locality that is not listed gets nothing."`
}

type lbJSON struct {
	ChoiceCount       int     `key:"choice_count" doc:"LB_LEAST_REQUEST, LB_LEAST_CONNECTION, LB_PEAK_EWMA: hosts that are compared." unit:"hosts" min:"2" max:"1000" default:"2" example:"3"`
	ActiveRequestBias float64 `key:"active_request_bias" doc:"LB_LEAST_REQUEST: how strongly requests in flight count against the weight (exponent)." min:"0" max:"100" default:"1" example:"0.5"`
	MinRingSize       int     `key:"minimum_ring_size" doc:"LB_RINGHASH: fewest points of the ring. 0: 256 for each of few hosts, 16 for each of many." unit:"points" min:"0" max:"8388608" default:"0" example:"65536"`
	MaxRingSize       int     `key:"maximum_ring_size" doc:"LB_RINGHASH: most points of the ring; a host has one at least." unit:"points" min:"1" max:"8388608" default:"8388608" example:"131072"`
	TableSize         int     `key:"table_size" doc:"LB_MAGLEV: places of the table, a prime. 0: 65537, or 655373 for more than 16384 hosts." unit:"places" min:"0" max:"5000011" default:"0" example:"5003"`
}

type commonLBJSON struct {
	PanicThreshold   float64 `key:"healthy_panic_threshold" doc:"Below so many healthy hosts of a priority, if the others cannot take its work, its health is not believed: all its hosts are used but those that refuse connections. 0: never." unit:"percent" min:"0" max:"100" default:"50" example:"30"`
	Overprovisioning float64 `key:"overprovisioning_factor" doc:"How much of its work a priority, or a locality, can do with all of its hosts: at 140 it gets all of it while 72 % of them are healthy; what is more goes to the next priority, or to other localities." unit:"percent" min:"100" max:"1000" default:"140" example:"200"`
}

type subsetJSON struct {
	FallBackPolicy uint8             `key:"fall_back_policy" doc:"Hosts that are used if no subset fits: 0 none, 1 any, 2 the default subset." max:"2" default:"0" example:"1"`
	DefaultSubset  map[string]string `key:"default_subset" doc:"Labels of the hosts of the default subset." example:"{\"version\": \"v1\"}"`
	Selectors      [][]string        `key:"subset_selectors" doc:"Sets of labels that make subsets: a request must bring exactly those of one. None: there are no subsets." example:"[[\"version\"]]"`
}

type slowStartJSON struct {
	Mode       string        `key:"mode" doc:"How the share grows." enum:"duration" default:"duration" example:"\"duration\""`
	Duration   time.Duration `key:"slow_start_duration" doc:"How long it grows. 0s: there is no slow start." default:"0s" example:"\"30s\""`
	Aggression float64       `key:"aggression" doc:"How fast it grows: with (age / duration) to the power of 1 / aggression." min:"0.1" max:"100" default:"1" example:"1.5"`
	MinPercent float64       `key:"min_weight_percent" doc:"Part of its weight that a host has at least." unit:"percent" min:"0" max:"100" default:"10" example:"20"`
}

type localityJSON struct {
	Region  string `key:"region" doc:"Region." example:"\"eu\""`
	Zone    string `key:"zone" doc:"Zone in it." example:"\"eu-1\""`
	SubZone string `key:"sub_zone" doc:"Part of the zone." example:"\"rack-7\""`
}

type localityWeightJSON struct {
	Node     document.Node `key:"."`
	Locality localityJSON  `key:"locality" doc:"The locality."`
	Priority uint32        `key:"priority" doc:"Priority of the hosts that are meant." max:"128" default:"0" example:"1"`
	Weight   uint32        `key:"weight" doc:"Share of the sum of the weights; less as its hosts fail. 0: nothing." unit:"parts" max:"1000000" default:"1" example:"3"`
}
