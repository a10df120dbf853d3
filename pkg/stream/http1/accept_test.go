package http1

import (
	"context"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

func TestHTTP1Accept(t *testing.T) {
	type accept = config.HTTP1Accept
	const http10Request = "GET /a HTTP/1.0\r\n\r\n"
	for name, test := range map[string]struct {
		accept  accept
		request string
		want    string // status of the response, and authority of the served request
	}{
		"HTTP/1.0, by default":               {accept{}, http10Request, "200 "},
		"HTTP/1.0, rejected":                 {accept{RejectHTTP10: true}, http10Request, "426 "},
		"HTTP/1.1, HTTP/1.0 rejected":        {accept{RejectHTTP10: true, RejectMissingHost: true}, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "200 h"},
		"no host, rejected":                  {accept{RejectMissingHost: true}, http10Request, "400 "},
		"empty host of HTTP/1.0":             {accept{RejectMissingHost: true}, "GET /a HTTP/1.0\r\nHost: \r\n\r\n", "400 "},
		"no host, default host":              {accept{RejectMissingHost: true, DefaultHost: "d"}, http10Request, "200 d"},
		"host, default host":                 {accept{DefaultHost: "d"}, "GET /a HTTP/1.0\r\nHost: h\r\n\r\n", "200 h"},
		"absolute target, by default":        {accept{}, "GET http://h/a HTTP/1.1\r\nHost: x\r\n\r\n", "200 h"},
		"absolute target, rejected":          {accept{RejectAbsoluteForm: true}, "GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n", "404 "},
		"absolute target, then a path":       {accept{RejectAbsoluteForm: true}, "POST http://h/a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: second\r\n\r\n", "200 second"},
		"path, absolute targets rejected":    {accept{RejectAbsoluteForm: true}, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "200 h"},
		"unknown method, by default":         {accept{}, "X-PURGE /a HTTP/1.1\r\nHost: h\r\n\r\n", "200 h"},
		"unknown method, rejected":           {accept{KnownMethodsOnly: true}, "X-PURGE /a HTTP/1.1\r\nHost: h\r\n\r\n", "400 "},
		"lowercase method, rejected":         {accept{KnownMethodsOnly: true}, "get /a HTTP/1.1\r\nHost: h\r\n\r\n", "400 "},
		"QUERY, unknown methods rejected":    {accept{KnownMethodsOnly: true}, "QUERY /a HTTP/1.1\r\nHost: h\r\n\r\n", "200 h"},
		"PROPFIND, unknown methods rejected": {accept{KnownMethodsOnly: true}, "PROPFIND /a HTTP/1.1\r\nHost: h\r\n\r\n", "200 h"},
		"second request, rejected":           {accept{KnownMethodsOnly: true}, "GET /a HTTP/1.1\r\nHost: h\r\n\r\nget / HTTP/1.1\r\nHost: h\r\n\r\n", "400 h"},
		"rejected request with a body":       {accept{RejectHTTP10: true}, "POST /a HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", "426 "},
	} {
		t.Run(name, func(t *testing.T) {
			served := make(chan string, 2) // the authority of each request
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.HTTP1.Accept = test.accept
				o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					served <- strings.Clone(x.Request.Authority)
					x.LocalReply(200, "", "")
					return nil
				})
			})
			c := proxy.dial()
			c.send(test.request)
			_ = c.CloseWrite()
			responses := strings.Split(c.rest(), "HTTP/1.1 ")
			status, _, _ := strings.Cut(responses[len(responses)-1], " ")
			authority := ""
			for len(served) > 0 {
				authority = <-served
			}
			if got := status + " " + authority; got != test.want {
				t.Errorf("status and authority %q, want %q", got, test.want)
			}
		})
	}
}

// TestTargetNotServedPreventsUpgrade verifies that a rejected target does not switch the connection
// to HTTP/2, which would serve the request.
func TestTargetNotServedPreventsUpgrade(t *testing.T) {
	upgrader := &echoUpgrader{upgrades: make(chan string, 1)}
	proxy := newTestProxy(t, func(o *stream.ServerOptions) {
		o.HTTP1.Accept = config.HTTP1Accept{RejectAbsoluteForm: true}
		o.H2C = upgrader
	})
	c := proxy.dial()
	c.send("GET http://h/a HTTP/1.1\r\n" + h2cHeaders + "\r\n")
	if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
		t.Errorf("response = %q, want 404", got)
	}
	_ = c.Close()
	if len(upgrader.upgrades) > 0 {
		t.Errorf("the HTTP/2 engine got %q, want nothing", <-upgrader.upgrades)
	}
}
