package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weft-proxy/weft/internal/unixsocket"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// The client status for tools that use envoy.service.status.v3.ClientStatusDiscoveryService. It
// has the contents of Dump, redacted in the same way, and the subscribed resources that have not
// arrived.

// Limits for clients of the service.
const (
	maxRequestSize        = 1 << 20 // bytes
	maxConcurrentRequests = 16      // per connection
	handshakeTimeout      = 5 * time.Second
)

// csds implements statusv3.ClientStatusDiscoveryServiceServer.
type csds struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer

	source *Source
}

// listenStatus binds address: ip:port, or the path of a unix socket that only its owner may use.
func listenStatus(ctx context.Context, address string) (net.Listener, error) {
	if _, err := netip.ParseAddrPort(address); err == nil {
		var c net.ListenConfig
		return c.Listen(ctx, "tcp", address)
	}
	return unixsocket.ListenOwnerOnly(ctx, address)
}

// startStatusServer serves CSDS until ctx ends, on a goroutine of group. The goroutine calls failed
// if the socket fails. An error means that the address cannot be bound.
func (s *Source) startStatusServer(ctx context.Context, group *sync.WaitGroup, failed func(error)) error {
	address := s.opts.Bootstrap.CSDSAddress
	if address == "" {
		return nil
	}
	ln, err := listenStatus(ctx, address)
	if err != nil {
		return fmt.Errorf("xds_status: %w", err)
	}
	group.Go(func() {
		if err := s.serveStatus(ctx, ln); err != nil {
			failed(err)
		}
	})
	return nil
}

// serveStatus serves CSDS on ln until ctx ends, and returns when all its goroutines have ended. It
// returns the error of the socket.
func (s *Source) serveStatus(ctx context.Context, ln net.Listener) error {
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequestSize), grpc.MaxConcurrentStreams(maxConcurrentRequests),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.WaitForHandlers(true),
	)
	statusv3.RegisterClientStatusDiscoveryServiceServer(g, &csds{source: s})
	reflection.Register(g)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("xds_status: %w", err)
	case <-ctx.Done():
	}
	g.Stop()
	<-ended // serve has returned
	return nil
}

// FetchClientStatus implements statusv3.ClientStatusDiscoveryServiceServer. It returns the current
// status, or an error if r is not valid.
func (c *csds) FetchClientStatus(_ context.Context, r *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	ok, err := matchesAnyNode(r.GetNodeMatchers(), c.source.boot.Node)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if !ok {
		return &statusv3.ClientStatusResponse{}, nil
	}
	return &statusv3.ClientStatusResponse{Config: []*statusv3.ClientConfig{c.source.clientConfig(!r.GetExcludeResourceContents())}}, nil
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
		a, err := c.FetchClientStatus(stream.Context(), r)
		if err != nil {
			return err
		}
		if err := stream.Send(a); err != nil {
			return err
		}
	}
}

// clientConfig returns the clusters of the bootstrap and each resource that was received or
// subscribed by name. It waits while a configuration is being applied.
func (s *Source) clientConfig(contents bool) *statusv3.ClientConfig {
	h := s.statusSnapshot()
	node, _ := proto.Clone(s.boot.Node).(*corev3.Node)
	redact(node.ProtoReflect())
	out := &statusv3.ClientConfig{Node: node}
	for _, url := range []string{resource.ClusterType, resource.ListenerType, resource.SecretType} {
		for _, g := range h.staticResources.OfType(url) {
			r := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: url, Name: g.Name, IsStaticResource: true}
			if contents {
				r.XdsConfig = &anypb.Any{TypeUrl: url, Value: g.Body}
				redact(r.XdsConfig.ProtoReflect())
			}
			out.GenericXdsConfigs = append(out.GenericXdsConfigs, r)
		}
	}
	for _, url := range append(cachedTypes(), resource.SecretType) {
		for _, name := range h.resourceNames(url) {
			out.GenericXdsConfigs = append(out.GenericXdsConfigs, h.genericConfig(url, name, contents))
		}
	}
	return out
}

// resourceNames returns the resources of a type that are subscribed by name, or for a wildcard type
// the received ones.
func (h *statusSnapshot) resourceNames(url string) []string {
	all := maps.Clone(h.requested[url])
	if all == nil { // wildcard type
		all = map[string]bool{}
		for name := range h.status[url] {
			all[name] = false
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// genericConfig returns a resource and its status.
func (h *statusSnapshot) genericConfig(url, name string, contents bool) *statusv3.ClientConfig_GenericXdsConfig {
	r := h.status[url][name]
	out := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: url, Name: name, VersionInfo: r.Version}
	held, is := h.resources[url][name]
	switch {
	case r.RejectReason != "":
		out.ClientStatus = adminv3.ClientResourceStatus_NACKED
		out.ErrorState = &adminv3.UpdateFailureState{Details: r.RejectReason, LastUpdateAttempt: timestamppb.New(r.RejectedAt)}
	case is:
		out.ClientStatus = adminv3.ClientResourceStatus_ACKED
	case h.requested[url][name]:
		out.ClientStatus = adminv3.ClientResourceStatus_DOES_NOT_EXIST
	default:
		out.ClientStatus = adminv3.ClientResourceStatus_REQUESTED
	}
	if !r.Updated.IsZero() {
		out.LastUpdated = timestamppb.New(r.Updated)
	}
	if is && contents {
		out.XdsConfig = &anypb.Any{TypeUrl: url, Value: held.Body}
		redact(out.XdsConfig.ProtoReflect())
	}
	return out
}
