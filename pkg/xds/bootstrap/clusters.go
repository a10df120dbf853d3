package bootstrap

import (
	"fmt"
	"slices"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// clusterFields returns the message fields that contain names of clusters: as the value or, in a
// map, as the keys. TestClusterFieldsAreComplete compares the list with the message types.
func clusterFields() []protoreflect.FullName {
	return []protoreflect.FullName{
		"envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name",
		"envoy.config.core.v3.HttpUri.cluster",
		"envoy.config.route.v3.RouteAction.cluster",
		"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster",
		"envoy.config.route.v3.WeightedCluster.ClusterWeight.name",
		"envoy.extensions.clusters.aggregate.v3.ClusterConfig.clusters",
		"envoy.extensions.filters.http.fault.v3.HTTPFault.upstream_cluster",
		"envoy.extensions.filters.http.health_check.v3.HealthCheck.cluster_min_healthy_percentages",
		"envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction.cluster",
		"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.cluster",
		"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight.name",
	}
}

// clusterNameChecker finds references to unknown clusters.
type clusterNameChecker struct {
	clusters []string
	errors   FieldErrors // references that Envoy rejects, too
	warnings FieldErrors // other references
}

// CheckClusters finds references in the listeners and clusters of s to clusters that neither s nor
// the file defines. Unknown clusters of HTTP routes that are inline in a listener are an error of
// type FieldErrors, unless validate_clusters is false, as in Envoy. All others are warnings.
func (s *StaticResources) CheckClusters(file *config.Snapshot) (warnings FieldErrors, err error) {
	checker := &clusterNameChecker{}
	for _, c := range file.Clusters {
		checker.clusters = append(checker.clusters, c.Name)
	}
	for _, r := range s.Clusters {
		checker.clusters = append(checker.clusters, r.Name)
	}
	slices.Sort(checker.clusters)
	checker.checkResources(s.Listeners, &listenerv3.Listener{})
	checker.checkResources(s.Clusters, &clusterv3.Cluster{})
	return checker.warnings, checker.errors.asError()
}

// checkResources checks resources of the type of m.
func (c *clusterNameChecker) checkResources(resources []StaticResource, m proto.Message) {
	for _, r := range resources {
		if proto.Unmarshal(r.Body, m) == nil { // never fails: Body was marshaled from such a message
			c.checkMessage(r.Field, m.ProtoReflect(), false)
		}
	}
}

// checkMessage checks a message at path. If strict is true, unknown clusters are errors.
func (c *clusterNameChecker) checkMessage(path string, m protoreflect.Message, strict bool) {
	switch msg := m.Interface().(type) {
	case *anypb.Any:
		if inner, err := msg.UnmarshalNew(); err == nil { // otherwise it was rejected or has no effect
			c.checkMessage(path, inner.ProtoReflect(), strict)
		}
		return
	case *corev3.ConfigSource: // State.checkReferences checks it
		return
	case *routev3.RouteConfiguration:
		strict = msg.GetValidateClusters() == nil || msg.GetValidateClusters().GetValue()
	}
	for i := range m.Descriptor().Fields().Len() {
		if f := m.Descriptor().Fields().Get(i); m.Has(f) {
			c.checkField(path+"."+string(f.Name()), f, m.Get(f), strict)
		}
	}
}

// checkField is checkMessage for a field.
func (c *clusterNameChecker) checkField(path string, f protoreflect.FieldDescriptor, v protoreflect.Value, strict bool) {
	namesCluster := slices.Contains(clusterFields(), f.FullName())
	switch {
	case f.IsMap():
		var keys []string
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k.String())
			return true
		})
		slices.Sort(keys)
		for _, k := range keys {
			entryPath := path + "[" + k + "]"
			if namesCluster {
				c.checkName(entryPath, k, strict)
			}
			if f.MapValue().Message() != nil && f.MapKey().Kind() == protoreflect.StringKind {
				c.checkMessage(entryPath, v.Map().Get(protoreflect.ValueOfString(k).MapKey()).Message(), strict)
			}
		}
	case f.IsList() && f.Message() != nil:
		for i := range v.List().Len() {
			c.checkMessage(path+"["+strconv.Itoa(i)+"]", v.List().Get(i).Message(), strict)
		}
	case f.IsList() && namesCluster:
		for i := range v.List().Len() {
			c.checkName(path+"["+strconv.Itoa(i)+"]", v.List().Get(i).String(), false)
		}
	case f.IsList():
	case f.Message() != nil:
		c.checkMessage(path, v.Message(), strict)
	case namesCluster:
		c.checkName(path, v.String(), strict && f.Parent().ParentFile().Package() == "envoy.config.route.v3")
	}
}

// checkName records a name that is not a cluster; it ignores "".
func (c *clusterNameChecker) checkName(path, name string, strict bool) {
	if _, ok := slices.BinarySearch(c.clusters, name); ok || name == "" {
		return
	}
	e := FieldError{path, fmt.Sprintf("unknown cluster %q", name)}
	if nearest := document.Suggest(name, c.clusters); nearest != "" {
		e.Reason += fmt.Sprintf("; did you mean %q?", nearest)
	}
	if strict {
		c.errors = append(c.errors, e)
	} else {
		c.warnings = append(c.warnings, e)
	}
}
