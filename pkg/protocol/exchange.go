// Package protocol owns what every wire protocol has in common: one request
// and its answer (Exchange), who answers it (Service), and why it failed
// (Reason, Fault). It is pure: no sockets, no locks, no clock.
package protocol

import (
	"io"
	"net/netip"
	"time"
)

// Exchange is one request and its answer.
//
// The stream engine that read the request owns it: it takes the exchange from
// its pool, hands it to a Service, writes the answer and takes it back. A
// Service uses it from the goroutine that called Serve (or Start, or Finish) and
// keeps nothing of it after Serve returns; the one exception is a streamed upload, which may read
// Request.Body until Response.Body is closed.
//
// Every string in it may be a view of an engine's buffer, valid only as long as
// the exchange is: strings.Clone what must be kept. See docs/ownership.md.
//
// A field belongs here only if both an engine and a filter need it.
type Exchange struct {
	Request  Request
	Response Response
	Meta     Meta
	Record   Record
	Metadata Metadata

	// Deadline is when the caller stops waiting; the zero time means never.
	// Timeout narrows it.
	Deadline time.Time
	// PerTryDeadline is when the attempt that is under way is given up; the zero time
	// means at Deadline. Retry sets it.
	PerTryDeadline time.Time
	// IdleTimeout is how long the exchange may go without a byte: of the request, unless the
	// answer moves meanwhile, then of the answer, then of the tunnel; 0: for ever. The engine
	// that read the request sets it.
	IdleTimeout time.Duration

	// Caller is the engine's side of the exchange. Never nil in an engine's
	// exchange; may be nil in a test.
	Caller Downstream

	text      StringBody // storage of Reply's body
	finishers []Finisher // what is left to do when there is an answer, the outermost first; reused storage
}

// Downstream is what a service may ask of the engine that read the request.
type Downstream interface {
	// SendInterim sends an informational (1xx) response at once. Fields are views,
	// used before it returns. An error means that the caller is gone.
	SendInterim(status int, header *Header) error

	// OnDisconnect calls gone, from another goroutine and at most once, when the
	// caller goes away before its answer was written. stop ends the watch and
	// returns after gone has returned or can no longer be called. It costs a
	// goroutine for HTTP/1: ask only when the answer is slow.
	OnDisconnect(gone func()) (stop func())
}

// Request is what the caller asked for. RPC protocols fill the same view as
// HTTP: Authority is the interface, Path is "/interface/method", Header holds
// the attachments and service, method, version and group, and the HTTP method is "".
type Request struct {
	Method    string // case-sensitive (RFC 9110 9.1)
	Scheme    string // "http" or "https"
	Authority string // Host field or :authority, port included, as sent
	Path      string // path and query as on the wire, percent-encoding untouched; "*" for OPTIONS *; "" for CONNECT
	Message

	// Upgrade is the protocol that the request asks to switch to ("websocket";
	// RFC 9110 7.8), "" for none.
	Upgrade string
	// ExpectContinue: the caller waits for a 100 before it sends the body
	// (RFC 9110 10.1.1).
	ExpectContinue bool

	// OneWay: the caller wants no answer, errors included. RPC protocols only.
	OneWay bool
	// Serialization is how an RPC request's arguments are written: "hessian2";
	// "" for HTTP.
	Serialization string
}

// Response is the answer. The service that sets it fills Status first.
type Response struct {
	Status int // HTTP status, of RPC answers their HTTP view; 0 while there is no answer
	// Code is the status in the RPC protocol's own numbers; NoCode for HTTP, and
	// while there is no answer.
	Code int
	// Version is what the answer was received in, as Meta.Version is of the
	// request; "" for Weft's own.
	Version string
	// Source says who made the answer. An engine's client sets it when it has read
	// the head of an answer; every reset sets it back to LocalReply.
	Source ResponseSource
	Message

	// Tunnel is set instead of Body when the connection switched protocols
	// (101, or 2xx to CONNECT). The engine pumps and closes it.
	Tunnel Tunnel

	// The content or the tunnel that the upstream's engine made, until it is closed: Body
	// and Tunnel may be what filters have wrapped around them.
	engineBody   Body
	engineTunnel Tunnel
}

// SetBody makes b, which reads from an upstream, the content; nil: there is none. If a
// filter wraps b and its Close panics before it closes b, ResetResponse closes b. The Close
// of b calls BodyClosed.
func (r *Response) SetBody(b Body) { r.Body, r.engineBody = b, b }

// BodyClosed removes b, which SetBody has set, so that nothing closes it again.
func (r *Response) BodyClosed(b Body) {
	if r.Body == b {
		r.Body = nil
	}
	if r.engineBody == b {
		r.engineBody = nil
	}
}

// SetTunnel is SetBody for a tunnel. Its Close may be called more than once.
func (r *Response) SetTunnel(t Tunnel) { r.Tunnel, r.engineTunnel = t, t }

// TakeTunnel removes and returns the tunnel. If a filter wraps the tunnel that SetTunnel has
// set, Close of the result closes both, even if the filter's panics.
func (r *Response) TakeTunnel() Tunnel {
	t := r.Tunnel
	r.Tunnel = nil
	if r.engineTunnel == nil || t == r.engineTunnel {
		return t
	}
	return filteredTunnel{t, r.engineTunnel}
}

// filteredTunnel is a filter's tunnel that wraps that of an engine.
type filteredTunnel struct {
	Tunnel
	inner io.Closer
}

// SetReadDeadline bounds the next reads, if the filter's tunnel can.
func (f filteredTunnel) SetReadDeadline(at time.Time) {
	if t, ok := f.Tunnel.(interface{ SetReadDeadline(at time.Time) }); ok {
		t.SetReadDeadline(at)
	}
}

// Close is Tunnel's.
func (f filteredTunnel) Close() error {
	defer f.inner.Close() //nolint:errcheck // the filter's Close returns the error
	return f.Tunnel.Close()
}

// drop closes the content and the tunnel of an upstream, if they are still open, and resets r.
func (r *Response) drop() {
	if r.engineBody == nil && r.engineTunnel == nil {
		r.reset()
		return
	}
	defer r.reset()
	if b := r.engineBody; b != nil {
		r.engineBody = nil
		_ = b.Close() // the response is not wanted: nothing to report it to
	}
	if t := r.engineTunnel; t != nil {
		r.engineTunnel = nil
		_ = t.Close()
	}
}

// ResponseSource says who made an answer.
type ResponseSource uint8

// The sources of an answer.
const (
	// LocalReply is an answer of Weft's own: a fault, a filter's reply, a redirect.
	// It is the source of a Response that no upstream has answered.
	LocalReply ResponseSource = iota
	// UpstreamResponse is an answer of a host's, also where filters changed it.
	UpstreamResponse
)

// NoCode is the Code of an answer that has none.
const NoCode = -1

// Message is what requests and responses share.
type Message struct {
	// Header holds the end-to-end fields in wire order and case. Host, the
	// framing fields (Content-Length, Transfer-Encoding, Trailer as framing)
	// and the connection's own fields (RFC 9110 7.6.1) are never in it: they
	// are Authority, ContentLength and the engine's business. The exception is the
	// field "TE: trailers" of a request, which filters and routes can match; the
	// engine decides whether to send it (RFC 9110 10.1.4).
	Header Header

	// Body is the content; nil for none. The engine closes a Response.Body
	// exactly once, also that of an answer which has no content (to HEAD, 204,
	// 304): closing releases what the answer holds of an upstream.
	Body Body

	// ContentLength is the declared length of the content in bytes, -1 if not
	// declared. An answer to HEAD may declare the length that GET would have.
	ContentLength int64

	// Trailer holds the trailer fields; complete once Body returned io.EOF.
	Trailer Header
}

// Meta is what is known of a request beside its content.
type Meta struct {
	Conn *ConnMeta // shared by the exchanges of one connection; immutable
	// Client is the address that the request came from at first, as proxies say that are
	// trusted; the zero Addr: none has said it, it is Conn's Remote.
	Client   netip.Addr
	Protocol string    // the caller's protocol as config.json names it: "Http1"
	Version  string    // as in an access log: "HTTP/1.1"
	Start    time.Time // when the first byte of the request was read
	HeadSize int       // bytes of the request head on the wire
}

// ClientIP returns the address that the request came from at first, as text: Client, or
// Conn's Remote. "" if there is none.
func (m *Meta) ClientIP() string {
	switch {
	case m.Client.IsValid():
		return m.Client.String()
	case m.Conn == nil:
		return ""
	}
	return m.Conn.RemoteIP
}

// ConnMeta is what is known of a downstream connection.
type ConnMeta struct {
	ID       uint64 // unique in the process
	Listener string
	Local    netip.AddrPort // zero for unix sockets
	Remote   netip.AddrPort // zero for unix sockets
	// Redirected: Local is where the caller was going, which is known to be another
	// address than the socket's own: the kernel or Peer has said it.
	Redirected bool
	// LocalText and RemoteText are the addresses as text, made once.
	LocalText, RemoteText string
	// RemoteIP is Remote without its port, as text.
	RemoteIP string
	// ProxyAddr is the proxy that said what Local and Remote are, by a PROXY protocol header:
	// the connection's other end, the zero AddrPort of a unix socket. nil: Remote is.
	ProxyAddr *netip.AddrPort
	Secure    bool // over TLS
	TLS       *TLS // nil: plaintext
	// DownstreamConn is the connection itself: one and the same for as long as it is open,
	// while ConnMeta may be made anew. nil if there is none.
	DownstreamConn DownstreamConn
}

// DirectRemote returns the address of the connection's other end, whoever that speaks for;
// the zero AddrPort of a unix socket.
func (m *ConnMeta) DirectRemote() netip.AddrPort {
	if m.ProxyAddr != nil {
		return *m.ProxyAddr
	}
	return m.Remote
}

// DownstreamConn is a connection that services can be bound to. Values are comparable.
type DownstreamConn interface {
	// OnClose has f called once the connection has ended, by whoever ends it; at
	// once if it has. f must not wait. stop takes that back; it may come too late.
	OnClose(f func()) (stop func())
}

// Detacher is a Caller whose other exchanges wait while a service is busy with
// this one: the engine serves them one after the other, on one goroutine, each
// until it waits for its upstream.
type Detacher interface {
	// Detach goes on on a goroutine of the exchange's own, if it is not on one
	// already.
	Detach()
}

// Detach is to be called by a service that is about to wait for something other
// than the answer of a stream engine's client: a timer, a connect, a free slot.
func (x *Exchange) Detach() {
	if d, ok := x.Caller.(Detacher); ok {
		d.Detach()
	}
}

// Cancellable is a Caller that knows without waiting whether its exchange was canceled.
type Cancellable interface {
	// Canceled reports whether the caller has gone, or its time is up. Safe from any
	// goroutine; it costs an atomic load.
	Canceled() bool
}

// Canceled reports whether the caller is known to want no answer any more. A service
// asks before it begins something that costs, such as a connect; one that is about to
// wait uses Caller.Watch, which reports what happens later.
func (x *Exchange) Canceled() bool {
	c, ok := x.Caller.(Cancellable)
	return ok && c.Canceled()
}

// ContentCloser is a Caller that can close the content of its request without the bodies
// that filters have put around it.
type ContentCloser interface {
	// CloseContent is Body.Close of the content as the engine reads it.
	CloseContent()
}

// CloseContent closes body, the content of x's request, so that a Read of it on another
// goroutine ends. If body is a filter's and panics, the Caller closes the content that it
// wraps. The error is the panic.
func (x *Exchange) CloseContent(body Body) (err error) {
	defer func() {
		if c, ok := x.Caller.(ContentCloser); ok && err != nil {
			c.CloseContent()
		}
	}()
	defer RecoverPanic(&err)
	_ = body.Close() // the goroutine that reads it gets the error
	return nil
}

// Named is a configured thing that exchanges pass: a route, a cluster, a host.
// Values are comparable.
type Named interface {
	// Name is for logs; stable for the life of the place.
	Name() string
}

// Attempt is one try to get an answer from a host.
type Attempt struct {
	Host   Named
	Local  string // our end of the connection, as text; "" if there was none, or nobody knows
	TLS    *TLS   // of the connection to it; nil: plaintext, or there was none
	Reason Reason // why it failed; None if it answered
	Status int    // what it answered; 0 for nothing
}

// Record is what happened, for access log and metrics.
type Record struct {
	Reason Reason // why Weft answered by itself or ended the exchange; None otherwise
	Flags  Flags  // what else happened
	Detail string // one line for people, from the fault

	// Listener is what serves the exchange; set by the first service, whose engine
	// has each exchange that it serves accounted for, once. nil: no
	// service has seen it.
	Listener Named

	Method  Named // of an RPC request, as its caller named it; nil: not known
	Route   Named // nil: no route matched
	Cluster Named // nil: none was reached
	// TargetCluster is the name of the cluster that the route chose, known before it is
	// reached; "" for a route that answers by itself.
	TargetCluster string

	// WeightedIndex is the place of the route's weighted cluster that was chosen, from 0.
	WeightedIndex int
	// Hash is the same for exchanges that a consistent hash is to keep together, as the
	// route says; 0: there is nothing to go by.
	Hash uint64

	// Attempts lists the hosts tried, in order; the last one answered, or
	// failed last. Reused storage.
	Attempts []Attempt

	OriginalPath      string // the path before a rewrite; "" if it was not rewritten
	OriginalAuthority string // the same of the authority; see Exchange.RewriteAuthority

	RequestBytes  int64 // content bytes read from the caller
	ResponseBytes int64 // content bytes written to the caller

	UpstreamStart     time.Time // the last attempt was sent
	UpstreamFirstByte time.Time // its response head was read
	End               time.Time // the last byte of the answer was written
}

// Host returns the host of the last attempt, nil if there was none.
func (r *Record) Host() Named {
	if len(r.Attempts) == 0 {
		return nil
	}
	return r.Attempts[len(r.Attempts)-1].Host
}

// BeginAttempt appends an attempt at host. It clears the times of the attempt before,
// so that they never pass for those of an attempt that does not reach its host.
func (r *Record) BeginAttempt(host Named) {
	r.Attempts = append(r.Attempts, Attempt{Host: host})
	r.UpstreamStart, r.UpstreamFirstByte = time.Time{}, time.Time{}
}

// Tried reports whether an attempt was made at host.
func (r *Record) Tried(host Named) bool {
	for i := range r.Attempts {
		if r.Attempts[i].Host == host {
			return true
		}
	}
	return false
}

// EffectiveDeadline is when waiting for an answer ends: the nearer deadline. Upstream streams
// and pools wait until it; the zero time means for ever.
func (x *Exchange) EffectiveDeadline() time.Time {
	if d := x.PerTryDeadline; !d.IsZero() && (x.Deadline.IsZero() || d.Before(x.Deadline)) {
		return d
	}
	return x.Deadline
}

// Reset makes x ready for the next request. It keeps storage and Caller.
func (x *Exchange) Reset() {
	x.Request.reset()
	x.Response.reset()
	x.Meta = Meta{Conn: x.Meta.Conn}
	clear(x.Record.Attempts)
	x.Record = Record{Attempts: x.Record.Attempts[:0]}
	x.Metadata.reset()
	x.Deadline, x.PerTryDeadline, x.IdleTimeout = time.Time{}, time.Time{}, 0
	clear(x.finishers) // there are none left, unless an engine gave x up
	x.finishers = x.finishers[:0]
}

// ResetResponse drops the answer so that another can take its place; it closes
// the body, which releases the upstream. The answer is dropped, and the upstream released,
// also if Close panics.
func (x *Exchange) ResetResponse() {
	defer x.Response.drop()
	if x.Response.Body != nil {
		_ = x.Response.Body.Close() // the answer is not wanted: nothing to report it to
	}
	if x.Response.Tunnel != nil {
		_ = x.Response.Tunnel.Close()
	}
}

// LocalReply makes an answer of Weft's own: nothing of the request is in it.
func (x *Exchange) LocalReply(status int, contentType, body string) {
	x.ResetResponse()
	x.Response.Status = status
	if contentType != "" && body != "" {
		x.Response.Header.Add("Content-Type", contentType)
	}
	x.Response.ContentLength = int64(len(body))
	if body != "" {
		x.text = StringBody{text: body}
		x.Response.Body = &x.text
	}
}

// LocalReplyError makes the answer that tells the caller of err, in the terms of err's
// Reason, and records it. The detail goes to the log only: it may hold what the
// caller must not see.
func (x *Exchange) LocalReplyError(err error) {
	reason := ReasonOf(err)
	x.Record.Reason = reason
	x.Record.Detail = err.Error()
	t := reason.Traits()
	x.LocalReply(t.HTTP, "text/plain; charset=utf-8", t.Text+"\n")
	if reason == Overflow {
		x.Response.Header.Add(overloadedField, "true")
	}
}

// Abandon records that the caller has left before there was a response. Unlike Fail it
// makes no response, because no caller can read it, and allocates nothing.
func (x *Exchange) Abandon(detail string) {
	x.Record.Reason, x.Record.Detail = ReasonDownstreamDisconnect, detail
	x.LocalReply(ReasonDownstreamDisconnect.Traits().HTTP, "", "")
}

// overloadedField tells callers that the request was dropped by a circuit breaker, so that
// they do not try again at once; its name is Envoy's.
const overloadedField = "x-envoy-overloaded"

func (r *Request) reset() {
	r.Message.reset()
	r.Method, r.Scheme, r.Authority, r.Path, r.Upgrade = "", "", "", "", ""
	r.ExpectContinue, r.OneWay = false, false
	r.Serialization = ""
}

func (r *Response) reset() {
	r.Message.reset()
	r.Status, r.Code, r.Version = 0, NoCode, ""
	r.Source, r.Tunnel = LocalReply, nil
	r.engineBody, r.engineTunnel = nil, nil
}

func (m *Message) reset() {
	m.Header.Reset()
	m.Trailer.Reset()
	m.Body = nil
	m.ContentLength = -1
}
