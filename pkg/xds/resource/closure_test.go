package resource

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// nestedMessages returns the messages that are reachable from messages through fields whose support
// is "supported" or byMember, each message type once.
func nestedMessages(messages []apiMessage) (out []apiMessage) {
	seen := map[protoreflect.FullName]bool{}
	for _, m := range messages {
		seen[m.message.ProtoReflect().Descriptor().FullName()] = true
	}
	for queue := messages; len(queue) > 0; queue = queue[1:] {
		outer := queue[0]
		fields := outer.message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			d := f.Message()
			if f.IsMap() {
				d = f.MapValue().Message()
			}
			if d == nil || seen[d.FullName()] || strings.HasPrefix(string(d.FullName()), "google.protobuf.") {
				continue
			}
			if support := outer.support(f); support != "supported" && support != byMember {
				continue
			}
			seen[d.FullName()] = true
			nested := outer.nestedMessage(f)
			out, queue = append(out, nested), append(queue, nested)
		}
	}
	return out
}

// nestedMessage returns the message in field f of m.
func (m apiMessage) nestedMessage(f protoreflect.FieldDescriptor) apiMessage {
	base := proto.Clone(m.message).ProtoReflect()
	var inner protoreflect.Message
	path := string(f.Name())
	switch {
	case f.IsMap():
		inner = base.Mutable(f).Map().NewValue().Message()
		path += "[" + newMapKey(f).String() + "]"
	case f.IsList():
		inner = base.Mutable(f).List().NewElement().Message()
		path += "[0]"
	default:
		inner = base.NewField(f).Message()
	}
	return apiMessage{inner.Interface(), strings.TrimPrefix(m.path+"."+path, "."), func(nested proto.Message) ([]string, error) {
		outer := proto.Clone(m.message).ProtoReflect()
		v := protoreflect.ValueOfMessage(nested.ProtoReflect())
		switch {
		case f.IsMap():
			outer.Mutable(f).Map().Set(newMapKey(f), v)
		case f.IsList():
			outer.Mutable(f).List().Append(v)
		default:
			outer.Set(f, v)
		}
		return m.read(outer.Interface())
	}}
}

// newMapKey returns a map key of the type that f requires.
func newMapKey(f protoreflect.FieldDescriptor) protoreflect.MapKey {
	if f.MapKey().Kind() == protoreflect.Uint32Kind {
		return protoreflect.ValueOfUint32(1).MapKey()
	}
	return protoreflect.ValueOfString("x").MapKey()
}

// manualSupport returns how Weft handles fields for which apiMessage.support cannot determine the
// support: it depends on another field, or the reader reports the enclosing message or nothing. A
// maintainer has read each result from the code of the reader.
func manualSupport() map[protoreflect.FullName]string {
	return map[protoreflect.FullName]string{
		"envoy.config.accesslog.v3.AccessLog.filter":                                                         "ignored",
		"envoy.config.cluster.v3.Cluster.CommonLbConfig.zone_aware_lb_config":                                byMember,
		"envoy.config.endpoint.v3.Endpoint.health_check_config":                                              byMember,
		"envoy.extensions.filters.http.ext_authz.v3.ExtAuthz.stat_prefix":                                    "ignored, not reported",
		"envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.watched_directory":           "ignored, not reported",
		"envoy.extensions.transport_sockets.tls.v3.TlsCertificate.watched_directory":                         "ignored, not reported",
		"envoy.config.cluster.v3.Cluster.OriginalDstLbConfig.metadata_key":                                   "**rejected**",
		"envoy.config.cluster.v3.Cluster.RingHashLbConfig.hash_function":                                     "ignored",
		"envoy.config.cluster.v3.Filter.config_discovery":                                                    "**rejected**",
		"envoy.config.core.v3.Address.envoy_internal_address":                                                "**rejected**",
		"envoy.config.core.v3.DataSource.environment_variable":                                               "**rejected**",
		"envoy.config.core.v3.DataSource.watched_directory":                                                  "ignored, not reported",
		"envoy.config.core.v3.DnsResolutionConfig.dns_resolver_options":                                      "ignored",
		"envoy.config.core.v3.HeaderValueOption.keep_empty_value":                                            "ignored, not reported",
		"envoy.config.core.v3.Metadata.typed_filter_metadata":                                                "ignored, not reported",
		"envoy.config.core.v3.RuntimeDouble.runtime_key":                                                     "ignored",
		"envoy.config.core.v3.SocketAddress.ipv4_compat":                                                     "ignored",
		"envoy.config.listener.v3.Filter.config_discovery":                                                   "**rejected**",
		"envoy.config.listener.v3.ListenerFilter.config_discovery":                                           "**rejected**",
		"envoy.config.listener.v3.ListenerFilterChainMatchPredicate.and_match":                               "**rejected**",
		"envoy.config.listener.v3.ListenerFilterChainMatchPredicate.not_match":                               "**rejected**",
		"envoy.config.cluster.v3.CircuitBreakers.Thresholds.track_remaining":                                 "ignored, not reported",
		"envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext.disable_stateful_session_resumption": "ignored, not reported",
		"envoy.config.route.v3.RouteAction.HashPolicy.terminal":                                              "ignored, not reported",
		"envoy.config.route.v3.RouteAction.UpgradeConfig.connect_config":                                     "ignored, not reported",
		"envoy.config.route.v3.RouteConfiguration.validate_clusters":                                         staticOnly,
		"envoy.extensions.filters.network.dubbo_proxy.v3.DubboFilter.config":                                 "ignored, not reported",
		"envoy.type.matcher.v3.RegexMatcher.google_re2":                                                      "ignored, not reported",
		"envoy.config.core.v3.SocketAddress.network_namespace_filepath":                                      "**rejected**",
		"envoy.config.core.v3.SocketAddress.named_port":                                                      "**rejected**",
		"envoy.config.core.v3.SocketAddress.resolver_name":                                                   "**rejected**",
		"envoy.config.core.v3.Pipe.mode":                                                                     "**rejected** in listeners",
		"envoy.config.route.v3.RetryPolicy.RetryHostPredicate.typed_config":                                  "supported",
	}
}
