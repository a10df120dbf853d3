package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// The authorization services for ext_authz decide by the header or attachment x-token. The token
// "good" allows a request as the user ann. "quiet" does the same, without the response header
// x-session. "tea" denies the request with 418. "error" makes the service fail. Any other token
// denies the request with 401. Without a token, a body that contains "good" counts as that token.

// serveHTTPAuthorizer is the HTTP service.
func serveHTTPAuthorizer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request was aborted
	}
	w.Header().Set("X-Path", r.URL.Path)
	switch token := r.Header.Get("X-Token"); {
	case token == "quiet":
		w.Header().Set("X-User", "ann")
	case token == "good" || token == "" && strings.Contains(string(body), "good"):
		w.Header().Set("X-User", "ann")
		w.Header().Set("X-Session", "new")
	case token == "tea":
		w.Header().Set("X-Why", "tea")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "no tea")
	case token == "error":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.Header().Set("X-Why", "token")
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// authorizer is the gRPC service, served by grpc-go.
type authorizer struct {
	authv3.UnimplementedAuthorizationServer
	onCheck func(*authv3.AttributeContext) // gets the attributes of each check; may be nil
}

// serveAuthorizer starts the gRPC service; onCheck may be nil.
func serveAuthorizer(t *testing.T, onCheck func(*authv3.AttributeContext)) (address string) {
	t.Helper()
	return startAuthorizer(t, &authorizer{onCheck: onCheck})
}

func startAuthorizer(t *testing.T, a authv3.AuthorizationServer) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	authv3.RegisterAuthorizationServer(s, a)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Errorf("gRPC authorization service: %v", err)
		}
	})
	return l.Addr().String()
}

// Check implements authv3.AuthorizationServer.
func (a *authorizer) Check(_ context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	if a.onCheck != nil {
		a.onCheck(r.GetAttributes())
	}
	option := func(name, value string) []*corev3.HeaderValueOption {
		return []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: name, Value: value}}}
	}
	deny := func(code codes.Code, http typev3.StatusCode, reason, body string) *authv3.CheckResponse {
		return &authv3.CheckResponse{Status: statusOf(code), HttpResponse: &authv3.CheckResponse_DeniedResponse{
			DeniedResponse: &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: http}, Headers: option("x-why", reason), Body: body}}}
	}
	req := r.GetAttributes().GetRequest().GetHttp()
	switch token := req.GetHeaders()["x-token"]; {
	case token == "quiet", token == "good", token == "" && strings.Contains(req.GetBody(), "good"):
		okResponse := &authv3.OkHttpResponse{Headers: option("x-user", "ann"), HeadersToRemove: []string{"x-forged"}}
		if token != "quiet" {
			okResponse.ResponseHeadersToAdd = option("x-session", "new")
		}
		return &authv3.CheckResponse{Status: statusOf(codes.OK), HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: okResponse}}, nil
	case token == "tea":
		return deny(codes.PermissionDenied, 418, "tea", "no tea"), nil
	case token == "error":
		return nil, grpcstatus.Error(codes.Unavailable, "unavailable")
	}
	return deny(codes.Unauthenticated, 401, "token", ""), nil
}

func statusOf(code codes.Code) *rpcstatus.Status { return &rpcstatus.Status{Code: int32(code)} }

// httpAuthz returns an ext_authz configuration with an HTTP service in cluster.
func httpAuthz(cluster string, extra object) object {
	patterns := func(names ...string) object {
		all := list{}
		for _, name := range names {
			all = append(all, object{"exact": name})
		}
		return object{"patterns": all}
	}
	return object{"http_service": object{
		"server_uri": object{"uri": "http://authz.test", "cluster": cluster, "timeout": "5s"}, "path_prefix": "/check",
		"authorization_request": object{"allowed_headers": patterns("x-token")},
		"authorization_response": object{
			"allowed_upstream_headers":          patterns("x-user", "x-forged"),
			"allowed_client_headers":            patterns("x-why"),
			"allowed_client_headers_on_success": patterns("x-session"),
		},
	}}.with(extra)
}

// grpcAuthz returns an ext_authz configuration with a gRPC service in cluster.
func grpcAuthz(cluster string, extra object) object {
	return object{"grpc_service": object{"envoy_grpc": object{"cluster_name": cluster}, "timeout": "5s"}}.with(extra)
}
