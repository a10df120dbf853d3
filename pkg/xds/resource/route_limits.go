package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// readGRPCTimeout reads the limit of gRPC timeouts in requests: grpc_timeout_header_max or
// max_grpc_timeout. If neither is set, Envoy ignores these timeouts; Weft applies them.
func (p fieldReader) readGRPCTimeout(m *routev3.RouteAction, out *config.GRPCTimeout) {
	switch d := m.GetMaxStreamDuration(); {
	case d.GetGrpcTimeoutHeaderMax() != nil:
		out.Max = p.field("max_stream_duration").field("grpc_timeout_header_max").readDuration(d.GetGrpcTimeoutHeaderMax(), 0)
	case m.GetMaxGrpcTimeout() != nil:
		out.Max, out.Replace = p.field("max_grpc_timeout").readDuration(m.GetMaxGrpcTimeout(), 0), true
	}
}

func (p fieldReader) readClusterNotFoundCode(code routev3.RouteAction_ClusterNotFoundResponseCode) int {
	switch code {
	case routev3.RouteAction_SERVICE_UNAVAILABLE:
		return 503
	case routev3.RouteAction_NOT_FOUND:
		return 404
	case routev3.RouteAction_INTERNAL_SERVER_ERROR:
		return 500
	}
	p.reject("%v is not supported", code)
	return 0
}
