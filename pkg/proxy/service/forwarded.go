package service

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Forwarded performs the duties of an intermediary: it adds Via to requests and responses (RFC 9110
// 7.6.3), handles Max-Forwards (7.6.2), and sets the X-Forwarded headers, including the client
// certificate (forwarded_cert.go), as configured in p. It determines the client address and removes
// headers that clients may not send (sanitize_headers.go). It rejects CONNECT with 405 unless p
// allows it. From RPC requests it removes only the headers that override timeouts.
func Forwarded(next protocol.Service, p *config.Proxy) protocol.Service {
	o := &p.HTTP1
	f := &forwarded{next: next, sanitizer: newHeaderSanitizer(p.ClientHeaders, o), trustsScheme: p.ForwardedScheme, forwardedMode: o.XForwarded, addsHost: o.XForwardedHost, protoMode: o.XForwardedProto, certConfig: o.XFCC, allowConnect: o.AllowConnect}
	if o.XFFClientIndex > 0 {
		client := match.NewClientAddr(forwardedFor, o.XFFClientIndex-1)
		if o.XFFBareAddressOnly {
			client = client.WithBareAddresses()
		}
		f.client = &client
	}
	f.envoy, f.separator = p.ClientHeaders.Envoy, ", "
	if f.envoy != nil {
		f.separator = ","
		f.detectors = newClientDetectors(f.envoy.Detection)
	}
	if o.Via != "" {
		f.via = &via{name: o.Via, v10: "1.0 " + o.Via, v11: "1.1 " + o.Via}
	}
	return f
}

type forwarded struct {
	next          protocol.Service
	via           *via // nil: no Via is added
	forwardedMode config.ForwardedMode
	addsHost      bool // a mode that adds headers also adds X-Forwarded-Host
	protoMode     config.ForwardedProtoMode
	client        *match.ClientAddr // nil: the client is the direct peer
	certConfig    config.XFCC
	allowConnect  bool
	sanitizer     headerSanitizer
	trustsScheme  bool   // X-Forwarded-Proto sets the scheme
	separator     string // between addresses that f appends to X-Forwarded-For
	detectors     []clientDetector
	envoy         *config.EnvoyHeaders // nil: the rules of Envoy do not apply
}

// Start implements protocol.Service.
func (f *forwarded) Start(ctx context.Context, x *protocol.Exchange) error {
	switch x.Request.Method {
	case "": // RPC: only attachments that override timeouts are removed
		f.sanitizer.removeTimeoutOverrides(&x.Request.Header)
		return f.next.Start(ctx, x)
	case "CONNECT":
		if !f.allowConnect {
			rejectMethod(x, "CONNECT is not allowed here\n")
			x.Record.Reason = protocol.ReasonDenied
			return nil
		}
	case "TRACE", "OPTIONS":
		if f.handleMaxForwards(x) {
			return nil
		}
	}
	var detected *detectedClient
	if len(f.detectors) > 0 {
		client, status := f.detectClient(x)
		if status != 0 {
			x.LocalReply(status, "", "")
			x.Record.Reason = protocol.ReasonDenied
			return nil
		}
		detected = &client
	} else if f.client != nil {
		f.setClient(x)
	}
	f.sanitizer.sanitize(x, detected)
	f.setForwardedHeaders(x)
	if f.envoy != nil {
		f.setEnvoyHeaders(x)
	}
	if f.trustsScheme {
		setSchemeFromProto(x)
	}
	setClientCertHeader(&x.Request.Header, x.Meta.Conn, &f.certConfig)
	if f.via != nil {
		x.Request.Header.Add("Via", f.via.valueFor(x.Meta.Version))
		x.PushFinisher(f)
	}
	return f.next.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (f *forwarded) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil && x.Response.Source == protocol.UpstreamResponse && x.Response.Version != "" {
		x.Response.Header.Add("Via", f.via.valueFor(x.Response.Version))
	}
	return err
}

// allowedMethods is the Allow header of local replies to CONNECT, TRACE and OPTIONS.
const allowedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// rejectMethod responds with 405 and the list of allowed methods (RFC 9110 15.5.6).
func rejectMethod(x *protocol.Exchange, body string) {
	x.LocalReply(405, "text/plain; charset=utf-8", body)
	x.Response.Header.Add("Allow", allowedMethods)
}

// handleMaxForwards decrements Max-Forwards. At 0 it responds in place of the origin server and
// returns true.
func (f *forwarded) handleMaxForwards(x *protocol.Exchange) bool {
	text, ok := x.Request.Header.Lookup("Max-Forwards")
	if !ok {
		return false
	}
	hops, err := strconv.ParseUint(text, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange): // hops is the maximum of its type
	case err != nil:
		return false // forward a header that does not parse
	case hops == 0 && x.Request.Method == "TRACE":
		rejectMethod(x, "TRACE is not allowed here\n") // the response could show credentials
		return true
	case hops == 0:
		x.LocalReply(204, "", "")
		x.Response.Header.Add("Allow", allowedMethods)
		return true
	}
	x.Request.Header.Set("Max-Forwards", strconv.FormatUint(hops-1, 10))
	return false
}

// Headers that tell the upstream about the client.
const (
	forwardedFor   = "X-Forwarded-For"
	forwardedProto = "X-Forwarded-Proto"
	forwardedHost  = "X-Forwarded-Host"
)

// setClient sets the client that trusted proxies name. It ignores a value that is not an address.
func (f *forwarded) setClient(x *protocol.Exchange) {
	if addr, err := f.client.Address(x); err == nil && addr.Unmap() != match.RemoteAddr(x).Unmap() {
		x.Meta.Client = addr
	}
}

// setForwardedHeaders sets the X-Forwarded headers as the modes require.
func (f *forwarded) setForwardedHeaders(x *protocol.Exchange) {
	h := &x.Request.Header
	switch f.protoMode {
	case config.ForwardedProtoDefault:
	case config.ForwardedProtoAdd:
		addProto(h, x)
	case config.ForwardedProtoSet:
		h.Del(forwardedProto)
		addProto(h, x)
	}
	switch f.forwardedMode {
	case config.ForwardedKeep:
		return
	case config.ForwardedAppend:
		f.addClient(h, x)
	case config.ForwardedSet:
		stripForwardedHeaders(h)
		f.addClient(h, x)
	case config.ForwardedStrip:
		stripForwardedHeaders(h)
	}
}

func stripForwardedHeaders(h *protocol.Header) {
	h.Del(forwardedFor)
	h.Del(forwardedProto)
	h.Del(forwardedHost)
}

// addClient appends the remote address of the connection to X-Forwarded-For. It adds
// X-Forwarded-Proto and, if addsHost is set, X-Forwarded-Host, unless the request has them. The
// scheme comes from the connection, because the client controls the scheme of the request (:scheme,
// or a request target in absolute form).
func (f *forwarded) addClient(h *protocol.Header, x *protocol.Exchange) {
	f.appendForwardedFor(h, x)
	addProto(h, x)
	if _, ok := h.Lookup(forwardedHost); f.addsHost && !ok && x.Request.Authority != "" {
		h.Add(forwardedHost, x.Request.Authority)
	}
}

// appendForwardedFor appends the remote address of the connection to X-Forwarded-For.
func (f *forwarded) appendForwardedFor(h *protocol.Header, x *protocol.Exchange) {
	ip := x.Meta.Conn.RemoteIP
	switch {
	case ip != "":
	case f.envoy != nil:
		return // unix socket
	default:
		ip = "unknown" // unix socket
	}
	if previous := joinValues(h, forwardedFor, f.separator); previous != "" {
		ip = previous + f.separator + ip
	}
	h.Set(forwardedFor, ip)
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

// setSchemeFromProto sets the scheme of an HTTP/1.1 request to X-Forwarded-Proto if that is http or
// https. An HTTP/2 request carries its own scheme.
func setSchemeFromProto(x *protocol.Exchange) {
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

// joinValues joins the values of all headers with that name (RFC 9110 5.3).
func joinValues(h *protocol.Header, name, separator string) string {
	joined := ""
	for field, value := range h.All() {
		switch {
		case value == "" || !protocol.EqualFold(field, name):
		case joined == "":
			joined = value
		default:
			joined += separator + value
		}
	}
	return joined
}

// via holds precomputed values of the Via header.
type via struct{ name, v10, v11 string }

// valueFor returns the Via value for a message received with that version.
func (v *via) valueFor(version string) string {
	switch version {
	case "HTTP/1.1":
		return v.v11
	case "HTTP/1.0":
		return v.v10
	}
	return strings.TrimPrefix(version, "HTTP/") + " " + v.name
}
