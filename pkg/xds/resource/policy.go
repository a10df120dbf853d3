package resource

import (
	"maps"
	"math"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	providedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
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

// readPolicy reads the load balancing policy. load_balancing_policy takes precedence over lb_policy
// and its settings, except in a cluster whose type determines the policy.
func (p fieldReader) readPolicy(m *clusterv3.Cluster, c *Cluster) {
	out := c.Config
	out.ChoiceCount, out.ActiveRequestBias = 2, 1
	p.field("common_lb_config").readCommonPolicy(m.GetCommonLbConfig(), c)
	p.field("lb_subset_config").readSubsets(m.GetLbSubsetConfig(), &out.Subsets)
	if out.Type == config.ClusterOriginalDst || out.Type == config.ClusterAggregate {
		p.checkProvidedPolicy(m, out.Type)
		return
	}
	if m.GetLoadBalancingPolicy() != nil {
		p.field("load_balancing_policy").readPolicyList(m.GetLoadBalancingPolicy(), c)
		return
	}
	switch m.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		out.LBPolicy = config.WeightedRoundRobin
		o := m.GetRoundRobinLbConfig()
		p.field("round_robin_lb_config").checkOptionalFields(o, nil, "slow_start_config")
		p.field("round_robin_lb_config").field("slow_start_config").readSlowStart(o.GetSlowStartConfig(), &out.SlowStart)
	case clusterv3.Cluster_LEAST_REQUEST:
		out.LBPolicy = config.LeastRequest
		o := m.GetLeastRequestLbConfig()
		p.field("least_request_lb_config").checkOptionalFields(o, nil, "choice_count", "active_request_bias", "slow_start_config")
		out.ChoiceCount = uint32Or(o.GetChoiceCount(), 2)
		out.ActiveRequestBias = p.field("least_request_lb_config").field("active_request_bias").runtimeDefault(o.GetActiveRequestBias())
		p.field("least_request_lb_config").field("slow_start_config").readSlowStart(o.GetSlowStartConfig(), &out.SlowStart)
	case clusterv3.Cluster_RANDOM:
		out.LBPolicy = config.Random
	case clusterv3.Cluster_RING_HASH:
		o := m.GetRingHashLbConfig()
		p.field("ring_hash_lb_config").checkOptionalFields(o, nil, "minimum_ring_size", "maximum_ring_size")
		p.field("ring_hash_lb_config").readRingHash(o.GetMinimumRingSize(), o.GetMaximumRingSize(), out)
	case clusterv3.Cluster_MAGLEV:
		p.field("maglev_lb_config").checkOptionalFields(m.GetMaglevLbConfig(), nil, "table_size")
		p.field("maglev_lb_config").readMaglev(m.GetMaglevLbConfig().GetTableSize(), out)
	default:
		p.field("lb_policy").reject("%v is not supported", m.GetLbPolicy())
	}
}

// checkProvidedPolicy rejects a policy other than the one of the cluster type. As in Envoy, lb_policy
// must name it even if load_balancing_policy does.
func (p fieldReader) checkProvidedPolicy(m *clusterv3.Cluster, clusterType config.ClusterType) {
	if m.GetLbPolicy() != clusterv3.Cluster_CLUSTER_PROVIDED {
		p.field("lb_policy").reject("%v is not supported with the cluster type %s, expected CLUSTER_PROVIDED", m.GetLbPolicy(), clusterType)
	}
	if m.GetLoadBalancingPolicy() == nil {
		return
	}
	for _, policy := range m.GetLoadBalancingPolicy().GetPolicies() {
		if isType(policy.GetTypedExtensionConfig().GetTypedConfig(), &providedv3.ClusterProvided{}) {
			return
		}
	}
	p.field("load_balancing_policy").reject("expected ClusterProvided, the only policy of the cluster type %s", clusterType)
}

// checkOptionalFields is checkFields for a message that may be nil.
func (p fieldReader) checkOptionalFields(m proto.Message, rejectedFields []string, supportedFields ...string) {
	if m.ProtoReflect().IsValid() {
		p.checkFields(m, supportedFields, rejectedFields)
	}
}

// runtimeDefault returns the default of a runtime value, or 1 if d is nil. It ignores the runtime
// key: a change of the runtime does not change clusters.
func (p fieldReader) runtimeDefault(d *corev3.RuntimeDouble) float64 {
	if d == nil {
		return 1
	}
	if d.GetRuntimeKey() != "" {
		p.field("runtime_key").ignore()
	}
	return d.GetDefaultValue()
}

func (p fieldReader) readRingHash(minSize, maxSize *wrapperspb.UInt64Value, out *config.Cluster) {
	const defaultMin, limit = 1024, 8 << 20
	out.LBPolicy = config.RingHash
	out.MinRingSize, out.MaxRingSize = defaultMin, limit
	if minSize != nil {
		out.MinRingSize = int(min(minSize.GetValue(), math.MaxInt32)) //nolint:gosec // bounded by min
	}
	if maxSize != nil {
		out.MaxRingSize = int(min(maxSize.GetValue(), math.MaxInt32)) //nolint:gosec // bounded by min
	}
	if out.MinRingSize > out.MaxRingSize || out.MaxRingSize > limit {
		p.reject("the ring size is %d to %d: the minimum must not exceed the maximum, and the maximum must not exceed %d", out.MinRingSize, out.MaxRingSize, limit)
	}
}

func (p fieldReader) readMaglev(size *wrapperspb.UInt64Value, out *config.Cluster) {
	const limit = 5_000_011
	out.LBPolicy = config.Maglev
	if size == nil {
		return
	}
	n := size.GetValue()
	if n > limit || !isPrime(n) {
		p.field("table_size").reject("is %d, expected a prime number of at most %d", n, limit)
		return
	}
	out.MaglevTableSize = int(n)
}

func isPrime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// readPolicyList selects the first supported policy of the list, as the API requires.
func (p fieldReader) readPolicyList(l *clusterv3.LoadBalancingPolicy, c *Cluster) {
	for i, policy := range l.GetPolicies() {
		packed := policy.GetTypedExtensionConfig().GetTypedConfig()
		if p.field("policies").index(i).field("typed_extension_config").readSupportedPolicy(packed, c) {
			return
		}
	}
	p.reject("none of the policies is supported")
}

// readSupportedPolicy reads a policy and reports whether Weft supports its type.
func (p fieldReader) readSupportedPolicy(packed *anypb.Any, c *Cluster) bool {
	out := c.Config
	least, robin, random, ring, maglev := &leastv3.LeastRequest{}, &robinv3.RoundRobin{}, &randomv3.Random{}, &ringv3.RingHash{}, &maglevv3.Maglev{}
	switch {
	case isType(packed, least):
		if p.unpack(packed, least) {
			p.checkFields(least, []string{"choice_count", "active_request_bias", "slow_start_config", "locality_lb_config"}, nil)
			out.LBPolicy = config.LeastRequest
			out.ChoiceCount = uint32Or(least.GetChoiceCount(), 2)
			out.ActiveRequestBias = p.field("active_request_bias").runtimeDefault(least.GetActiveRequestBias())
			p.field("slow_start_config").readSlowStart(least.GetSlowStartConfig(), &out.SlowStart)
			p.field("locality_lb_config").readLocalities(least.GetLocalityLbConfig(), c)
		}
	case isType(packed, robin):
		if p.unpack(packed, robin) {
			p.checkFields(robin, []string{"slow_start_config", "locality_lb_config"}, nil)
			out.LBPolicy = config.WeightedRoundRobin
			p.field("slow_start_config").readSlowStart(robin.GetSlowStartConfig(), &out.SlowStart)
			p.field("locality_lb_config").readLocalities(robin.GetLocalityLbConfig(), c)
		}
	case isType(packed, random):
		if p.unpack(packed, random) {
			p.checkFields(random, []string{"locality_lb_config"}, nil)
			out.LBPolicy = config.Random
			p.field("locality_lb_config").readLocalities(random.GetLocalityLbConfig(), c)
		}
	case isType(packed, ring):
		if p.unpack(packed, ring) {
			p.checkFields(ring, []string{"minimum_ring_size", "maximum_ring_size", "locality_weighted_lb_config"}, nil)
			p.readRingHash(ring.GetMinimumRingSize(), ring.GetMaximumRingSize(), out)
			c.localityWeighted = c.localityWeighted || ring.GetLocalityWeightedLbConfig() != nil
		}
	case isType(packed, maglev):
		if p.unpack(packed, maglev) {
			p.checkFields(maglev, []string{"table_size", "locality_weighted_lb_config"}, nil)
			p.readMaglev(maglev.GetTableSize(), out)
			c.localityWeighted = c.localityWeighted || maglev.GetLocalityWeightedLbConfig() != nil
		}
	default:
		return false
	}
	return true
}

func (p fieldReader) readLocalities(l *commonlbv3.LocalityLbConfig, c *Cluster) {
	switch o := l.GetLocalityConfigSpecifier().(type) {
	case *commonlbv3.LocalityLbConfig_LocalityWeightedLbConfig_:
		c.localityWeighted = true
	case *commonlbv3.LocalityLbConfig_ZoneAwareLbConfig_:
		p.field("zone_aware_lb_config").checkFields(o.ZoneAwareLbConfig, nil, []string{"fail_traffic_on_panic"})
	}
}

func (p fieldReader) readCommonPolicy(o *clusterv3.Cluster_CommonLbConfig, c *Cluster) {
	if o == nil {
		return
	}
	p.checkFields(o, []string{"healthy_panic_threshold", "zone_aware_lb_config", "locality_weighted_lb_config"}, []string{"override_host_status"})
	c.localityWeighted = o.GetLocalityWeightedLbConfig() != nil
	if z := o.GetZoneAwareLbConfig(); z != nil { // ignored: zone awareness requires the proxy's own cluster, which Weft does not know
		p.field("zone_aware_lb_config").checkFields(z, nil, []string{"fail_traffic_on_panic"})
	}
	if t := o.GetHealthyPanicThreshold(); t != nil {
		c.Config.Failover.PanicThreshold = p.field("healthy_panic_threshold").checkPercent(t.GetValue())
		if t.GetValue() == 0 {
			c.Config.Failover.PanicThreshold = -1 // disabled
		}
	}
}

// slowStart is the common part of the slow start messages of two packages. A nil message has no
// window.
type slowStart interface {
	GetSlowStartWindow() *durationpb.Duration
	GetAggression() *corev3.RuntimeDouble
	GetMinWeightPercent() *typev3.Percent
}

func (p fieldReader) readSlowStart(s slowStart, out *config.SlowStart) {
	if s.GetSlowStartWindow() == nil {
		return
	}
	out.Duration = p.field("slow_start_window").readDuration(s.GetSlowStartWindow(), 0)
	out.Aggression = p.field("aggression").runtimeDefault(s.GetAggression())
	out.MinWeightPercent = 10
	if s.GetMinWeightPercent() != nil {
		out.MinWeightPercent = p.field("min_weight_percent").checkPercent(s.GetMinWeightPercent().GetValue())
	}
	if !(out.Aggression > 0) {
		p.field("aggression").reject("is %v, expected more than 0", out.Aggression)
	}
}

func (p fieldReader) readSubsets(s *clusterv3.Cluster_LbSubsetConfig, out *config.Subsets) {
	if s == nil {
		return
	}
	p.checkFields(s, []string{"fallback_policy", "default_subset", "subset_selectors"}, []string{"metadata_fallback_policy"})
	switch s.GetFallbackPolicy() {
	case clusterv3.Cluster_LbSubsetConfig_NO_FALLBACK:
		out.Fallback = config.NoFallback
	case clusterv3.Cluster_LbSubsetConfig_ANY_ENDPOINT:
		out.Fallback = config.AnyEndpoint
	case clusterv3.Cluster_LbSubsetConfig_DEFAULT_SUBSET:
		out.Fallback = config.DefaultSubset
	default:
		p.field("fallback_policy").reject("%v is not supported", s.GetFallbackPolicy())
	}
	out.Default = labels(s.GetDefaultSubset())
	for i, selector := range s.GetSubsetSelectors() {
		at := p.field("subset_selectors").index(i)
		at.checkFields(selector, []string{"keys"}, []string{"fallback_policy", "fallback_keys_subset", "single_host_per_subset"})
		if len(selector.GetKeys()) == 0 {
			at.field("keys").reject("is empty")
			continue
		}
		out.Selectors = append(out.Selectors, slices.Sorted(maps.Keys(newSet(selector.GetKeys()))))
	}
}

func newSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// readFractionPercent returns a fraction as a percentage of at most 100.
func (p fieldReader) readFractionPercent(f *typev3.FractionalPercent) float64 {
	n := float64(f.GetNumerator())
	switch f.GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
	case typev3.FractionalPercent_TEN_THOUSAND:
		n /= 100
	case typev3.FractionalPercent_MILLION:
		n /= 10_000
	default:
		p.field("denominator").reject("%v is not supported", f.GetDenominator())
	}
	return min(n, 100)
}
