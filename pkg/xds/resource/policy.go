package resource

import (
	"maps"
	"math"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonlbv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	robinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readPolicy reads how a host is chosen. load_balancing_policy stands in the place of
// all that came before it in the API.
func (p place) readPolicy(m *clusterv3.Cluster, c *Cluster) {
	out := c.Config
	out.ChoiceCount, out.ActiveRequestBias = 2, 1
	p.field("common_lb_config").readCommonPolicy(m.GetCommonLbConfig(), c)
	p.field("lb_subset_config").readSubsets(m.GetLbSubsetConfig(), &out.Subsets)
	if out.Type == config.ClusterOriginalDst {
		if m.GetLbPolicy() != clusterv3.Cluster_CLUSTER_PROVIDED {
			p.field("lb_policy").refuse("%v is not supported with the cluster type ORIGINAL_DST, expected CLUSTER_PROVIDED", m.GetLbPolicy())
		}
		return
	}
	if m.GetLoadBalancingPolicy() != nil {
		p.field("load_balancing_policy").readTyped(m.GetLoadBalancingPolicy(), c)
		return
	}
	switch m.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		out.Policy = config.WeightedRoundRobin
		o := m.GetRoundRobinLbConfig()
		p.field("round_robin_lb_config").note(o, nil, "slow_start_config")
		p.field("round_robin_lb_config").field("slow_start_config").readSlowStart(o.GetSlowStartConfig(), &out.SlowStart)
	case clusterv3.Cluster_LEAST_REQUEST:
		out.Policy = config.LeastRequest
		o := m.GetLeastRequestLbConfig()
		p.field("least_request_lb_config").note(o, nil, "choice_count", "active_request_bias", "slow_start_config")
		out.ChoiceCount = count(o.GetChoiceCount(), 2)
		out.ActiveRequestBias = bias(o.GetActiveRequestBias())
		p.field("least_request_lb_config").field("slow_start_config").readSlowStart(o.GetSlowStartConfig(), &out.SlowStart)
	case clusterv3.Cluster_RANDOM:
		out.Policy = config.Random
	case clusterv3.Cluster_RING_HASH:
		o := m.GetRingHashLbConfig()
		p.field("ring_hash_lb_config").note(o, nil, "minimum_ring_size", "maximum_ring_size")
		p.field("ring_hash_lb_config").readRing(o.GetMinimumRingSize(), o.GetMaximumRingSize(), out)
	case clusterv3.Cluster_MAGLEV:
		p.field("maglev_lb_config").note(m.GetMaglevLbConfig(), nil, "table_size")
		p.field("maglev_lb_config").readMaglev(m.GetMaglevLbConfig().GetTableSize(), out)
	default:
		p.field("lb_policy").refuse("%v is not supported", m.GetLbPolicy())
	}
}

// note is only of a message that may be nil.
func (p place) note(m proto.Message, critical []string, read ...string) {
	if m.ProtoReflect().IsValid() {
		p.only(m, read, critical)
	}
}

// bias is a runtime value's own default: there is no runtime that says otherwise.
func bias(d *corev3.RuntimeDouble) float64 {
	if d == nil {
		return 1
	}
	return d.GetDefaultValue()
}

func (p place) readRing(least, most *wrapperspb.UInt64Value, out *config.Cluster) {
	const usual, largest = 1024, 8 << 20
	out.Policy = config.RingHash
	out.MinRingSize, out.MaxRingSize = usual, largest
	if least != nil {
		out.MinRingSize = int(min(least.GetValue(), math.MaxInt32)) //nolint:gosec // it is small enough
	}
	if most != nil {
		out.MaxRingSize = int(min(most.GetValue(), math.MaxInt32)) //nolint:gosec // it is small enough
	}
	if out.MinRingSize > out.MaxRingSize || out.MaxRingSize > largest {
		p.refuse("the ring size is %d to %d: the minimum must not exceed the maximum, and the maximum must not exceed %d", out.MinRingSize, out.MaxRingSize, largest)
	}
}

func (p place) readMaglev(size *wrapperspb.UInt64Value, out *config.Cluster) {
	const largest = 5_000_011
	out.Policy = config.Maglev
	if size == nil {
		return
	}
	n := size.GetValue()
	if n > largest || !prime(n) {
		p.field("table_size").refuse("is %d, expected a prime number of at most %d", n, largest)
		return
	}
	out.TableSize = int(n)
}

func prime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// readTyped takes the first policy of the list that is built, as the API has it.
func (p place) readTyped(l *clusterv3.LoadBalancingPolicy, c *Cluster) {
	for i, one := range l.GetPolicies() {
		packed := one.GetTypedExtensionConfig().GetTypedConfig()
		if p.field("policies").index(i).field("typed_extension_config").readBuilt(packed, c) {
			return
		}
	}
	p.refuse("none of the policies is supported")
}

// readBuilt reads a policy, or reports that it is none that is built.
func (p place) readBuilt(packed *anypb.Any, c *Cluster) bool {
	out := c.Config
	least, robin, random, ring, maglev := &leastv3.LeastRequest{}, &robinv3.RoundRobin{}, &randomv3.Random{}, &ringv3.RingHash{}, &maglevv3.Maglev{}
	switch {
	case holds(packed, least):
		if p.open(packed, least) {
			p.only(least, []string{"choice_count", "active_request_bias", "slow_start_config", "locality_lb_config"}, nil)
			out.Policy = config.LeastRequest
			out.ChoiceCount = count(least.GetChoiceCount(), 2)
			out.ActiveRequestBias = bias(least.GetActiveRequestBias())
			p.field("slow_start_config").readSlowStart(least.GetSlowStartConfig(), &out.SlowStart)
			p.field("locality_lb_config").readLocalities(least.GetLocalityLbConfig(), c)
		}
	case holds(packed, robin):
		if p.open(packed, robin) {
			p.only(robin, []string{"slow_start_config", "locality_lb_config"}, nil)
			out.Policy = config.WeightedRoundRobin
			p.field("slow_start_config").readSlowStart(robin.GetSlowStartConfig(), &out.SlowStart)
			p.field("locality_lb_config").readLocalities(robin.GetLocalityLbConfig(), c)
		}
	case holds(packed, random):
		if p.open(packed, random) {
			p.only(random, []string{"locality_lb_config"}, nil)
			out.Policy = config.Random
			p.field("locality_lb_config").readLocalities(random.GetLocalityLbConfig(), c)
		}
	case holds(packed, ring):
		if p.open(packed, ring) {
			p.only(ring, []string{"minimum_ring_size", "maximum_ring_size", "locality_weighted_lb_config"}, nil)
			p.readRing(ring.GetMinimumRingSize(), ring.GetMaximumRingSize(), out)
			c.weighted = c.weighted || ring.GetLocalityWeightedLbConfig() != nil
		}
	case holds(packed, maglev):
		if p.open(packed, maglev) {
			p.only(maglev, []string{"table_size", "locality_weighted_lb_config"}, nil)
			p.readMaglev(maglev.GetTableSize(), out)
			c.weighted = c.weighted || maglev.GetLocalityWeightedLbConfig() != nil
		}
	default:
		return false
	}
	return true
}

func (p place) readLocalities(l *commonlbv3.LocalityLbConfig, c *Cluster) {
	switch o := l.GetLocalityConfigSpecifier().(type) {
	case *commonlbv3.LocalityLbConfig_LocalityWeightedLbConfig_:
		c.weighted = true
	case *commonlbv3.LocalityLbConfig_ZoneAwareLbConfig_:
		p.field("zone_aware_lb_config").only(o.ZoneAwareLbConfig, nil, []string{"fail_traffic_on_panic"})
	}
}

func (p place) readCommonPolicy(o *clusterv3.Cluster_CommonLbConfig, c *Cluster) {
	if o == nil {
		return
	}
	p.only(o, []string{"healthy_panic_threshold", "zone_aware_lb_config", "locality_weighted_lb_config"}, []string{"override_host_status"})
	c.weighted = o.GetLocalityWeightedLbConfig() != nil
	if z := o.GetZoneAwareLbConfig(); z != nil { // of a cluster that the proxy itself is of: there is none
		p.field("zone_aware_lb_config").only(z, nil, []string{"fail_traffic_on_panic"})
	}
	if t := o.GetHealthyPanicThreshold(); t != nil {
		c.Config.Failover.PanicThreshold = p.field("healthy_panic_threshold").percent(t.GetValue())
		if t.GetValue() == 0 {
			c.Config.Failover.PanicThreshold = -1 // never
		}
	}
}

// slowStart is what messages of two packages say alike; one that is nil says nothing.
type slowStart interface {
	GetSlowStartWindow() *durationpb.Duration
	GetAggression() *corev3.RuntimeDouble
	GetMinWeightPercent() *typev3.Percent
}

func (p place) readSlowStart(s slowStart, out *config.SlowStart) {
	if s.GetSlowStartWindow() == nil {
		return
	}
	out.Duration = p.field("slow_start_window").duration(s.GetSlowStartWindow(), 0)
	out.Aggression = bias(s.GetAggression())
	out.MinPercent = 10
	if s.GetMinWeightPercent() != nil {
		out.MinPercent = p.field("min_weight_percent").percent(s.GetMinWeightPercent().GetValue())
	}
	if !(out.Aggression > 0) {
		p.field("aggression").refuse("is %v, expected more than 0", out.Aggression)
	}
}

func (p place) readSubsets(s *clusterv3.Cluster_LbSubsetConfig, out *config.Subsets) {
	if s == nil {
		return
	}
	p.only(s, []string{"fallback_policy", "default_subset", "subset_selectors"}, []string{"metadata_fallback_policy"})
	switch s.GetFallbackPolicy() {
	case clusterv3.Cluster_LbSubsetConfig_NO_FALLBACK:
		out.Fallback = config.NoFallback
	case clusterv3.Cluster_LbSubsetConfig_ANY_ENDPOINT:
		out.Fallback = config.AnyEndpoint
	case clusterv3.Cluster_LbSubsetConfig_DEFAULT_SUBSET:
		out.Fallback = config.DefaultSubset
	default:
		p.field("fallback_policy").refuse("%v is not supported", s.GetFallbackPolicy())
	}
	out.Default = labels(s.GetDefaultSubset())
	for i, one := range s.GetSubsetSelectors() {
		at := p.field("subset_selectors").index(i)
		at.only(one, []string{"keys"}, []string{"fallback_policy", "fallback_keys_subset", "single_host_per_subset"})
		if len(one.GetKeys()) == 0 {
			at.field("keys").refuse("is empty")
			continue
		}
		out.Selectors = append(out.Selectors, slices.Sorted(maps.Keys(set(one.GetKeys()))))
	}
}

func set(names []string) map[string]bool {
	all := make(map[string]bool, len(names))
	for _, n := range names {
		all[n] = true
	}
	return all
}

// fraction is a share of all that happens, in percent.
func (p place) fraction(f *typev3.FractionalPercent) float64 {
	n := float64(f.GetNumerator())
	switch f.GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
	case typev3.FractionalPercent_TEN_THOUSAND:
		n /= 100
	case typev3.FractionalPercent_MILLION:
		n /= 10_000
	default:
		p.field("denominator").refuse("%v is not supported", f.GetDenominator())
	}
	return min(n, 100)
}
