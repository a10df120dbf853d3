// Package ads is a control plane for the comparison: it serves resources to several nodes over ADS,
// and records which types of resources a node rejects.
package ads

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"                     // a message type in resources
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3" // a message type in resources
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Resources are the resources of a node, each in JSON.
type Resources struct {
	Clusters, Endpoints, Listeners, Routes [][]byte
}

// Plane is a control plane. Its methods are safe for concurrent use.
type Plane struct {
	snapshots cache.SnapshotCache
	server    *grpc.Server
	port      int
	serving   sync.WaitGroup

	mu       sync.Mutex
	nodes    map[int64]string               // by stream; guarded by mu
	rejected map[string]map[string][]string // messages by node and type, since the last Serve; guarded by mu
	last     map[string]time.Time           // time of the last request by node; guarded by mu
	version  int                            // guarded by mu
}

// Listen starts a control plane on a port of 127.0.0.1. The caller closes it.
func Listen(port int) (*Plane, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	p := &Plane{
		snapshots: cache.NewSnapshotCache(false, cache.IDHash{}, nil), server: grpc.NewServer(), port: port,
		nodes: map[int64]string{}, rejected: map[string]map[string][]string{}, last: map[string]time.Time{},
	}
	callbacks := server.CallbackFuncs{
		StreamRequestFunc: func(stream int64, r *discoveryv3.DiscoveryRequest) error {
			p.note(stream, r.GetNode(), r.GetTypeUrl(), r.GetErrorDetail().GetCode(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(stream int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			p.note(stream, r.GetNode(), r.GetTypeUrl(), r.GetErrorDetail().GetCode(), r.GetErrorDetail().GetMessage())
			return nil
		},
	}
	// The streams of state-of-the-world and of delta have numbers of their own, but a node uses only
	// one kind, and a plane serves nodes of one kind.
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(p.server, server.NewServer(context.Background(), p.snapshots, callbacks))
	p.serving.Go(func() { _ = p.server.Serve(l) }) // returns when Close stops the server
	return p, nil
}

// Port returns the port of the plane.
func (p *Plane) Port() int { return p.port }

// Close stops the plane.
func (p *Plane) Close() {
	p.server.Stop()
	p.serving.Wait()
}

// note records a request of a node.
func (p *Plane) note(stream int64, node *corev3.Node, typeURL string, code int32, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node.GetId() != "" {
		p.nodes[stream] = node.GetId()
	}
	id := p.nodes[stream]
	p.last[id] = time.Now()
	if codes.Code(code) == codes.OK && message == "" { //nolint:gosec // codes of gRPC are small
		return
	}
	if p.rejected[id] == nil {
		p.rejected[id] = map[string][]string{}
	}
	name := typeURL[strings.LastIndexByte(typeURL, '.')+1:]
	p.rejected[id][name] = append(p.rejected[id][name], message)
}

// Serve replaces the resources of a node.
func (p *Plane) Serve(ctx context.Context, node string, r Resources) error {
	all := map[resource.Type][]types.Resource{}
	err := errors.Join(
		add(all, resource.ClusterType, r.Clusters, func() proto.Message { return &clusterv3.Cluster{} }),
		add(all, resource.EndpointType, r.Endpoints, func() proto.Message { return &endpointv3.ClusterLoadAssignment{} }),
		add(all, resource.ListenerType, r.Listeners, func() proto.Message { return &listenerv3.Listener{} }),
		add(all, resource.RouteType, r.Routes, func() proto.Message { return &routev3.RouteConfiguration{} }),
	)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.version++
	version := fmt.Sprint(p.version)
	delete(p.rejected, node)
	delete(p.last, node)
	p.mu.Unlock()
	snapshot, err := cache.NewSnapshot(version, all)
	if err != nil {
		return err
	}
	return p.snapshots.SetSnapshot(ctx, node, snapshot)
}

func add(all map[resource.Type][]types.Resource, typeURL resource.Type, list [][]byte, newMessage func() proto.Message) error {
	for i, text := range list {
		m := newMessage()
		if err := protojson.Unmarshal(text, m); err != nil {
			return fmt.Errorf("%s %d: %w", typeURL, i, err)
		}
		all[typeURL] = append(all[typeURL], m)
	}
	return nil
}

// Rejected returns the types of resources that a node has rejected since the last Serve, and the
// messages.
func (p *Plane) Rejected(node string) (types, messages []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, texts := range p.rejected[node] {
		types = append(types, name)
		messages = append(messages, texts...)
	}
	slices.Sort(types)
	return types, messages
}

// Quiet returns for how long a node has sent nothing since the last Serve. It returns 0 if the node
// has not sent anything.
func (p *Plane) Quiet(node string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[node].IsZero() {
		return 0
	}
	return time.Since(p.last[node])
}
