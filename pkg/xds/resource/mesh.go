package resource

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// Node identifies the process in an Istio mesh, as the bootstrap describes the process. Weft does
// not propagate a zero Node to peers.
type Node struct {
	ID       string
	Cluster  string            // name of the service to which the process belongs
	Workload workload.Workload // the workload that this sidecar serves
}

// NodeOf returns the Node of a bootstrap node whose metadata Istio has injected.
func NodeOf(m *corev3.Node) Node {
	text := func(s *structpb.Struct, key string) string { return s.GetFields()[key].GetStringValue() }
	metadata := m.GetMetadata()
	labels := metadata.GetFields()["LABELS"].GetStructValue()
	return Node{ID: m.GetId(), Cluster: m.GetCluster(), Workload: workload.Workload{
		Instance: text(metadata, "NAME"), Name: text(metadata, "WORKLOAD_NAME"), Namespace: text(metadata, "NAMESPACE"),
		Cluster: text(metadata, "CLUSTER_ID"), Owner: text(metadata, "OWNER"),
		Service:  text(labels, "service.istio.io/canonical-name"),
		Revision: text(labels, "service.istio.io/canonical-revision"),
		App:      text(labels, "app"), Version: text(labels, "version"),
	}}
}

// settings returns n in the format that the settings of mesh filters use.
func (n *Node) settings() map[string]any {
	w := &n.Workload
	return map[string]any{
		"instance": w.Instance, "name": w.Name, "namespace": w.Namespace, "cluster": w.Cluster, "owner": w.Owner,
		"canonical_name": w.Service, "canonical_revision": w.Revision, "app": w.App, "version": w.Version,
	}
}

// These are the types of Istio's filter settings and the names of the matching Weft filters.
const (
	peerMetadataType   = "io.istio.http.peer_metadata.Config"
	statsType          = "stats.PluginConfig"
	peerMetadataFilter = "peer_metadata"
	statsFilter        = "istio_stats"
)

// readIstioFilter adds the Weft filter that implements f, if f is an Istio HTTP filter that Weft
// supports, and reports whether it handled f. It returns false for a disabled filter, and for a
// peer metadata filter without effect. It ignores a second filter of the same type.
func (p fieldReader) readIstioFilter(f *hcmv3.HttpFilter, out *config.Proxy, l *Listener) bool {
	if f.GetDisabled() {
		return false
	}
	typeName, input, err := unpackStruct(f.GetTypedConfig())
	var name string
	var settings map[string]any
	settingsReader := p.field("typed_config")
	switch {
	case err != nil:
		return false
	case typeName == peerMetadataType:
		name, settings = peerMetadataFilter, p.report.capabilities.Node.metadataExchangeSettings(input)
	case typeName == statsType:
		name, settings = statsFilter, settingsReader.readRequestStats(input, l.Config.Ingress)
	}
	factory := p.report.capabilities.streamFilterFactory(name)
	if factory == nil || settings == nil {
		return false
	}
	if slices.ContainsFunc(out.StreamFilters, func(f config.Filter) bool { return f.Name == name }) {
		p.key(f.GetName()).ignore() // the first filter of the type applies
		return true
	}
	if decoded := settingsReader.decodeSettings(factory.Config(), goValue(settings)); decoded != nil {
		out.StreamFilters = append(out.StreamFilters, config.Filter{Name: name, Config: decoded})
	}
	return true
}

// readIstioNetworkFilter is readIstioFilter for a network filter of a tcp_proxy chain.
func (p fieldReader) readIstioNetworkFilter(f *listenerv3.Filter, out *config.FilterChain, l *Listener) bool {
	typeName, input, err := unpackStruct(f.GetTypedConfig())
	factory := p.report.capabilities.connectionFilterFactory(statsFilter)
	if err != nil || typeName != statsType || factory == nil {
		return false
	}
	if slices.ContainsFunc(out.ConnectionFilters, func(f config.Filter) bool { return f.Name == statsFilter }) {
		p.key(f.GetName()).ignore() // the first filter of the type applies
		return true
	}
	at := p.field("typed_config")
	if decoded := at.decodeSettings(factory.Config(), goValue(at.readConnectionStats(input, l.Config.Ingress))); decoded != nil {
		out.ConnectionFilters = append(out.ConnectionFilters, config.Filter{Name: statsFilter, Config: decoded})
	}
	return true
}

// unpackStruct decodes settings that are a TypedStruct or a stats.PluginConfig. typeName is the
// type of the settings, without the URL prefix.
func unpackStruct(packed *anypb.Any) (typeName string, settings map[string]any, err error) {
	_, typeName, _ = strings.Cut(packed.GetTypeUrl(), "/")
	switch typeName {
	case "udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct": // type_url = 1, value = 2
		value := &structpb.Struct{}
		err = eachField(packed.GetValue(), func(number protowire.Number, content []byte, _ uint64) error {
			if number == 1 {
				_, typeName, _ = strings.Cut(string(content), "/")
				return nil
			}
			return proto.Unmarshal(content, value)
		})
		return typeName, value.AsMap(), err
	case statsType:
		settings, err = decodeStats(packed.GetValue())
	}
	return typeName, settings, err
}

// eachField calls f for each field of a message: with content for a length-delimited field, with n
// for a varint.
func eachField(b []byte, f func(number protowire.Number, content []byte, n uint64) error) error {
	for len(b) > 0 {
		number, wireType, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var content []byte
		var value uint64
		switch size = protowire.ConsumeFieldValue(number, wireType, b); {
		case size < 0:
			return protowire.ParseError(size)
		case wireType == protowire.BytesType:
			content, _ = protowire.ConsumeBytes(b)
		case wireType == protowire.VarintType:
			value, _ = protowire.ConsumeVarint(b)
		}
		if err := f(number, content, value); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// decodeStats decodes a stats.PluginConfig. It reads the fields disable_host_header_fallback = 6,
// tcp_reporting_duration = 7, metrics = 8, definitions = 9 and reporter = 10. Of a metric, it reads
// dimensions = 1, name = 2, tags_to_remove = 3 and drop = 5. It skips all other fields.
func decodeStats(b []byte) (map[string]any, error) {
	out, metrics := map[string]any{}, []any{}
	err := eachField(b, func(number protowire.Number, content []byte, n uint64) error {
		switch int(number) {
		case 6:
			out["disable_host_header_fallback"] = n != 0
		case 7:
			interval := &durationpb.Duration{}
			if err := proto.Unmarshal(content, interval); err != nil {
				return err
			}
			out[reportingKey] = interval.AsDuration().String()
		case 8:
			metric, remove := map[string]any{}, []any{}
			err := eachField(content, func(number protowire.Number, content []byte, n uint64) error {
				switch int(number) {
				case 1:
					metric["dimensions"] = map[string]any{}
				case 2:
					metric["name"] = string(content)
				case 3:
					remove = append(remove, string(content))
				case 5:
					metric["drop"] = n != 0
				}
				return nil
			})
			metric["tags_to_remove"] = remove
			metrics = append(metrics, metric)
			return err
		case 9:
			out["definitions"] = []any{}
		case 10:
			out["reporter"] = n
		}
		return nil
	})
	out["metrics"] = metrics
	return out, err
}

// metadataExchangeSettings returns the settings of the peer metadata filter, or nil if it would
// neither discover nor propagate metadata.
func (n *Node) metadataExchangeSettings(input map[string]any) map[string]any {
	out, enabled := map[string]any{"node": n.ID, "workload": n.settings()}, false
	for _, key := range []string{"downstream_discovery", "upstream_discovery", "downstream_propagation", "upstream_propagation"} {
		methods, _ := input[key].([]any)
		for _, m := range methods {
			method, _ := m.(map[string]any)
			fields, ok := method["istio_headers"].(map[string]any)
			if !ok || strings.HasSuffix(key, "propagation") && *n == (Node{}) {
				continue // an unsupported method, or no metadata to propagate
			}
			out[key], enabled = true, true
			if fields["skip_external_clusters"] == true {
				out["skip_external_clusters"] = true
			}
		}
	}
	if !enabled {
		return nil
	}
	return out
}

// reportingKey is the key of the interval between byte counts of an open connection.
const reportingKey = "tcp_reporting_duration"

// readRequestStats returns the settings of Istio's request metrics.
func (p fieldReader) readRequestStats(input map[string]any, inbound bool) map[string]any {
	out := p.readStats(input, inbound, "requests_total", "request_duration_milliseconds", "request_bytes", "response_bytes")
	if input["disable_host_header_fallback"] == true {
		out["disable_host_header_fallback"] = true
	}
	return out
}

// readConnectionStats returns the settings of Istio's connection metrics.
func (p fieldReader) readConnectionStats(input map[string]any, inbound bool) map[string]any {
	out := p.readStats(input, inbound, "tcp_connections_opened_total", "tcp_connections_closed_total", "tcp_sent_bytes_total", "tcp_received_bytes_total")
	if interval, ok := input[reportingKey]; ok {
		out[reportingKey] = interval
	}
	return out
}

// readStats returns the settings that request metrics and connection metrics share. metrics lists
// the names of the supported metrics.
func (p fieldReader) readStats(input map[string]any, inbound bool, metrics ...string) map[string]any {
	out := map[string]any{"reporter": "source", "workload": p.report.capabilities.Node.settings()}
	if inbound {
		out["reporter"] = "destination"
	}
	for _, key := range []string{"definitions", "reporter"} {
		if input[key] != nil {
			p.field(key).ignore()
		}
	}
	list, _ := input["metrics"].([]any)
	overrides := []any{}
	for i, item := range list {
		m, _ := item.(map[string]any)
		if m["dimensions"] != nil {
			p.field("metrics").index(i).field("dimensions").ignore()
		}
		name, _ := m["name"].(string)
		if name != "" && !slices.Contains(metrics, name) {
			continue // not a metric of this filter
		}
		remove, _ := m["tags_to_remove"].([]any)
		overrides = append(overrides, map[string]any{"name": name, "drop": m["drop"] == true, "tags_to_remove": append([]any{}, remove...)})
	}
	out["metrics"] = overrides
	return out
}

// istioNamespace is the metadata namespace in which Istio describes clusters and endpoints.
const istioNamespace = "istio"

// meshOf returns the mesh settings in the metadata of a cluster.
func meshOf(m *corev3.Metadata) (out config.Mesh) {
	fields := m.GetFilterMetadata()[istioNamespace].GetFields()
	out.External, out.NoPeerMetadata = fields["external"].GetBoolValue(), fields["disable_mx"].GetBoolValue()
	services := fields["services"].GetListValue().GetValues()
	if len(services) == 0 {
		return out
	}
	first := services[0].GetStructValue().GetFields()
	out.Host = first["host"].GetStringValue()
	short, _, _ := strings.Cut(out.Host, ".")
	out.Name = cmp.Or(first["name"].GetStringValue(), short)
	return out
}

// workloadText returns the workload in the metadata of an endpoint, in the format of
// workload.Parse, or "" if there is no valid one.
func workloadText(m *corev3.Metadata) string {
	text := m.GetFilterMetadata()[istioNamespace].GetFields()["workload"].GetStringValue()
	if _, ok := workload.Parse(text); !ok {
		return ""
	}
	return text
}
