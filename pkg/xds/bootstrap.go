package xds

import (
	"encoding/json"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/metadata"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
)

// bootstrap is the parsed bootstrap: the node, the control plane and the static resources.
type bootstrap struct {
	node          *corev3.Node
	mode          ads.Mode
	adsCluster    string                     // name of the cluster of the control plane
	targets       map[string]target          // by name of a static cluster
	subscriptions initialSubscriptions       // types to subscribe to at the start
	services      map[string]bool            // names of the clusters whose targets are complete
	ignored       FieldErrors                // fields that have no effect
	dynamicJSON   map[string]json.RawMessage // dynamic_resources
	lrsCluster    string                     // name of the cluster that receives load reports; "": none
	layers        []runtimeLayer             // of the runtime

	staticResources *staticResources // nil once a Source has taken them
}

// initialSubscriptions says which types are subscribed to from the start.
type initialSubscriptions struct {
	cds, lds bool
	// cdsTimeout is how long the warm-up waits for the first CDS response; 0: no limit.
	cdsTimeout time.Duration
}

// target is the address of a control plane and how to connect to it.
type target struct {
	address           string // host:port, or the path of a unix socket
	unusedAddresses   int    // number of further addresses, which are not used
	isUnix            bool
	tls               *config.TLS // nil: plaintext
	authorityOverride string      // :authority of calls; "": the TLS server name or the address
	metadata          metadata.MD // added to each call
	network           network
}

// readBootstrap parses the parts of Envoy's bootstrap, in JSON. An error is of type FieldErrors and
// lists everything that is wrong in any part. The result contains the valid parts also then.
func readBootstrap(b config.Bootstrap) (*bootstrap, error) {
	out := &bootstrap{node: &corev3.Node{}, services: map[string]bool{}}
	var wrong FieldErrors
	note := func(err error) {
		if err != nil {
			wrong = append(wrong, fieldErrorsOf("", err)...)
		}
	}
	note(decodeField("node", b.Node, out.node))
	if out.node.GetUserAgentName() == "" {
		out.node.UserAgentName = "weft"
	}
	var err error
	out.staticResources, err = readStaticResources(b.StaticResources)
	note(err)
	out.targets = out.staticResources.targets()
	note(out.readDynamic(b.DynamicResources))
	note(out.readLoadStats(b.LoadStats))
	note(out.readRuntime(b.LayeredRuntime))
	return out, wrong.asError()
}

func (b *bootstrap) readDynamic(data []byte) error {
	all, err := splitObject("dynamic_resources", data, "ads_config", "cds_config", "lds_config")
	if all == nil {
		return err
	}
	b.dynamicJSON = all
	var wrong FieldErrors
	if err != nil {
		wrong = fieldErrorsOf("", err)
	}
	if text := all["cds_config"]; len(text) > 0 {
		b.subscriptions.cds = true
		if b.subscriptions.cdsTimeout, err = b.readInitialFetchTimeout("dynamic_resources.cds_config", text); err != nil {
			wrong = append(wrong, fieldErrorsOf("", err)...)
		}
	}
	if text := all["lds_config"]; len(text) > 0 {
		b.subscriptions.lds = true
		if _, err := b.readADS("dynamic_resources.lds_config", text); err != nil {
			wrong = append(wrong, fieldErrorsOf("", err)...)
		}
	}
	const field = "dynamic_resources.ads_config"
	if len(all["ads_config"]) == 0 {
		if wrong == nil {
			wrong = FieldErrors{{"dynamic_resources", "ads_config is missing"}}
		}
		return wrong
	}
	api := &corev3.ApiConfigSource{}
	if err := decodeField(field, all["ads_config"], api); err != nil {
		return append(wrong, fieldErrorsOf("", err)...)
	}
	switch api.GetApiType() {
	case corev3.ApiConfigSource_GRPC, corev3.ApiConfigSource_AGGREGATED_GRPC:
		b.mode = ads.StateOfTheWorld
	case corev3.ApiConfigSource_DELTA_GRPC, corev3.ApiConfigSource_AGGREGATED_DELTA_GRPC:
		b.mode = ads.Delta
	default:
		return append(wrong, unsupportedAPIType(field, api, "GRPC or DELTA_GRPC"))
	}
	if b.adsCluster, err = b.readGRPCService(field, api); err != nil {
		wrong = append(wrong, fieldErrorsOf("", err)...)
	}
	return wrong.asError()
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
func (b *bootstrap) readLoadStats(data []byte) (err error) {
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
	b.lrsCluster, err = b.readGRPCService(field, api)
	return err
}
