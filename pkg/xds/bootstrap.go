package xds

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network/credential"
	streams "github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/xds/ads"
)

// bootstrap is what a process is told of its control plane.
type bootstrap struct {
	node    *corev3.Node
	form    ads.Form
	control string                     // name of the cluster that the control plane is
	targets map[string]target          // by name of a static cluster
	dynamic dynamic                    // what comes by the stream
	asked   map[string]bool            // clusters whose targets are complete
	ignored Problems                   // fields that have no effect
	said    map[string]json.RawMessage // dynamic_resources
	load    string                     // name of the cluster that is told of load; "": nobody is
	layers  []layer                    // of the runtime

	fixtures *fixtures // that the file has; nil once a Source has taken them
}

// dynamic says which types are subscribed to from the start.
type dynamic struct {
	clusters, listeners bool
	// clustersLimit is how long the first CDS response is waited for; 0: until it comes.
	clustersLimit time.Duration
}

// target is where a control plane is.
type target struct {
	address  string // host:port, or the path of a unix socket
	others   int    // how many addresses there are beside, which nobody asks
	unix     bool
	tls      *config.TLS // nil: plaintext
	called   string      // what it is asked by; "": its name in TLS, or its address
	metadata metadata.MD // that calls carry
	network  network
}

// network is how targets are reached; tests have another than the machine's, which is
// the zero value.
type network struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	most int // how large a response may be, in bytes; 0: mostMessage
}

// readBootstrap reads the parts of Envoy's bootstrap that are given, in its JSON form. An error
// is Problems: all that is wrong in any part. What could be read is returned with it.
func readBootstrap(b config.Bootstrap) (*bootstrap, error) {
	out := &bootstrap{node: &corev3.Node{}, asked: map[string]bool{}}
	var wrong Problems
	note := func(err error) {
		if err != nil {
			wrong = append(wrong, problemsOf("", err)...)
		}
	}
	note(read("node", b.Node, out.node))
	if out.node.GetUserAgentName() == "" {
		out.node.UserAgentName = "weft"
	}
	var err error
	out.fixtures, err = readFixtures(b.Static)
	note(err)
	out.targets = out.fixtures.targets()
	note(out.readDynamic(b.Dynamic))
	note(out.readLoadStats(b.LoadStats))
	note(out.readRuntime(b.Runtime))
	return out, wrong.orNil()
}

func (b *bootstrap) readDynamic(data []byte) error {
	all, err := members("dynamic_resources", data, "ads_config", "cds_config", "lds_config")
	if all == nil {
		return err
	}
	b.said = all
	var wrong Problems
	if err != nil {
		wrong = problemsOf("", err)
	}
	if text := all["cds_config"]; len(text) > 0 {
		b.dynamic.clusters = true
		if b.dynamic.clustersLimit, err = b.readFetched("dynamic_resources.cds_config", text); err != nil {
			wrong = append(wrong, problemsOf("", err)...)
		}
	}
	if text := all["lds_config"]; len(text) > 0 {
		b.dynamic.listeners = true
		if _, err := b.readADS("dynamic_resources.lds_config", text); err != nil {
			wrong = append(wrong, problemsOf("", err)...)
		}
	}
	const field = "dynamic_resources.ads_config"
	if len(all["ads_config"]) == 0 {
		if wrong == nil {
			wrong = Problems{{"dynamic_resources", "ads_config is missing"}}
		}
		return wrong
	}
	api := &corev3.ApiConfigSource{}
	if err := read(field, all["ads_config"], api); err != nil {
		return append(wrong, problemsOf("", err)...)
	}
	switch api.GetApiType() {
	case corev3.ApiConfigSource_GRPC, corev3.ApiConfigSource_AGGREGATED_GRPC:
		b.form = ads.StateOfTheWorld
	case corev3.ApiConfigSource_DELTA_GRPC, corev3.ApiConfigSource_AGGREGATED_DELTA_GRPC:
		b.form = ads.Delta
	default:
		return append(wrong, otherForm(field, api, "GRPC or DELTA_GRPC"))
	}
	if b.control, err = b.readService(field, api); err != nil {
		wrong = append(wrong, problemsOf("", err)...)
	}
	return wrong.orNil()
}

// otherForm refuses the api_type of a source.
func otherForm(field string, api *corev3.ApiConfigSource, expected string) Problem {
	field += ".api_type"
	if api.GetApiType() == 0 {
		return Problem{field, "is missing, expected " + expected}
	}
	return Problem{field, fmt.Sprintf("%v is not supported, expected %s", api.GetApiType(), expected)}
}

// readLoadStats reads who is told of load.
func (b *bootstrap) readLoadStats(data []byte) (err error) {
	if len(data) == 0 {
		return nil
	}
	const field = "cluster_manager.load_stats_config"
	api := &corev3.ApiConfigSource{}
	if err := read(field, data, api); err != nil {
		return err
	}
	if api.GetApiType() != corev3.ApiConfigSource_GRPC {
		return Problems{otherForm(field, api, "GRPC")}
	}
	b.load, err = b.readService(field, api)
	return err
}

// mostMessage is how large a response may be, in bytes.
const mostMessage = 256 << 20

// secure returns what connections are secured with, nil for plaintext. Its files are
// watched by store until forget is called.
func (t target) secure(store *credential.Reloader) (secured *credential.Client, forget func(), err error) {
	if t.tls == nil {
		return nil, func() {}, nil
	}
	c, err := streams.NewTLSContext(t.tls, []string{"h2"})
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
		grpc.WithStreamInterceptor(t.open),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(t.network.most, mostMessage))),
	)
}

// open opens a stream as grpc.StreamClientInterceptor does.
func (t target) open(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	if t.metadata != nil {
		ctx = metadata.NewOutgoingContext(ctx, t.metadata)
	}
	return open(ctx, d, conn, method, o...)
}

// authority is the name that a control plane is asked by.
func (t target) authority() string {
	switch {
	case t.called != "":
		return t.called
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
