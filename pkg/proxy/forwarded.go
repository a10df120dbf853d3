package proxy

import (
	"context"
	"strconv"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Forwarded does what an intermediary owes its neighbours: Via (RFC 9110 7.6.3),
// Max-Forwards (7.6.2), and the X-Forwarded fields, each as configured. It
// returns next itself when nothing is asked for but Max-Forwards.
func Forwarded(next protocol.Service, o config.HTTP1Options) protocol.Service {
	return &forwarded{next: next, via: o.Via, mode: o.XForwarded, connect: o.AllowConnect}
}

type forwarded struct {
	next    protocol.Service
	via     string
	mode    config.ForwardedMode
	connect bool
}

func (f *forwarded) Serve(ctx context.Context, x *protocol.Exchange) error {
	switch x.Request.Method {
	case "CONNECT":
		if !f.connect {
			x.Reply(405, "text/plain; charset=utf-8", "CONNECT is not allowed here\n")
			x.Record.Reason = protocol.Denied
			return nil
		}
	case "TRACE", "OPTIONS":
		if f.lastHop(x) {
			return nil
		}
	}
	f.addresses(x)
	if f.via == "" {
		return f.next.Serve(ctx, x)
	}
	appendVia(&x.Request.Header, x.Meta.Version, f.via)
	if err := f.next.Serve(ctx, x); err != nil {
		return err
	}
	if len(x.Record.Attempts) > 0 {
		appendVia(&x.Response.Header, "HTTP/1.1", f.via)
	}
	return nil
}

// lastHop counts Max-Forwards down, and answers in the origin's stead at 0.
func (f *forwarded) lastHop(x *protocol.Exchange) bool {
	text, ok := x.Request.Header.Lookup("Max-Forwards")
	if !ok {
		return false
	}
	hops, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err != nil:
		return false // a field that does not parse is not ours to judge
	case hops > 0:
		x.Request.Header.Set("Max-Forwards", strconv.FormatUint(hops-1, 10))
		return false
	case x.Request.Method == "TRACE":
		x.Reply(405, "text/plain; charset=utf-8", "TRACE is not answered here\n") // it could show credentials
		return true
	}
	x.Reply(204, "", "")
	x.Response.Header.Add("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	return true
}

// addresses sets the X-Forwarded fields.
func (f *forwarded) addresses(x *protocol.Exchange) {
	h := &x.Request.Header
	switch f.mode {
	case config.ForwardedKeep:
		return
	case config.ForwardedStrip, config.ForwardedSet:
		h.Del("X-Forwarded-For")
		h.Del("X-Forwarded-Proto")
		h.Del("X-Forwarded-Host")
	}
	if f.mode == config.ForwardedStrip {
		return
	}
	ip := x.Meta.Conn.RemoteIP
	if ip == "" {
		ip = "unknown" // a unix socket
	}
	if before, ok := h.Lookup("X-Forwarded-For"); ok && before != "" {
		ip = before + ", " + ip
	}
	h.Set("X-Forwarded-For", ip)
	if _, ok := h.Lookup("X-Forwarded-Proto"); !ok {
		h.Add("X-Forwarded-Proto", x.Request.Scheme)
	}
	if _, ok := h.Lookup("X-Forwarded-Host"); !ok && x.Request.Authority != "" {
		h.Add("X-Forwarded-Host", x.Request.Authority)
	}
}

func appendVia(h *protocol.Header, version, name string) {
	h.Add("Via", version[len("HTTP/"):]+" "+name)
}
