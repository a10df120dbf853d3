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

// clusterFields returns the message fields that name clusters; for a map, its keys do.
// TestClusterFieldsAreComplete compares it with the message types.
func clusterFields() []protoreflect.FullName {
	return []protoreflect.FullName{
		"envoy.config.core.v3.GrpcService.EnvoyGrpc.cluster_name",
		"envoy.config.core.v3.HttpUri.cluster",
		"envoy.config.route.v3.RouteAction.cluster",
		"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster",
		"envoy.config.route.v3.WeightedCluster.ClusterWeight.name",
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

// CheckClusters finds references in the listeners and clusters of x to clusters that neither x nor
// the file defines. Unknown clusters in a route table that is inline in its listener are an error
// of type FieldErrors, unless validate_clusters is false, as in Envoy. Others are warnings.
func (x *StaticResources) CheckClusters(file *config.Snapshot) (warned FieldErrors, err error) {
	u := &clusterNameChecker{}
	for _, c := range file.Clusters {
		u.clusters = append(u.clusters, c.Name)
	}
	for _, g := range x.Clusters {
		u.clusters = append(u.clusters, g.Name)
	}
	slices.Sort(u.clusters)
	u.checkResources(x.Listeners, &listenerv3.Listener{})
	u.checkResources(x.Clusters, &clusterv3.Cluster{})
	return u.warnings, u.errors.asError()
}

// checkResources checks resources of the type of m.
func (u *clusterNameChecker) checkResources(all []StaticResource, m proto.Message) {
	for _, g := range all {
		if proto.Unmarshal(g.Body, m) == nil { // always: body was marshaled from such a message
			u.checkMessage(g.Field, m.ProtoReflect(), false)
		}
	}
}

// checkMessage checks a message at path; strict: unknown clusters are errors.
func (u *clusterNameChecker) checkMessage(path string, m protoreflect.Message, strict bool) {
	switch one := m.Interface().(type) {
	case *anypb.Any:
		if inner, err := one.UnmarshalNew(); err == nil { // otherwise it was rejected or has no effect
			u.checkMessage(path, inner.ProtoReflect(), strict)
		}
		return
	case *corev3.ConfigSource: // State.checkReferences checks it
		return
	case *routev3.RouteConfiguration:
		strict = one.GetValidateClusters() == nil || one.GetValidateClusters().GetValue()
	}
	for i := range m.Descriptor().Fields().Len() {
		if f := m.Descriptor().Fields().Get(i); m.Has(f) {
			u.checkField(path+"."+string(f.Name()), f, m.Get(f), strict)
		}
	}
}

// checkField is checkMessage for a field.
func (u *clusterNameChecker) checkField(path string, f protoreflect.FieldDescriptor, v protoreflect.Value, strict bool) {
	names := slices.Contains(clusterFields(), f.FullName())
	switch {
	case f.IsMap():
		var keys []string
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k.String())
			return true
		})
		slices.Sort(keys)
		for _, k := range keys {
			at := path + "[" + k + "]"
			if names {
				u.checkName(at, k, strict)
			}
			if f.MapValue().Message() != nil && f.MapKey().Kind() == protoreflect.StringKind {
				u.checkMessage(at, v.Map().Get(protoreflect.ValueOfString(k).MapKey()).Message(), strict)
			}
		}
	case f.IsList() && f.Message() != nil:
		for i := range v.List().Len() {
			u.checkMessage(path+"["+strconv.Itoa(i)+"]", v.List().Get(i).Message(), strict)
		}
	case f.IsList():
	case f.Message() != nil:
		u.checkMessage(path, v.Message(), strict)
	case names:
		u.checkName(path, v.String(), strict && f.Parent().ParentFile().Package() == "envoy.config.route.v3")
	}
}

// checkName records a name that is not a cluster; it ignores "".
func (u *clusterNameChecker) checkName(path, name string, strict bool) {
	if _, ok := slices.BinarySearch(u.clusters, name); ok || name == "" {
		return
	}
	one := FieldError{path, fmt.Sprintf("unknown cluster %q", name)}
	if near := document.Suggest(name, u.clusters); near != "" {
		one.Reason += fmt.Sprintf("; did you mean %q?", near)
	}
	if strict {
		u.errors = append(u.errors, one)
	} else {
		u.warnings = append(u.warnings, one)
	}
}
