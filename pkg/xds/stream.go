package xds

import (
	"context"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/weft-proxy/weft/pkg/xds/ads"
)

// discoveryService holds the paths of the two gRPC methods of a discovery service.
type discoveryService struct{ stateOfTheWorldMethod, deltaMethod string }

// adsService returns the Aggregated Discovery Service.
func adsService() discoveryService {
	return discoveryService{
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
	}
}

// sdsService returns the Secret Discovery Service.
func sdsService() discoveryService {
	return discoveryService{
		"/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
		"/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
	}
}

// clusterService returns the Cluster Discovery Service.
func clusterService() discoveryService {
	return discoveryService{
		"/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
		"/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
	}
}

// listenerService returns the Listener Discovery Service.
func listenerService() discoveryService {
	return discoveryService{
		"/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners",
		"/envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners",
	}
}

// stream is one discovery stream. One goroutine may send while another receives.
type stream struct {
	grpc grpc.ClientStream
	mode ads.Mode
	node *corev3.Node
}

// openStream opens a stream, which ends with ctx.
func openStream(ctx context.Context, conn grpc.ClientConnInterface, s discoveryService, mode ads.Mode, node *corev3.Node) (*stream, error) {
	method := s.stateOfTheWorldMethod
	if mode == ads.Delta {
		method = s.deltaMethod
	}
	g, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return nil, err
	}
	return &stream{grpc: g, mode: mode, node: node}, nil
}

// send sends r. Only the first request of a stream identifies the node.
func (s *stream) send(r ads.Request) error {
	var node *corev3.Node
	if r.First {
		node = s.node
	}
	var detail *statuspb.Status
	if r.ErrorDetail != "" {
		detail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: r.ErrorDetail}
	}
	if s.mode == ads.Delta {
		return s.grpc.SendMsg(&discoveryv3.DeltaDiscoveryRequest{
			Node:                     node,
			TypeUrl:                  r.Type,
			ResourceNamesSubscribe:   r.Subscribe,
			ResourceNamesUnsubscribe: r.Unsubscribe,
			InitialResourceVersions:  r.InitialVersions,
			ResponseNonce:            r.Nonce,
			ErrorDetail:              detail,
		})
	}
	return s.grpc.SendMsg(&discoveryv3.DiscoveryRequest{
		Node:          node,
		TypeUrl:       r.Type,
		VersionInfo:   r.Version,
		ResourceNames: r.Names,
		ResponseNonce: r.Nonce,
		ErrorDetail:   detail,
	})
}

// receive returns the next response. State-of-the-world responses contain no resource names; nameOf
// returns the name of a resource.
func (s *stream) receive(nameOf func(body []byte) (string, error)) (ads.Response, error) {
	if s.mode == ads.Delta {
		msg := &discoveryv3.DeltaDiscoveryResponse{}
		if err := s.grpc.RecvMsg(msg); err != nil {
			return ads.Response{}, err
		}
		r := ads.Response{Type: msg.GetTypeUrl(), Version: msg.GetSystemVersionInfo(), Nonce: msg.GetNonce(), Removed: msg.GetRemovedResources()}
		for _, entry := range msg.GetResources() {
			res := ads.Resource{
				Name:      entry.GetName(),
				Version:   entry.GetVersion(),
				Body:      entry.GetResource().GetValue(),
				Heartbeat: entry.GetResource() == nil,
			}
			if typeURL := entry.GetResource().GetTypeUrl(); !res.Heartbeat && typeURL != r.Type {
				res.DecodeError = wrongTypeReason(typeURL)
			}
			r.Resources = append(r.Resources, res)
		}
		return r, nil
	}
	msg := &discoveryv3.DiscoveryResponse{}
	if err := s.grpc.RecvMsg(msg); err != nil {
		return ads.Response{}, err
	}
	return responseOf(msg, nameOf), nil
}

// responseOf returns a message of the state-of-the-world protocol as a Response. nameOf returns the
// name of a resource.
func responseOf(msg *discoveryv3.DiscoveryResponse, nameOf func(body []byte) (string, error)) ads.Response {
	r := ads.Response{Type: msg.GetTypeUrl(), Version: msg.GetVersionInfo(), Nonce: msg.GetNonce()}
	for i, entry := range msg.GetResources() {
		if entry.MessageName() == "envoy.service.discovery.v3.Resource" {
			wrapped := &discoveryv3.Resource{}
			if err := entry.UnmarshalTo(wrapped); err == nil {
				entry = wrapped.GetResource()
			}
		}
		res := ads.Resource{Body: entry.GetValue()}
		var err error
		if res.Name, err = nameOf(res.Body); err != nil {
			res.DecodeError = err.Error()
		}
		if typeURL := entry.GetTypeUrl(); typeURL != r.Type {
			res.DecodeError = wrongTypeReason(typeURL)
		}
		if res.DecodeError != "" {
			res.Name = fmt.Sprintf("resources[%d]", i)
		}
		r.Resources = append(r.Resources, res)
	}
	return r
}

func wrongTypeReason(url string) string { return fmt.Sprintf("the resource has another type, %q", url) }
