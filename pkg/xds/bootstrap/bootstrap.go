// Package bootstrap reads and checks the parts of Envoy's bootstrap that Weft supports: the node,
// the control planes, the runtime layers and the static resources. It does no I/O.
package bootstrap

import (
	"encoding/json"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Bootstrap is a parsed bootstrap without its static resources. Immutable.
type Bootstrap struct {
	Node          *corev3.Node
	Mode          ads.Mode
	ADSCluster    string                     // name of the cluster of the control plane; "": none
	Targets       map[string]Target          // by the name of a static cluster
	Subscriptions InitialSubscriptions       // types to subscribe to at the start
	Sources       []TypeSource               // sources of these types other than ADS
	Ignored       FieldErrors                // fields that have no effect
	DynamicJSON   map[string]json.RawMessage // members of dynamic_resources
	ADSConfig     *corev3.ApiConfigSource    // ads_config of dynamic_resources; nil: none
	LRSCluster    string                     // name of the cluster that receives load reports; "": none
	Layers        []RuntimeLayer             // layers of the runtime; later layers override earlier ones

	// completeTargets has the names of the clusters for which readGRPCService has completed the
	// Target.
	completeTargets map[string]bool
}

// InitialSubscriptions selects the types to subscribe to at the start.
type InitialSubscriptions struct {
	CDS, LDS bool
	// CDSTimeout is how long the warm-up waits for the first CDS response; 0: no limit.
	CDSTimeout time.Duration
}

// Target is the address of a control plane and how to connect to it.
type Target struct {
	Address  string // host:port, or the address of a unix socket
	IsUnix   bool
	TLS      *config.TLS         // nil: plaintext
	Metadata map[string][]string // added to each call, by lower-case name
	// AuthorityOverride is the :authority of calls. "" means the TLS server name or, if there is
	// none, "localhost" for a unix socket and else the address.
	AuthorityOverride string

	unusedAddresses int // number of further addresses of the cluster, which Weft ignores
}

// Read parses the parts of Envoy's bootstrap. An error is of type FieldErrors and lists the errors
// of all parts. After an error in another part, Read also decodes the static listeners with caps,
// so that the FieldErrors include their errors.
func Read(b config.Bootstrap, caps resource.Capabilities) (*Bootstrap, *StaticResources, error) {
	out := &Bootstrap{Node: &corev3.Node{}, completeTargets: map[string]bool{}}
	var errs FieldErrors
	addError := func(err error) {
		if err != nil {
			errs = append(errs, fieldErrorsOf("", err)...)
		}
	}
	addError(decodeField("node", b.Node, out.Node))
	if out.Node.GetUserAgentName() == "" {
		out.Node.UserAgentName = "weft"
	}
	static, err := ReadStatic(b.StaticResources, caps)
	addError(err)
	out.Targets = static.Targets()
	addError(out.readDynamic(b.DynamicResources))
	addError(out.readLoadStats(b.LoadStats))
	addError(out.readRuntime(b.LayeredRuntime))
	if errs != nil {
		caps.Node, caps.Runtime = resource.NodeOf(out.Node), MergeLayers(out.Layers)
		return nil, nil, append(errs, static.listenerErrors(caps)...)
	}
	return out, static, nil
}

func (b *Bootstrap) readDynamic(data []byte) error {
	members, err := splitObject("dynamic_resources", data, "ads_config", "cds_config", "lds_config")
	if members == nil {
		return err
	}
	b.DynamicJSON = members
	var errs FieldErrors
	if err != nil {
		errs = fieldErrorsOf("", err)
	}
	needsADS := true
	if text := members["cds_config"]; len(text) > 0 {
		b.Subscriptions.CDS = true
		if needsADS, b.Subscriptions.CDSTimeout, err = b.readTypeSource("dynamic_resources.cds_config", text, resource.ClusterType); err != nil {
			errs = append(errs, fieldErrorsOf("", err)...)
		}
	}
	if text := members["lds_config"]; len(text) > 0 {
		var usesADS bool
		if usesADS, _, err = b.readTypeSource("dynamic_resources.lds_config", text, resource.ListenerType); err != nil {
			errs = append(errs, fieldErrorsOf("", err)...)
		}
		needsADS = usesADS || needsADS && b.Subscriptions.CDS
		b.Subscriptions.LDS = true
	}
	const field = "dynamic_resources.ads_config"
	if len(members["ads_config"]) == 0 {
		if errs == nil && needsADS {
			errs = FieldErrors{{"dynamic_resources", "ads_config is missing"}}
		}
		return errs.asError()
	}
	api := &corev3.ApiConfigSource{}
	if err := decodeField(field, members["ads_config"], api); err != nil {
		return append(errs, fieldErrorsOf("", err)...)
	}
	b.ADSConfig = api
	switch api.GetApiType() {
	case corev3.ApiConfigSource_GRPC, corev3.ApiConfigSource_AGGREGATED_GRPC:
		b.Mode = ads.StateOfTheWorld
	case corev3.ApiConfigSource_DELTA_GRPC, corev3.ApiConfigSource_AGGREGATED_DELTA_GRPC:
		b.Mode = ads.Delta
	default:
		return append(errs, unsupportedAPIType(field, api, "GRPC or DELTA_GRPC"))
	}
	if b.ADSCluster, err = b.readGRPCService(field, api); err != nil {
		errs = append(errs, fieldErrorsOf("", err)...)
	}
	return errs.asError()
}

// unsupportedAPIType rejects the api_type of a config source.
func unsupportedAPIType(field string, api *corev3.ApiConfigSource, expected string) FieldError {
	field += ".api_type"
	if api.GetApiType() == 0 {
		return FieldError{field, "is missing, expected " + expected}
	}
	return FieldError{field, fmt.Sprintf("%v is not supported, expected %s", api.GetApiType(), expected)}
}

// readLoadStats reads which cluster receives load reports.
func (b *Bootstrap) readLoadStats(data []byte) (err error) {
	if len(data) == 0 {
		return nil
	}
	const field = "cluster_manager.load_stats_config"
	api := &corev3.ApiConfigSource{}
	if err := decodeField(field, data, api); err != nil {
		return err
	}
	if api.GetApiType() != corev3.ApiConfigSource_GRPC {
		return FieldErrors{unsupportedAPIType(field, api, "GRPC")}
	}
	b.LRSCluster, err = b.readGRPCService(field, api)
	return err
}
