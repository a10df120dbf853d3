package xds

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	streams "github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// bootstrap is what a process is told of its control plane.
type bootstrap struct {
	node    *corev3.Node
	form    ads.Form
	control string            // name of the cluster that the control plane is
	targets map[string]target // by name of a static cluster
	dynamic dynamic           // what comes by the stream

	clusters []*config.Cluster // static ones, for traffic
}

// dynamic says which types are subscribed to from the start.
type dynamic struct{ clusters, listeners bool }

// target is where a control plane is.
type target struct {
	address string // host:port, or the path of a unix socket
	unix    bool
	tls     *config.TLS // nil: plaintext
	network network
}

// network is how targets are reached; tests have another than the machine's, which is
// the zero value.
type network struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	most int // how large a response may be, in bytes; 0: mostMessage
}

// readBootstrap reads the parts of Envoy's bootstrap that are given, in its JSON form.
// An error names the field.
func readBootstrap(b config.Bootstrap) (*bootstrap, error) {
	out := &bootstrap{node: &corev3.Node{}, targets: map[string]target{}}
	if err := read("node", b.Node, out.node); err != nil {
		return nil, err
	}
	if out.node.GetUserAgentName() == "" {
		out.node.UserAgentName = "weft"
	}
	if err := out.readStatic(b.Static); err != nil {
		return nil, err
	}
	if err := out.readDynamic(b.Dynamic); err != nil {
		return nil, err
	}
	return out, nil
}

// read reads JSON into a message; what it does not know is an error. Nothing is no JSON.
func read(field string, data []byte, m proto.Message) error {
	if len(data) == 0 {
		return nil
	}
	if err := protojson.Unmarshal(data, m); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// members splits a JSON object.
func members(field string, data []byte, known ...string) (map[string]json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	for name := range all {
		found := false
		for _, k := range known {
			found = found || k == name
		}
		if !found {
			return nil, fmt.Errorf("%s.%s is not supported, expected one of %s", field, name, strings.Join(known, ", "))
		}
	}
	return all, nil
}

func (b *bootstrap) readStatic(data []byte) error {
	all, err := members("static_resources", data, "clusters", "listeners", "secrets")
	if err != nil {
		return err
	}
	for _, name := range []string{"listeners", "secrets"} {
		if len(all[name]) > 0 {
			return fmt.Errorf("static_resources.%s is not supported: listeners of a file stand in servers", name)
		}
	}
	var clusters []json.RawMessage
	if len(all["clusters"]) > 0 {
		if err := json.Unmarshal(all["clusters"], &clusters); err != nil {
			return fmt.Errorf("static_resources.clusters: %w", err)
		}
	}
	for i, one := range clusters {
		field := fmt.Sprintf("static_resources.clusters[%d]", i)
		m := &clusterv3.Cluster{}
		if err := read(field, one, m); err != nil {
			return err
		}
		body, err := proto.Marshal(m)
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		c, err := resource.ReadCluster(body)
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		made, ok := c.With(nil, nil)
		if !ok || c.Endpoints != "" {
			return fmt.Errorf("%s: refers to resources of a control plane", field)
		}
		if _, twice := b.targets[made.Name]; twice {
			return fmt.Errorf("%s: a second cluster %q", field, made.Name)
		}
		b.clusters = append(b.clusters, made)
		if len(made.Hosts) > 0 {
			h := made.Hosts[0]
			b.targets[made.Name] = target{address: h.Address, unix: strings.HasPrefix(h.Address, "/") || strings.HasPrefix(h.Address, "@"), tls: made.TLS}
		}
	}
	return nil
}

func (b *bootstrap) readDynamic(data []byte) error {
	all, err := members("dynamic_resources", data, "ads_config", "cds_config", "lds_config")
	if err != nil || all == nil {
		return err
	}
	if len(all["ads_config"]) == 0 {
		return errors.New("dynamic_resources.ads_config is missing")
	}
	api := &corev3.ApiConfigSource{}
	if err := read("dynamic_resources.ads_config", all["ads_config"], api); err != nil {
		return err
	}
	switch api.GetApiType() {
	case corev3.ApiConfigSource_GRPC, corev3.ApiConfigSource_AGGREGATED_GRPC:
		b.form = ads.StateOfTheWorld
	case corev3.ApiConfigSource_DELTA_GRPC, corev3.ApiConfigSource_AGGREGATED_DELTA_GRPC:
		b.form = ads.Delta
	default:
		return fmt.Errorf("dynamic_resources.ads_config.api_type: %v is not supported, expected GRPC or DELTA_GRPC", api.GetApiType())
	}
	if len(api.GetGrpcServices()) != 1 {
		return fmt.Errorf("dynamic_resources.ads_config.grpc_services: there are %d, expected one", len(api.GetGrpcServices()))
	}
	b.control = api.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName()
	if _, ok := b.targets[b.control]; !ok {
		return fmt.Errorf("dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name: %q is no cluster of static_resources with an address", b.control)
	}
	for name, wanted := range map[string]*bool{"cds_config": &b.dynamic.clusters, "lds_config": &b.dynamic.listeners} {
		if len(all[name]) == 0 {
			continue
		}
		s := &corev3.ConfigSource{}
		if err := read("dynamic_resources."+name, all[name], s); err != nil {
			return err
		}
		if s.GetAds() == nil {
			return fmt.Errorf("dynamic_resources.%s: expected ads", name)
		}
		*wanted = true
	}
	return nil
}

// mostMessage is how large a response may be, in bytes.
const mostMessage = 256 << 20

// secure returns what connections are secured with, nil for plaintext. Its files are
// watched by store until forget is called.
func (t target) secure(store *credential.Store) (secured *credential.Client, forget func(), err error) {
	if t.tls == nil {
		return nil, func() {}, nil
	}
	c, err := streams.Credentials(t.tls, []string{"h2"})
	if err != nil {
		return nil, nil, err
	}
	if secured, err = store.Client(c); err != nil {
		return nil, nil, err
	}
	return secured, secured.Close, nil
}

// dial returns a connection, which is made when it is first used. The caller closes it.
func (t target) dial(secured *credential.Client) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+t.address,
		// TLS is made by the dialer: grpc has no say in it.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return t.connect(ctx, address, secured)
		}),
		grpc.WithAuthority(t.authority()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(t.network.most, mostMessage))),
	)
}

// authority is the name that a control plane is asked by.
func (t target) authority() string {
	switch {
	case t.tls != nil && t.tls.ServerName != "":
		return t.tls.ServerName
	case t.unix:
		return "localhost"
	}
	return t.address
}

func (t target) connect(ctx context.Context, address string, secured *credential.Client) (net.Conn, error) {
	dial := t.network.dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext // with its keep-alive
	}
	family := "tcp"
	if t.unix {
		family = "unix"
	}
	conn, err := dial(ctx, family, address)
	if err != nil || secured == nil {
		return conn, err
	}
	host, _, _ := net.SplitHostPort(address)
	c := tls.Client(conn, secured.Config(host, address, []string{"h2"}))
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}
