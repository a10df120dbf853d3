package proxy

import (
	"net"
	"regexp"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// rewriteReply returns the local reply for err with the replies that c selects, and its exchange.
func rewriteReply(t *testing.T, c *config.Replies, err error, header ...string) (*protocol.Exchange, string) {
	t.Helper()
	replies, compileErr := compileReplies(c, "chain")
	if compileErr != nil {
		t.Fatal(compileErr)
	}
	x := &protocol.Exchange{EnvoyReplies: replies}
	x.Reset()
	x.Request.Method, x.Request.Path = "GET", "/shop"
	for i := 0; i+1 < len(header); i += 2 {
		x.Request.Header.Add(header[i], header[i+1])
	}
	x.LocalReplyError(err)
	x.EnvoyReplies.Apply(x)
	return x, x.LocalReplyBody()
}

func TestRepliesOfTheFirstMapper(t *testing.T) {
	text, empty := "sorry", ""
	c := &config.Replies{
		Envoy: true,
		Mappers: []config.ReplyMapper{
			{Filter: config.ExchangeFilter{Flags: &config.FlagFilter{Flags: []string{"UH"}}}, Status: 504, Text: &text,
				Headers: config.HeaderMutation{Add: []config.HeaderValue{{Name: "x-mapped", Value: "yes"}}}},
			{Filter: config.ExchangeFilter{Status: &config.Comparison{Op: config.EqualTo, Value: 503}}, Text: &empty,
				Body: &config.ReplyBody{Text: "[%LOCAL_REPLY_BODY%]", ContentType: "text/html"}},
			{Filter: config.ExchangeFilter{Status: &config.Comparison{Op: config.AtLeast, Value: 400}}, Status: 418},
		},
		Body: &config.ReplyBody{Text: "%RESPONSE_CODE% %LOCAL_REPLY_BODY% %REQ(:PATH)%"},
	}
	for name, tt := range map[string]struct {
		reason                    protocol.Reason
		status                    int
		body, contentType, mapped string
	}{
		"first mapper":       {protocol.NoHealthyHost, 504, "504 sorry /shop", "text/plain", "yes"},
		"own body":           {protocol.Overflow, 503, "[]", "text/html", ""},
		"only a status":      {protocol.ReasonNoRoute, 418, "418  /shop", "text/plain", ""},
		"status of a reason": {protocol.UpstreamTimeout, 418, "418 upstream request timeout /shop", "text/plain", ""},
	} {
		t.Run(name, func(t *testing.T) {
			x, body := rewriteReply(t, c, protocol.NewFault(tt.reason, nil))
			h := &x.Response.Header
			if x.Response.Status != tt.status || body != tt.body || h.Get("content-type") != tt.contentType || h.Get("x-mapped") != tt.mapped {
				t.Errorf("reply %d %q with content-type %q and x-mapped %q, want %d %q, %q and %q",
					x.Response.Status, body, h.Get("content-type"), h.Get("x-mapped"), tt.status, tt.body, tt.contentType, tt.mapped)
			}
			if x.Response.ContentLength != int64(len(body)) {
				t.Errorf("content length %d of %q", x.Response.ContentLength, body)
			}
		})
	}
}

func TestJSONReplies(t *testing.T) {
	c := &config.Replies{Envoy: true, Body: &config.ReplyBody{JSON: []config.JSONPart{
		{Literal: `{"code":`, Format: "%RESPONSE_CODE%"}, {Literal: `,"text":`, Format: "a %LOCAL_REPLY_BODY%"},
		{Literal: `,"missing":`, Format: "%REQ(x)%"}, {Literal: "}"},
	}}}
	const want = `{"code":503,"text":"a no healthy upstream","missing":null}`
	x, body := rewriteReply(t, c, protocol.NewFault(protocol.NoHealthyHost, nil))
	if body != want+"\n" || x.Response.Header.Get("content-type") != "application/json" {
		t.Errorf("body %s, content-type %s", body, x.Response.Header.Get("content-type"))
	}
	if _, body = rewriteReply(t, c, protocol.NewFault(protocol.NoHealthyHost, nil), "content-type", "application/grpc"); body != want {
		t.Errorf("message %q, want %q", body, want)
	}
}

func TestReplyWithoutBody(t *testing.T) {
	c := &config.Replies{Envoy: true, Body: &config.ReplyBody{Text: "%LOCAL_REPLY_BODY%"}}
	x, body := rewriteReply(t, c, protocol.NewFault(protocol.ReasonNoRoute, nil))
	if body != "" || x.Response.Header.Get("content-type") != "" {
		t.Errorf("body %q, content-type %q; want none", body, x.Response.Header.Get("content-type"))
	}
}

// TestReplyWithAnotherBody verifies that a body that a filter has set, such as a compressed one,
// stays.
func TestReplyWithAnotherBody(t *testing.T) {
	replies, err := compileReplies(&config.Replies{Envoy: true, Body: &config.ReplyBody{Text: "new"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	x := &protocol.Exchange{EnvoyReplies: replies}
	x.Reset()
	body := protocol.NewStringBody("compressed")
	x.Response.Body = body
	x.EnvoyReplies.Apply(x)
	if x.Response.Body != protocol.Body(body) {
		t.Error("the body was replaced")
	}
}

func TestRepliesThatAreNotCompiled(t *testing.T) {
	if r, err := compileReplies(&config.Replies{}, ""); r != nil || err != nil {
		t.Errorf("compileReplies = %v, %v, want nil: the replies are not Envoy's", r, err)
	}
	for name, c := range map[string]config.Replies{
		"unknown operator in the text": {Envoy: true, Body: &config.ReplyBody{Text: "%NOPE%"}},
		"unknown operator in JSON":     {Envoy: true, Body: &config.ReplyBody{JSON: []config.JSONPart{{Format: "%NOPE%"}}}},
		"mapper without a filter":      {Envoy: true, Mappers: []config.ReplyMapper{{}}},
		"unknown operator of a mapper": {Envoy: true, Mappers: []config.ReplyMapper{{Filter: config.ExchangeFilter{NotHealthCheck: true}, Body: &config.ReplyBody{Text: "%NOPE%"}}}},
	} {
		if _, err := compileReplies(&c, ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAppendUUID(t *testing.T) {
	if got := string(appendUUID(nil)); !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("appendUUID = %q, which is not a UUID of version 4", got)
	}
}

// TestEnvoyRepliesToClients verifies what clients get if the replies are those of Envoy.
func TestEnvoyRepliesToClients(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	_ = ln.Close()
	c := setup{
		filters: `{"type": "rbac", "config": {}}`,
		routes: `{"match": {"path": "/dead"}, "route": {"cluster_name": "dead", "response_headers_to_add": [{"header": {"key": "x-route", "value": "r"}}]}},
			{"match": {"path": "/direct"}, "direct_response": {"status": 200, "body": "hi"}},
			{"match": {"path": "/denied"}, "direct_response": {"status": 200}, "per_filter_config": {"rbac": {"rules": {"policies": {}}}}}`,
		clusters: cluster("dead", dead),
	}.snapshot(t)
	for _, l := range c.Listeners {
		for chain := range l.Chains() {
			chain.Proxy.Replies.Envoy = true
		}
	}
	r := newRig(t)
	r.apply(c)
	for _, test := range []struct {
		path, header string
		status       int
		body, route  string
		contentType  string
	}{
		{"/dead", "", 503, "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure", "r", "text/plain"},
		{"/direct", "", 200, "hi", "", "text/plain"},
		{"/denied", "", 403, "RBAC: access denied", "", "text/plain"},
		{"/none", "", 404, "", "", ""},
		{"/none", "content-type: application/grpc", 200, "", "", "application/grpc"},
	} {
		got := dialClient(t, r.address("front")).roundTrip(get(test.path, test.header))
		h := got.Header
		if got.StatusCode != test.status || got.body != test.body || h.Get("x-route") != test.route || h.Get("content-type") != test.contentType {
			t.Errorf("%s: %d %q with x-route %q and content-type %q, want %d %q, %q and %q",
				test.path, got.StatusCode, got.body, h.Get("x-route"), h.Get("content-type"), test.status, test.body, test.route, test.contentType)
		}
	}
	got := dialClient(t, r.address("front")).roundTrip("GET / HTTP/1.1\r\nX: y\r\n\r\n")
	if got.StatusCode != 400 || got.body != "" {
		t.Errorf("without Host: %d %q, want 400 without a body", got.StatusCode, got.body)
	}
}
