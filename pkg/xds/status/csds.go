package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/internal/unixsocket"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// envoy.service.status.v3.ClientStatusDiscoveryService returns the resources that Dump returns with
// DumpOptions.Endpoints, and also runtime layers and the subscribed resources that have not
// arrived. Secrets are redacted as in Dump.

// Limits for clients of the service.
const (
	maxRequestSize        = 1 << 20 // bytes
	maxConcurrentRequests = 16      // per connection
	handshakeTimeout      = 5 * time.Second
)

// csds implements statusv3.ClientStatusDiscoveryServiceServer.
type csds struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer

	node     *corev3.Node
	snapshot func() *Snapshot
}

// Listen binds address: ip:port, or the path of a unix socket that only its owner may use.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if unixaddr.Is(address) {
		return unixsocket.ListenOwnerOnly(ctx, address)
	}
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", address)
}

// Serve serves CSDS on ln. When ctx ends, it stops the server and returns nil after all goroutines
// of the server have ended. If accepting connections fails, it returns the error. node identifies
// this xDS client. snapshot returns the current state; it must be safe for concurrent use.
func Serve(ctx context.Context, ln net.Listener, node *corev3.Node, snapshot func() *Snapshot) error {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequestSize), grpc.MaxConcurrentStreams(maxConcurrentRequests),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.WaitForHandlers(true),
	)
	statusv3.RegisterClientStatusDiscoveryServiceServer(server, &csds{node: node, snapshot: snapshot})
	reflection.Register(server)
	serveErr := make(chan error, 1)
	go func() { serveErr <- server.Serve(ln) }()
	select {
	case err := <-serveErr:
		return fmt.Errorf("xds_status: %w", err)
	case <-ctx.Done():
	}
	server.Stop()
	<-serveErr // Serve has returned
	return nil
}

// FetchClientStatus implements statusv3.ClientStatusDiscoveryServiceServer. It returns the current
// status, or an empty response if the node matchers of r do not match. An error means that a
// matcher is not valid or not supported.
func (c *csds) FetchClientStatus(_ context.Context, r *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	ok, err := matchesAnyNode(r.GetNodeMatchers(), c.node)
	if err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	if !ok {
		return &statusv3.ClientStatusResponse{}, nil
	}
	return &statusv3.ClientStatusResponse{Config: []*statusv3.ClientConfig{c.snapshot().ClientConfig(!r.GetExcludeResourceContents())}}, nil
}

// StreamClientStatus implements statusv3.ClientStatusDiscoveryServiceServer. It responds to each
// request like FetchClientStatus.
func (c *csds) StreamClientStatus(stream statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resp, err := c.FetchClientStatus(stream.Context(), r)
		if err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// ClientConfig returns the static resources, the received resources of wildcard types, and the
// resources that are subscribed by name. It includes their contents if contents is true. Secrets
// are redacted.
func (s *Snapshot) ClientConfig(contents bool) *statusv3.ClientConfig {
	node, _ := proto.Clone(s.boot.Node).(*corev3.Node)
	redact(node.ProtoReflect())
	out := &statusv3.ClientConfig{Node: node}
	for _, url := range []string{resource.ClusterType, resource.ListenerType, resource.SecretType} {
		for _, static := range s.static.OfType(url) {
			r := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: url, Name: static.Name, IsStaticResource: true}
			if contents {
				r.XdsConfig = &anypb.Any{TypeUrl: url, Value: static.Body}
				redact(r.XdsConfig.ProtoReflect())
			}
			out.GenericXdsConfigs = append(out.GenericXdsConfigs, r)
		}
	}
	for _, url := range []string{resource.RuntimeType, resource.ClusterType, resource.ListenerType, resource.EndpointType, resource.RouteType, resource.DubboRouteType, resource.ExtensionType, resource.SecretType} {
		for _, r := range s.subscribed(url) {
			out.GenericXdsConfigs = append(out.GenericXdsConfigs, r.genericConfig(url, contents))
		}
	}
	return out
}

// genericConfig returns a resource and its status.
func (r channelResource) genericConfig(url string, contents bool) *statusv3.ClientConfig_GenericXdsConfig {
	history := r.history[r.name]
	out := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: url, Name: r.name, VersionInfo: history.version}
	_, accepted := r.accepted[r.name]
	switch {
	case history.rejectReason != "":
		out.ClientStatus = adminv3.ClientResourceStatus_NACKED
		out.ErrorState = &adminv3.UpdateFailureState{Details: history.rejectReason, LastUpdateAttempt: timestamppb.New(history.rejectedAt)}
	case accepted:
		out.ClientStatus = adminv3.ClientResourceStatus_ACKED
	case r.doesNotExist[r.name]:
		out.ClientStatus = adminv3.ClientResourceStatus_DOES_NOT_EXIST
	default:
		out.ClientStatus = adminv3.ClientResourceStatus_REQUESTED
	}
	if !history.updated.IsZero() {
		out.LastUpdated = timestamppb.New(history.updated)
	}
	if body, inUse := r.body(r.name); inUse && contents {
		out.XdsConfig = &anypb.Any{TypeUrl: url, Value: body}
		redact(out.XdsConfig.ProtoReflect())
	}
	return out
}
