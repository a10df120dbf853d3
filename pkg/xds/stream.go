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

// discoveryService holds the two gRPC methods of a discovery service.
type discoveryService struct{ stateOfTheWorld, delta string }

// adsService returns the Aggregated Discovery Service.
func adsService() discoveryService {
	return discoveryService{
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
	}
}

func sdsService() discoveryService {
	return discoveryService{
		"/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
		"/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
	}
}

// stream is one discovery stream. One goroutine may send while another receives.
type stream struct {
	grpc grpc.ClientStream
	mode ads.Mode
	node *corev3.Node
}

// openStream opens a stream, which ends with ctx.
func openStream(ctx context.Context, conn grpc.ClientConnInterface, s discoveryService, form ads.Mode, node *corev3.Node) (*stream, error) {
	method := s.stateOfTheWorld
	if form == ads.Delta {
		method = s.delta
	}
	g, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return nil, err
	}
	return &stream{grpc: g, mode: form, node: node}, nil
}

// send sends r. Only the first request of a stream identifies the node.
func (s *stream) send(r ads.Request) error {
	var node *corev3.Node
	if r.First {
		node = s.node
	}
	var refusal *statuspb.Status
	if r.ErrorDetail != "" {
		refusal = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: r.ErrorDetail}
	}
	if s.mode == ads.Delta {
		return s.grpc.SendMsg(&discoveryv3.DeltaDiscoveryRequest{
			Node:                     node,
			TypeUrl:                  r.Type,
			ResourceNamesSubscribe:   r.Subscribe,
			ResourceNamesUnsubscribe: r.Unsubscribe,
			InitialResourceVersions:  r.InitialVersions,
			ResponseNonce:            r.Nonce,
			ErrorDetail:              refusal,
		})
	}
	return s.grpc.SendMsg(&discoveryv3.DiscoveryRequest{
		Node:          node,
		TypeUrl:       r.Type,
		VersionInfo:   r.Version,
		ResourceNames: r.Names,
		ResponseNonce: r.Nonce,
		ErrorDetail:   refusal,
	})
}

// receive returns the next response. State-of-the-world responses have no resource names: name
// extracts the name from a resource.
func (s *stream) receive(name func(body []byte) (string, error)) (ads.Response, error) {
	if s.mode == ads.Delta {
		m := &discoveryv3.DeltaDiscoveryResponse{}
		if err := s.grpc.RecvMsg(m); err != nil {
			return ads.Response{}, err
		}
		r := ads.Response{Type: m.GetTypeUrl(), Version: m.GetSystemVersionInfo(), Nonce: m.GetNonce(), Removed: m.GetRemovedResources()}
		for _, one := range m.GetResources() {
			n := ads.Resource{
				Name:      one.GetName(),
				Version:   one.GetVersion(),
				Body:      one.GetResource().GetValue(),
				Heartbeat: one.GetResource() == nil,
			}
			if other := one.GetResource().GetTypeUrl(); !n.Heartbeat && other != r.Type {
				n.DecodeError = wrongTypeReason(other)
			}
			r.Resources = append(r.Resources, n)
		}
		return r, nil
	}
	m := &discoveryv3.DiscoveryResponse{}
	if err := s.grpc.RecvMsg(m); err != nil {
		return ads.Response{}, err
	}
	r := ads.Response{Type: m.GetTypeUrl(), Version: m.GetVersionInfo(), Nonce: m.GetNonce()}
	for i, one := range m.GetResources() {
		if one.MessageName() == "envoy.service.discovery.v3.Resource" {
			wrapped := &discoveryv3.Resource{}
			if err := one.UnmarshalTo(wrapped); err == nil {
				one = wrapped.GetResource()
			}
		}
		n := ads.Resource{Body: one.GetValue()}
		var err error
		if n.Name, err = name(n.Body); err != nil {
			n.DecodeError = err.Error()
		}
		if other := one.GetTypeUrl(); other != r.Type {
			n.DecodeError = wrongTypeReason(other)
		}
		if n.DecodeError != "" {
			n.Name = fmt.Sprintf("resources[%d]", i)
		}
		r.Resources = append(r.Resources, n)
	}
	return r, nil
}

func wrongTypeReason(url string) string { return fmt.Sprintf("the resource has another type, %q", url) }
