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

// TestCheckRequestEncoding verifies requests with the generated types of
// go-control-plane.
func TestCheckRequestEncoding(t *testing.T) {
	at := time.Unix(1234567890, 42)
	for name, test := range map[string]struct {
		told attributes
		want *authv3.AttributeContext
	}{
		"all there is": {
			told: attributes{
				source:      peer{address: "192.0.2.1", port: 4711, principal: "spiffe://shop/cart", certificate: "-----BEGIN%20"},
				destination: peer{address: "2001:db8::1", port: 443},
				time:        at,
				http: httpRequest{method: "POST", path: "/a?b=ä", host: "shop.test", scheme: "https", protocol: "HTTP/2", size: 300,
					headers: [][2]string{{":path", "/a?b=ä"}, {"x-empty", ""}, {"cookie", "a=b"}}, body: []byte("text")},
				extensions: [][2]string{{"realm", "shop"}}, serverName: "app.test",
			},
			want: &authv3.AttributeContext{
				Source:      &authv3.AttributeContext_Peer{Address: address("192.0.2.1", 4711), Principal: "spiffe://shop/cart", Certificate: "-----BEGIN%20"},
				Destination: &authv3.AttributeContext_Peer{Address: address("2001:db8::1", 443)},
				Request: &authv3.AttributeContext_Request{Time: timestamppb.New(at), Http: &authv3.AttributeContext_HttpRequest{
					Method: "POST", Path: "/a?b=ä", Host: "shop.test", Scheme: "https", Protocol: "HTTP/2", Size: 300, Body: "text",
					Headers: map[string]string{":path": "/a?b=ä", "x-empty": "", "cookie": "a=b"}}},
				ContextExtensions: map[string]string{"realm": "shop"},
				TlsSession:        &authv3.AttributeContext_TLSSession{Sni: "app.test"},
			},
		},
		"a length that is not known, and content as bytes": {
			told: attributes{time: at, http: httpRequest{size: -1, body: []byte("\xff\x00"), raw: true}},
			want: &authv3.AttributeContext{
				Source: &authv3.AttributeContext_Peer{}, Destination: &authv3.AttributeContext_Peer{},
				Request: &authv3.AttributeContext_Request{Time: timestamppb.New(at), Http: &authv3.AttributeContext_HttpRequest{Size: -1, RawBody: []byte("\xff\x00")}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := new(authv3.CheckRequest)
			if err := proto.Unmarshal(appendCheckRequest(nil, &test.told), got); err != nil {
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

// deprecatedOption returns an option with the deprecated append field, as many services still send
// it. append takes precedence over the action.
func deprecatedOption(name, value string, appends bool) *corev3.HeaderValueOption {
	o := new(corev3.HeaderValueOption)
	if err := protojson.Unmarshal(fmt.Appendf(nil, `{"header": {"key": %q, "value": %q}, "append": %t, "append_action": "ADD_IF_ABSENT"}`, name, value, appends), o); err != nil {
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
		answer *authv3.CheckResponse
		rpc    bool
		want   decision
		fails  string
	}{
		"nothing but the status": {answer: &authv3.CheckResponse{Status: &status.Status{Code: 0}}, want: decision{allowed: true}},
		"fields for the application": {
			answer: ok(&authv3.OkHttpResponse{
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
			answer: &authv3.CheckResponse{DynamicMetadata: data},
			want: decision{allowed: true, metadata: []metadataValue{
				{[]string{"user", "groups"}, "a"}, {[]string{"user", "groups"}, "true"}, {[]string{"user", "groups"}, "1.5"}}},
		},
		"a refusal": {
			answer: denied(&authv3.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: 302}, Body: "go there",
				Headers: options(&corev3.HeaderValueOption{Header: headerValue("location", "/login")}),
			}),
			want: decision{status: 302, body: "go there", response: changes{{opSet, "location", "/login"}}},
		},
		"a refusal without more":        {answer: &authv3.CheckResponse{Status: &status.Status{Code: 16}}, want: decision{status: 403}},
		"a refusal without a status":    {answer: denied(&authv3.DeniedHttpResponse{}), want: decision{status: 403}},
		"invalid status":                {answer: denied(&authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: 101}}), fails: "status 101"},
		"a refusal that lets pass":      {answer: &authv3.CheckResponse{HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{}}}, fails: "contradicts"},
		"another query":                 {answer: ok(&authv3.OkHttpResponse{QueryParametersToSet: []*corev3.QueryParameter{{Key: "a"}}}), fails: "query"},
		"another query, without a part": {answer: ok(&authv3.OkHttpResponse{QueryParametersToRemove: []string{"a"}}), fails: "query"},
		"another host":                  {answer: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("Host", "x")})}), fails: "Host"},
		"another path":                  {answer: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue(":path", "/")})}), fails: ":path"},
		"a length":                      {answer: ok(&authv3.OkHttpResponse{HeadersToRemove: []string{"content-length"}}), fails: "content-length"},
		"two lines in one field":        {answer: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("x-a", "1\r\nx-b: 2")})}), fails: "control"},
		"two lines in a refusal":        {answer: denied(&authv3.DeniedHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("x-a", "1\nx-b: 2")})}), fails: "control"},
		"a field without a name":        {answer: ok(&authv3.OkHttpResponse{ResponseHeadersToAdd: options(&corev3.HeaderValueOption{Header: headerValue("", "a")})}), fails: "cannot be changed"},
		"another service of RPC":        {answer: ok(&authv3.OkHttpResponse{Headers: options(&corev3.HeaderValueOption{Header: headerValue("service", "Bank")})}), rpc: true, fails: "service"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := proto.Marshal(test.answer)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := parseCheckResponse(text)
			if err != nil {
				t.Fatal(err)
			}
			got, err := toDecision(answer, test.rpc)
			switch {
			case test.fails != "":
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("%+v, %v; want an error about %q", got, err, test.fails)
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
	deep := structpb.NewStringValue("x")
	for range 40 {
		deep = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": deep}})
	}
	deepText, err := proto.Marshal(&authv3.CheckResponse{DynamicMetadata: deep.GetStructValue()})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cut":                       "\x0a\x05\x08",
		"a status that is a number": "\x08\x07",
		"a code that is a text":     "\x0a\x03\x0a\x01a",
		"no field at all":           "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"metadata without an end":   string(deepText),
	} {
		if got, err := parseCheckResponse([]byte(text)); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}

// FuzzParseCheckResponse verifies that the generated types read the same status.
func FuzzParseCheckResponse(f *testing.F) {
	for _, seed := range []*authv3.CheckResponse{
		{}, {Status: &status.Status{Code: 7, Message: "no"}},
		{HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: 401}, Body: "b"}}},
		{HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{HeadersToRemove: []string{"a"}}}},
	} {
		text, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := new(authv3.CheckResponse)
		judge := proto.Unmarshal(text, want)
		got, err := parseCheckResponse(text)
		if err != nil || judge != nil {
			return // skip input that only one parser accepts, or that has invalid UTF-8
		}
		if got.code != want.GetStatus().GetCode() {
			t.Errorf("the code is %d, want %d", got.code, want.GetStatus().GetCode())
		}
		if v, err := toDecision(got, false); err == nil && v.allowed != (want.GetStatus().GetCode() == 0) {
			t.Errorf("allowed: %t, want %v", v.allowed, want.GetStatus())
		}
	})
}
