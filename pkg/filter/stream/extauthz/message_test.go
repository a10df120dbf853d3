package extauthz

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func address(text string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: text, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}
}

// TestCheckRequestEncoding verifies that the generated types of go-control-plane decode the output
// of appendCheckRequest.
func TestCheckRequestEncoding(t *testing.T) {
	start := time.Unix(1234567890, 42)
	for name, test := range map[string]struct {
		attributes attributes
		want       *authv3.AttributeContext
	}{
		"all fields": {
			attributes: attributes{
				source:      peer{address: "192.0.2.1", port: 4711, principal: "spiffe://shop/cart", certificate: "-----BEGIN%20"},
				destination: peer{address: "2001:db8::1", port: 443},
				time:        start,
				http: httpRequest{method: "POST", path: "/a?b=ä", host: "shop.test", scheme: "https", protocol: "HTTP/2", size: 300,
					headers: [][2]string{{":path", "/a?b=ä"}, {"x-empty", ""}, {"cookie", "a=b"}}, body: []byte("text")},
				extensions: [][2]string{{"realm", "shop"}}, serverName: "app.test",
			},
			want: &authv3.AttributeContext{
				Source:      &authv3.AttributeContext_Peer{Address: address("192.0.2.1", 4711), Principal: "spiffe://shop/cart", Certificate: "-----BEGIN%20"},
				Destination: &authv3.AttributeContext_Peer{Address: address("2001:db8::1", 443)},
				Request: &authv3.AttributeContext_Request{Time: timestamppb.New(start), Http: &authv3.AttributeContext_HttpRequest{
					Method: "POST", Path: "/a?b=ä", Host: "shop.test", Scheme: "https", Protocol: "HTTP/2", Size: 300, Body: "text",
					Headers: map[string]string{":path": "/a?b=ä", "x-empty": "", "cookie": "a=b"}}},
				ContextExtensions: map[string]string{"realm": "shop"},
				TlsSession:        &authv3.AttributeContext_TLSSession{Sni: "app.test"},
			},
		},
		"unknown length, raw body": {
			attributes: attributes{time: start, http: httpRequest{size: -1, body: []byte("\xff\x00"), raw: true}},
			want: &authv3.AttributeContext{
				Source: &authv3.AttributeContext_Peer{}, Destination: &authv3.AttributeContext_Peer{},
				Request: &authv3.AttributeContext_Request{Time: timestamppb.New(start), Http: &authv3.AttributeContext_HttpRequest{Size: -1, RawBody: []byte("\xff\x00")}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := new(authv3.CheckRequest)
			if err := proto.Unmarshal(appendCheckRequest(nil, &test.attributes), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&authv3.CheckRequest{Attributes: test.want}, got, protocmp.Transform()); diff != "" {
				t.Errorf("CheckRequest (-want +got):\n%s", diff)
			}
		})
	}
}

func headerValue(name, value string) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: name, Value: value}
}

// deprecatedOption returns an option with the deprecated field append, which many services still
// send. append takes precedence over append_action.
func deprecatedOption(name, value string, appendValue bool) *corev3.HeaderValueOption {
	o := new(corev3.HeaderValueOption)
	if err := protojson.Unmarshal(fmt.Appendf(nil, `{"header": {"key": %q, "value": %q}, "append": %t, "append_action": "ADD_IF_ABSENT"}`, name, value, appendValue), o); err != nil {
		panic(err) // the JSON is constant
	}
	return o
}

// TestCheckResponseDecisions verifies the decisions for responses that the generated types
// encode.
func TestCheckResponseDecisions(t *testing.T) {
	data, err := structpb.NewStruct(map[string]any{"user": map[string]any{"groups": []any{"a", true, 1.5, nil}}})
	if err != nil {
		t.Fatal(err)
	}
	ok := func(o *authv3.OkHttpResponse) *authv3.CheckResponse {
		return &authv3.CheckResponse{Status: &status.Status{}, HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: o}}
	}
	denied := func(d *authv3.DeniedHttpResponse) *authv3.CheckResponse {
		return &authv3.CheckResponse{Status: &status.Status{Code: 7, Message: "no"}, HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: d}}
	}
	options := func(headers ...*corev3.HeaderValueOption) []*corev3.HeaderValueOption { return headers }
	for name, test := range map[string]struct {
		response *authv3.CheckResponse
		rpc      bool
		want     decision
		wantErr  string
	}{
		"status only": {response: &authv3.CheckResponse{Status: &status.Status{Code: 0}}, want: decision{allowed: true}},
		"headers for the application": {
			response: ok(&authv3.OkHttpResponse{
				Headers: options(
					&corev3.HeaderValueOption{Header: headerValue("x-user", "ann")},
					deprecatedOption("x-more", "b", true),
					deprecatedOption("x-set", "c", false),
					&corev3.HeaderValueOption{Header: headerValue("x-if", "d"), AppendAction: corev3.HeaderValueOption_ADD_IF_ABSENT},
					&corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: "x-raw", RawValue: []byte("\xe4")}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS},
				),
				HeadersToRemove: []string{"cookie"},
				ResponseHeadersToAdd: options(
					&corev3.HeaderValueOption{Header: headerValue("set-cookie", "a=b")},
					&corev3.HeaderValueOption{Header: headerValue("x-limit", "1"), AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD},
				),
			}),
			want: decision{
				allowed: true,
				request: changes{
					{opRemove, "cookie", ""}, {opSet, "x-user", "ann"}, {opAdd, "x-more", "b"}, {opSet, "x-set", "c"}, {opAddIfAbsent, "x-if", "d"}, {opSetIfPresent, "x-raw", "\xe4"},
				},
				response: changes{{opAdd, "set-cookie", "a=b"}, {opSet, "x-limit", "1"}},
			},
		},
		"metadata": {
			response: &authv3.CheckResponse{DynamicMetadata: data},
			want: decision{allowed: true, metadata: []metadataValue{
				{[]string{"user", "groups"}, "a"}, {[]string{"user", "groups"}, "true"}, {[]string{"user", "groups"}, "1.5"}}},
		},
		"denied": {
			response: denied(&authv3.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: 302}, Body: "go there",
				Headers: options(&corev3.HeaderValueOption{Header: headerValue("location", "/login")}),
			}),
			want: decision{status: 302, body: "go there", response: changes{{opSet, "location", "/login"}}},
		},
		"denied, status only":           {response: &authv3.CheckResponse{Status: &status.Status{Code: 16}}, want: decision{status: 403}},
		"denied without an HTTP status": {response: denied(&authv3.DeniedHttpResponse{}), want: decision{status: 403}},
		"invalid status":                {response: denied(&authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: 101}}), wantErr: "status 101"},
		"denied response with code 0":   {response: &authv3.CheckResponse{HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{}}}, wantErr: "contradicts"},
		"query parameter to set":        {response: ok(&authv3.OkHttpResponse{QueryParametersToSet: []*corev3.QueryParameter{{Key: "a"}}}), wantErr: "query"},
		"query parameter to remove":     {response: ok(&authv3.OkHttpResponse{QueryParametersToRemove: []string{"a"}}), wantErr: "query"},
		"host header":                   {response: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("Host", "x")})}), wantErr: "Host"},
		"path header":                   {response: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue(":path", "/")})}), wantErr: ":path"},
		"content-length header":         {response: ok(&authv3.OkHttpResponse{HeadersToRemove: []string{"content-length"}}), wantErr: "content-length"},
		"line break in a header":        {response: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("x-a", "1\r\nx-b: 2")})}), wantErr: "control"},
		"line break in a denied header": {response: denied(&authv3.DeniedHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("x-a", "1\nx-b: 2")})}), wantErr: "control"},
		"header without a name":         {response: ok(&authv3.OkHttpResponse{ResponseHeadersToAdd: options(&corev3.HeaderValueOption{Header: headerValue("", "a")})}), wantErr: "cannot be changed"},
		"service attachment of RPC":     {response: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("service", "Bank")})}), rpc: true, wantErr: "service"},
	} {
		t.Run(name, func(t *testing.T) {
			encoded, err := proto.Marshal(test.response)
			if err != nil {
				t.Fatal(err)
			}
			response, err := parseCheckResponse(encoded)
			if err != nil {
				t.Fatal(err)
			}
			got, err := toDecision(response, test.rpc)
			switch {
			case test.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("toDecision = %+v, %v; want an error with %q", got, err, test.wantErr)
				}
			case err != nil:
				t.Error(err)
			default:
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(decision{}, change{}, metadataValue{})); diff != "" {
					t.Errorf("decision (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestMalformedCheckResponses(t *testing.T) {
	nested := structpb.NewStringValue("x")
	for range 40 {
		nested = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": nested}})
	}
	encoded, err := proto.Marshal(&authv3.CheckResponse{DynamicMetadata: nested.GetStructValue()})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"truncated":                  "\x0a\x05\x08",
		"status is a number":         "\x08\x07",
		"code is a string":           "\x0a\x03\x0a\x01a",
		"invalid tag":                "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"metadata nested too deeply": string(encoded),
	} {
		if got, err := parseCheckResponse([]byte(text)); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}

// FuzzParseCheckResponse verifies that parseCheckResponse and the generated types decode the same
// status.
func FuzzParseCheckResponse(f *testing.F) {
	for _, seed := range []*authv3.CheckResponse{
		{}, {Status: &status.Status{Code: 7, Message: "no"}},
		{HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: 401}, Body: "b"}}},
		{HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{HeadersToRemove: []string{"a"}}}},
	} {
		b, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want := new(authv3.CheckResponse)
		protoErr := proto.Unmarshal(b, want)
		got, err := parseCheckResponse(b)
		if err != nil || protoErr != nil {
			return // skip input that only one parser accepts, or that has invalid UTF-8
		}
		if got.code != want.GetStatus().GetCode() {
			t.Errorf("code = %d, want %d", got.code, want.GetStatus().GetCode())
		}
		if decision, err := toDecision(got, false); err == nil && decision.allowed != (want.GetStatus().GetCode() == 0) {
			t.Errorf("allowed: %t, want %v", decision.allowed, want.GetStatus())
		}
	})
}
