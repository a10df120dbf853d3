package resource

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// nestedMessages returns the messages that readers parse inside those of all, each once: the
// messages of fields that are neither ignored nor rejected.
func nestedMessages(all []apiMessage) (more []apiMessage) {
	known := map[protoreflect.FullName]bool{}
	for _, j := range all {
		known[j.message.ProtoReflect().Descriptor().FullName()] = true
	}
	for queue := all; len(queue) > 0; queue = queue[1:] {
		outer := queue[0]
		fields := outer.message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			d := f.Message()
			if f.IsMap() {
				d = f.MapValue().Message()
			}
			if d == nil || known[d.FullName()] || strings.HasPrefix(string(d.FullName()), "google.protobuf.") || outer.verdict(f) != "read" {
				continue
			}
			known[d.FullName()] = true
			j := outer.nestedMessage(f)
			more, queue = append(more, j), append(queue, j)
		}
	}
	return more
}

// nestedMessage returns the message in field f of j.
func (j apiMessage) nestedMessage(f protoreflect.FieldDescriptor) apiMessage {
	base := proto.Clone(j.message).ProtoReflect()
	var inner protoreflect.Message
	place := string(f.Name())
	switch {
	case f.IsMap():
		inner = base.Mutable(f).Map().NewValue().Message()
		place += "[" + newMapKey(f).String() + "]"
	case f.IsList():
		inner = base.Mutable(f).List().NewElement().Message()
		place += "[0]"
	default:
		inner = base.NewField(f).Message()
	}
	return apiMessage{inner.Interface(), strings.TrimPrefix(j.place+"."+place, "."), func(m proto.Message) ([]string, error) {
		outer := proto.Clone(j.message).ProtoReflect()
		v := protoreflect.ValueOfMessage(m.ProtoReflect())
		switch {
		case f.IsMap():
			outer.Mutable(f).Map().Set(newMapKey(f), v)
		case f.IsList():
			outer.Mutable(f).List().Append(v)
		default:
			outer.Set(f, v)
		}
		return j.read(outer.Interface())
	}}
}

// newMapKey returns a map key of the type that f requires.
func newMapKey(f protoreflect.FieldDescriptor) protoreflect.MapKey {
	if f.MapKey().Kind() == protoreflect.Uint32Kind {
		return protoreflect.ValueOfUint32(1).MapKey()
	}
	return protoreflect.ValueOfString("x").MapKey()
}

// manualVerdicts returns the verdicts of fields that verdict cannot determine: the result depends
// on another field, or covers the enclosing message. Each was looked up in the reader.
func manualVerdicts() map[protoreflect.FullName]string {
	return map[protoreflect.FullName]string{
		"envoy.config.accesslog.v3.AccessLog.filter":                           "ignored",
		"envoy.config.cluster.v3.Cluster.OriginalDstLbConfig.metadata_key":     "**refused**",
		"envoy.config.cluster.v3.Cluster.RingHashLbConfig.hash_function":       "ignored",
		"envoy.config.cluster.v3.Filter.config_discovery":                      "**refused**",
		"envoy.config.core.v3.Address.envoy_internal_address":                  "**refused**",
		"envoy.config.core.v3.DataSource.environment_variable":                 "**refused**",
		"envoy.config.core.v3.DataSource.watched_directory":                    "ignored in silence",
		"envoy.config.core.v3.DnsResolutionConfig.dns_resolver_options":        "ignored",
		"envoy.config.core.v3.HeaderValueOption.keep_empty_value":              "ignored in silence",
		"envoy.config.core.v3.Metadata.typed_filter_metadata":                  "ignored in silence",
		"envoy.config.core.v3.SocketAddress.ipv4_compat":                       "ignored",
		"envoy.config.listener.v3.Filter.config_discovery":                     "**refused**",
		"envoy.config.listener.v3.ListenerFilter.config_discovery":             "**refused**",
		"envoy.config.listener.v3.ListenerFilterChainMatchPredicate.and_match": "**refused**",
		"envoy.config.listener.v3.ListenerFilterChainMatchPredicate.not_match": "**refused**",
		"envoy.config.route.v3.RouteAction.HashPolicy.terminal":                "ignored in silence",
		"envoy.config.route.v3.RouteAction.UpgradeConfig.connect_config":       "ignored in silence",
		"envoy.extensions.filters.network.dubbo_proxy.v3.DubboFilter.config":   "ignored in silence",
		"envoy.type.matcher.v3.RegexMatcher.google_re2":                        "ignored in silence",
		"envoy.config.core.v3.SocketAddress.network_namespace_filepath":        "**refused**",
		"envoy.config.core.v3.SocketAddress.named_port":                        "**refused**",
		"envoy.config.core.v3.SocketAddress.resolver_name":                     "**refused**",
		"envoy.config.core.v3.Pipe.mode":                                       "**refused** of listeners",
		"envoy.config.route.v3.RetryPolicy.RetryHostPredicate.typed_config":    "read",
	}
}
