package proxy

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Forwarded does what an intermediary owes its neighbours: Via both ways (RFC
// 9110 7.6.3), Max-Forwards (7.6.2) and the X-Forwarded fields, of which one tells of the
// caller's certificate (forwarded_cert.go), each as o says. It finds who the client is.
// RPC passes untouched. CONNECT is refused with 405 unless o allows it to be routed.
func Forwarded(next protocol.Service, o config.HTTP1Options) protocol.AsyncService {
	return newForwarded(next, o)
}

func newForwarded(next protocol.Service, o config.HTTP1Options) *forwarded {
	f := &forwarded{next: protocol.Async(next), mode: o.XForwarded, host: o.ForwardedHost, proto: o.ForwardedProto, cert: o.ClientCert, connect: o.AllowConnect}
	if o.ClientHop > 0 {
		client := match.NewClient(forwardedFor, o.ClientHop-1)
		if o.ClientPlain {
			client = client.Plain()
		}
		f.client = &client
	}
	if o.Via != "" {
		f.via = &via{name: o.Via, v10: "1.0 " + o.Via, v11: "1.1 " + o.Via}
	}
	return f
}

type forwarded struct {
	next    protocol.AsyncService
	via     *via // nil: none is added
	mode    config.ForwardedMode
	host    bool // mode adds X-Forwarded-Host
	proto   config.ProtoMode
	client  *match.ClientAddr // nil: it is the connection's other end
	cert    config.ClientCert
	connect bool
	fields  callerFields
	scheme  bool // X-Forwarded-Proto is trusted to name the scheme
}

// Serve is protocol.Service's.
func (f *forwarded) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, f, x)
}

// Start is protocol.AsyncService's.
func (f *forwarded) Start(ctx context.Context, x *protocol.Exchange) error {
	switch x.Request.Method {
	case "": // RPC has no such fields, but attachments that override timeouts
		f.fields.removeOverrides(&x.Request.Header)
		return f.next.Start(ctx, x)
	case "CONNECT":
		if !f.connect {
			refuseMethod(x, "CONNECT is not allowed here\n")
			x.Record.Reason = protocol.ReasonDenied
			return nil
		}
	case "TRACE", "OPTIONS":
		if f.lastHop(x) {
			return nil
		}
	}
	if f.client != nil {
		f.find(x)
	}
	f.fields.apply(x)
	f.addresses(x)
	if f.scheme {
		forwardedScheme(x)
	}
	certify(&x.Request.Header, x.Meta.Conn, &f.cert)
	if f.via != nil {
		x.Request.Header.Add("Via", f.via.received(x.Meta.Version))
		x.PushFinisher(f)
	}
	return f.next.Start(ctx, x)
}

// Finish is protocol.Finisher's.
func (f *forwarded) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil && x.Response.Source == protocol.UpstreamResponse && x.Response.Version != "" {
		x.Response.Header.Add("Via", f.via.received(x.Response.Version))
	}
	return err
}

// allowed are the methods that Weft passes on without being asked.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// refuseMethod answers 405, which lists what would be accepted (RFC 9110
// 15.5.6).
func refuseMethod(x *protocol.Exchange, why string) {
	x.LocalReply(405, "text/plain; charset=utf-8", why)
	x.Response.Header.Add("Allow", allowed)
}

// lastHop counts Max-Forwards down, and answers in the origin's stead at 0.
func (f *forwarded) lastHop(x *protocol.Exchange) bool {
	text, ok := x.Request.Header.Lookup("Max-Forwards")
	if !ok {
		return false
	}
	hops, err := strconv.ParseUint(text, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange): // hops is the most that we can count
	case err != nil:
		return false // a field that does not parse is not ours to judge
	case hops == 0 && x.Request.Method == "TRACE":
		refuseMethod(x, "TRACE is not answered here\n") // it could show credentials
		return true
	case hops == 0:
		x.LocalReply(204, "", "")
		x.Response.Header.Add("Allow", allowed)
		return true
	}
	x.Request.Header.Set("Max-Forwards", strconv.FormatUint(hops-1, 10))
	return false
}

// The fields that tell the upstream of the caller.
const (
	forwardedFor   = "X-Forwarded-For"
	forwardedProto = "X-Forwarded-Proto"
	forwardedHost  = "X-Forwarded-Host"
)

// find keeps the client that trusted proxies name. What is no address names none.
func (f *forwarded) find(x *protocol.Exchange) {
	if addr, err := f.client.Address(x); err == nil && addr.Unmap() != match.Peer(x).Unmap() {
		x.Meta.Client = addr
	}
}

// addresses brings the X-Forwarded fields into the form that the mode asks for.
func (f *forwarded) addresses(x *protocol.Exchange) {
	h := &x.Request.Header
	switch f.proto {
	case config.ProtoAsForwarded:
	case config.ProtoAdd:
		addProto(h, x)
	case config.ProtoSet:
		h.Del(forwardedProto)
		addProto(h, x)
	}
	switch f.mode {
	case config.ForwardedKeep:
		return
	case config.ForwardedAppend:
		f.addCaller(h, x)
	case config.ForwardedSet:
		stripCaller(h)
		f.addCaller(h, x)
	case config.ForwardedStrip:
		stripCaller(h)
	}
}

func stripCaller(h *protocol.Header) {
	h.Del(forwardedFor)
	h.Del(forwardedProto)
	h.Del(forwardedHost)
}

// addCaller appends the caller's address to those that are there, and tells how it
// came to us, and what it asked for, unless a proxy before us has. Whether it came over
// TLS is seen, not taken from the scheme, which is what the caller says (:scheme, or an
// absolute form).
func (f *forwarded) addCaller(h *protocol.Header, x *protocol.Exchange) {
	ip := x.Meta.Conn.RemoteIP
	if ip == "" {
		ip = "unknown" // a unix socket
	}
	if before := list(h, forwardedFor); before != "" {
		ip = before + ", " + ip
	}
	h.Set(forwardedFor, ip)
	addProto(h, x)
	if _, ok := h.Lookup(forwardedHost); f.host && !ok && x.Request.Authority != "" {
		h.Add(forwardedHost, x.Request.Authority)
	}
}

func addProto(h *protocol.Header, x *protocol.Exchange) {
	if _, ok := h.Lookup(forwardedProto); ok {
		return
	}
	proto := "http"
	if x.Meta.Conn.Secure {
		proto = "https"
	}
	h.Add(forwardedProto, proto)
}

// forwardedScheme makes the scheme of an HTTP/1.1 request what X-Forwarded-Proto says, if
// that is a scheme of HTTP. A request of HTTP/2 says its scheme itself.
func forwardedScheme(x *protocol.Exchange) {
	if x.Meta.Protocol != string(config.HTTP1) {
		return
	}
	proto, _ := x.Request.Header.Lookup(forwardedProto)
	switch {
	case protocol.EqualFold(proto, "https"):
		x.Request.Scheme = "https"
	case protocol.EqualFold(proto, "http"):
		x.Request.Scheme = "http"
	}
}

// list returns the values of all fields called name as one (RFC 9110 5.3).
func list(h *protocol.Header, name string) string {
	all := ""
	for field, value := range h.All() {
		switch {
		case value == "" || !protocol.EqualFold(field, name):
		case all == "":
			all = value
		default:
			all += ", " + value
		}
	}
	return all
}

// via is the values of the Via field, made once.
type via struct{ name, v10, v11 string }

// received returns the value that says in which version a message was received.
func (v *via) received(version string) string {
	switch version {
	case "HTTP/1.1":
		return v.v11
	case "HTTP/1.0":
		return v.v10
	}
	return strings.TrimPrefix(version, "HTTP/") + " " + v.name
}
