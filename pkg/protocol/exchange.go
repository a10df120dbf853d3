// Package protocol defines what all wire protocols have in common: one request with its response
// (Exchange), the code that produces the response (Service), and the reasons of failures (Reason,
// Fault). It is pure: no sockets, no locks, no clock.
package protocol

import (
	"io"
	"net/netip"
	"time"
)

// Exchange is one request with its response.
//
// The stream engine that read the request owns it: the engine gets the exchange from its pool,
// passes it to a Service, writes the response and puts the exchange back. A Service uses the
// exchange only on the goroutine that called Start, Finish or Serve, and keeps no part of it. The
// one exception is a streamed upload, which may read Request.Body until Response.Body is closed.
//
// Every string in an Exchange may borrow an engine's buffer. A string of Response is valid until
// the response is closed, any other string until the exchange ends. Code that keeps a string clones
// it with strings.Clone. See docs/ownership.md.
//
// A field belongs here only if both an engine and a filter need it.
type Exchange struct {
	Request  Request
	Response Response
	Meta     Meta
	Record   Record
	Metadata Metadata

	// Deadline is when the request times out; the zero time means never. An engine sets the
	// deadline that the client requests; the timeout service applies the timeouts of the route.
	Deadline time.Time
	// PerTryDeadline is when the current attempt times out; the zero time means at Deadline. The
	// retry and hedge services set it.
	PerTryDeadline time.Time
	// IdleTimeout is the maximum time in which no byte arrives; 0 means no limit. It applies to the
	// request body (bytes of the response count too), then to the response, then to the tunnel. The
	// HTTP/1.1 engine sets it for the requests that it reads.
	IdleTimeout time.Duration

	// Downstream is the engine that read the request, or code in front of it. It is nil if no
	// client waits for the response, as for a health check or a mirrored request.
	Downstream Downstream

	// EnvoyReplies makes the local replies those of Envoy; nil: those of docs/errors.md. The engine
	// that read the request sets it.
	EnvoyReplies *EnvoyReplies

	localBody StringBody // storage of LocalReply's body
	finishers []Finisher // pushed by PushFinisher; run from the last to the first; the storage is reused
}

// Downstream is the engine that read the request, as services use it.
type Downstream interface {
	// SendInterim sends an interim (1xx) response immediately. It does not use header after it
	// returns, because the fields may borrow memory. An error means that the client disconnected.
	SendInterim(status int, header *Header) error

	// OnDisconnect calls f, from another goroutine and at most once, when the client disconnects
	// before its response was written. stop unregisters f; when stop returns, f has returned or
	// will not be called. With HTTP/1, a registered f costs a goroutine, so register it only for a
	// slow response.
	OnDisconnect(f func()) (stop func())
}

// Request is the request of the client. RPC protocols fill the same fields as HTTP. Authority is
// the interface, and Path is "/interface/method". Header holds service, method, version and group,
// then the attachments. Method, the HTTP method, is "".
type Request struct {
	Method    string // case-sensitive (RFC 9110 9.1)
	Scheme    string // "http" or "https"; "" for CONNECT over HTTP/2
	Authority string // authority of the target, or Host, port included, as sent
	Path      string // path and query as on the wire, percent-encoding untouched; "*" for OPTIONS *; "" for CONNECT
	Message

	// Upgrade is the protocol that the request asks to switch to ("websocket"; RFC 9110 7.8), with
	// HTTP/1.1 perhaps a list of several; "" for none.
	Upgrade string
	// ExpectContinue: the client waits for a 100 response before it sends the body (RFC 9110
	// 10.1.1).
	ExpectContinue bool

	// OneWay: the client wants no response, not even an error. RPC protocols only.
	OneWay bool
	// Serialization is the encoding of an RPC request's arguments, such as "hessian2"; "" for HTTP.
	Serialization string
}

// Response is the response to the request.
type Response struct {
	Status int // HTTP status, or the HTTP equivalent of an RPC status; 0 while there is no response
	// Code is the status in the RPC protocol's own numbers; NoCode for HTTP, and while there is no
	// response.
	Code int
	// Version is the protocol version of the response, in the form of Meta.Version; "" for a local
	// reply and for RPC.
	Version string
	// Source tells a local reply from an upstream response. The upstream connection sets
	// UpstreamResponse when it has read the head of a response; Exchange.ResetResponse sets
	// LocalReply.
	Source ResponseSource
	Message

	// Tunnel is set instead of Body when the connection switched protocols (101, or 2xx to
	// CONNECT). The engine that read the request relays the tunnel's bytes and closes the tunnel.
	Tunnel Tunnel

	// engineBody and engineTunnel are the body and the tunnel that the upstream's engine set, until
	// they are closed. Body and Tunnel may be wrappers that filters put around them.
	engineBody   Body
	engineTunnel Tunnel
}

// SetBody sets the body of an upstream response; nil means that the response has no body. b.Close
// must call BodyClosed. If a filter wraps b, and the wrapper panics in Close before it closes b,
// ResetResponse closes b.
func (r *Response) SetBody(b Body) { r.Body, r.engineBody = b, b }

// BodyClosed removes b, which SetBody has set, so that ResetResponse does not close b again.
func (r *Response) BodyClosed(b Body) {
	if r.Body == b {
		r.Body = nil
	}
	if r.engineBody == b {
		r.engineBody = nil
	}
}

// SetTunnel sets the tunnel of an upstream response, as SetBody sets the body. t.Close may be
// called more than once.
func (r *Response) SetTunnel(t Tunnel) { r.Tunnel, r.engineTunnel = t, t }

// TakeTunnel removes and returns the tunnel. If a filter wraps the tunnel that SetTunnel has set,
// Close of the result closes the wrapper and then the wrapped tunnel, even if the wrapper's Close
// panics.
func (r *Response) TakeTunnel() Tunnel {
	t := r.Tunnel
	r.Tunnel = nil
	if r.engineTunnel == nil || t == r.engineTunnel {
		return t
	}
	return filteredTunnel{t, r.engineTunnel}
}

// filteredTunnel is a filter's tunnel that wraps an engine's tunnel.
type filteredTunnel struct {
	Tunnel
	inner io.Closer
}

// SetReadDeadline sets the deadline of the next reads, if the filter's tunnel supports it.
func (f filteredTunnel) SetReadDeadline(deadline time.Time) {
	if t, ok := f.Tunnel.(interface{ SetReadDeadline(deadline time.Time) }); ok {
		t.SetReadDeadline(deadline)
	}
}

// Close implements Tunnel.
func (f filteredTunnel) Close() error {
	defer f.inner.Close() //nolint:errcheck // the filter's Close returns the error
	return f.Tunnel.Close()
}

// closeUpstream closes the body and the tunnel of an upstream, if they are still open, and resets
// r.
func (r *Response) closeUpstream() {
	if r.engineBody == nil && r.engineTunnel == nil {
		r.reset()
		return
	}
	defer r.reset()
	if b := r.engineBody; b != nil {
		r.engineBody = nil
		_ = b.Close() // the response is dropped, so the error does not matter
	}
	if t := r.engineTunnel; t != nil {
		r.engineTunnel = nil
		_ = t.Close()
	}
}

// ResponseSource is the source of a response: Weft or a host.
type ResponseSource uint8

// Sources of a response.
const (
	// LocalReply is a response that Weft generates: an error, the response of a filter, a redirect.
	// It is the source of a Response until an upstream has responded.
	LocalReply ResponseSource = iota
	// UpstreamResponse is the response of a host, even if filters changed it.
	UpstreamResponse
)

// NoCode is the Code of a response that has none.
const NoCode = -1

// Message holds the fields that requests and responses share.
type Message struct {
	// Header holds the end-to-end headers in wire order and case. It contains none of Host (see
	// Authority), Content-Length (see ContentLength), Transfer-Encoding and the connection headers,
	// which the engine handles (RFC 9110 7.6.1). There are two exceptions: "TE: trailers" of a
	// request, which filters and routes can match, although the engine decides whether to send it
	// (RFC 9110 10.1.4); and Upgrade of a 101 or 426.
	Header Header

	// Body is the body; nil if there is none. The engine closes a Response.Body exactly once, even
	// if the response has no body on the wire (to HEAD, 204, 304): Close releases the upstream
	// resources of the response.
	Body Body

	// ContentLength is the declared length of the body in bytes, -1 if not declared. A response to
	// HEAD may declare the length that GET would have.
	ContentLength int64

	// Trailer holds the trailer fields. It is complete once Body returned io.EOF.
	Trailer Header
}

// Meta describes a request apart from its message: where and when it arrived.
type Meta struct {
	Conn *ConnMeta // shared by the exchanges of one connection; immutable
	// Client is the original address of the client as trusted proxies report it. The zero Addr
	// means that none does: then Conn.Remote is the client.
	Client   netip.Addr
	Protocol string // the downstream protocol as config.json names it: "Http1"; Relayed for a connection
	Version  string // as in an access log: "HTTP/1.1"
	// Start is when the first byte of the request was read. For a pipelined HTTP/1.1 request, it is
	// when the exchange before it ended.
	Start    time.Time
	HeadSize int // bytes of the request head on the wire; 0 if it arrived in HTTP/2, and for RPC
}

// Relayed is the Protocol of an exchange that stands for a relayed connection in an access log.
const Relayed = "tcp"

// ClientIP returns the original address of the client as text: Client, or Conn.RemoteIP. It returns
// "" if there is none.
func (m *Meta) ClientIP() string {
	switch {
	case m.Client.IsValid():
		return m.Client.String()
	case m.Conn == nil:
		return ""
	}
	return m.Conn.RemoteIP
}

// ConnMeta describes a downstream connection.
type ConnMeta struct {
	ID       uint64 // unique in the process
	Listener string
	Local    netip.AddrPort // zero for unix sockets
	Remote   netip.AddrPort // zero for unix sockets
	// Redirected: Local is the original destination, which differs from the socket's own address.
	// The kernel or the proxy at ProxyAddr reported it.
	Redirected bool
	// LocalText and RemoteText are the addresses as text, formatted once.
	LocalText, RemoteText string
	// RemoteIP is Remote without its port, as text.
	RemoteIP string
	// ProxyAddr is the direct remote address of a proxy that sent Local and Remote in a PROXY
	// protocol header. It is the zero AddrPort for a unix socket, and nil if Remote is the direct
	// remote address.
	ProxyAddr *netip.AddrPort
	Secure    bool // over TLS
	TLS       *TLS // nil: plaintext
	// DownstreamConn identifies the connection: it stays the same while the connection is open,
	// although ConnMeta may be replaced. It is nil if no connection is behind the ConnMeta.
	DownstreamConn DownstreamConn
}

// DirectRemote returns the direct remote address: the address of the socket's peer, which may be a
// proxy. It returns the zero AddrPort for a unix socket.
func (m *ConnMeta) DirectRemote() netip.AddrPort {
	if m.ProxyAddr != nil {
		return *m.ProxyAddr
	}
	return m.Remote
}

// DownstreamConn is a downstream connection as services see it. Values are comparable.
type DownstreamConn interface {
	// OnClose calls f once when Weft has closed its side of the connection, for any reason, or
	// immediately if it is closed already. f must not block. stop cancels the call, unless f has
	// already been called.
	OnClose(f func()) (stop func())

	// Shed closes the connection after its current or next exchange, if its protocol can announce
	// the close to the client, as HTTP can.
	Shed()

	// ListenerDraining reports whether the connection is draining because its listener or its
	// filter chain drains. After Shed it returns false.
	ListenerDraining() bool
}

// Detacher is a Downstream that starts several exchanges on one goroutine, one after the other. An
// exchange that waits for the response of an upstream connection leaves the goroutine to the next
// one. Any other wait delays the exchanges after it.
type Detacher interface {
	// Detach moves the exchange to a separate goroutine, unless it already has one.
	Detach()
}

// Detach prepares x for a wait. A service must call it before it waits for anything but the
// response of an upstream connection: a timer, a connect, a free slot.
func (x *Exchange) Detach() {
	if d, ok := x.Downstream.(Detacher); ok {
		d.Detach()
	}
}

// Cancellable is a Downstream that reports without waiting whether its exchange was canceled.
type Cancellable interface {
	// Canceled reports whether the client disconnected or the request timed out. It is safe for
	// concurrent use and costs an atomic load.
	Canceled() bool
}

// Canceled reports whether the exchange was canceled, as far as the Downstream knows. A service
// calls it before expensive work such as a connect; a service that is about to wait uses
// Downstream.OnDisconnect, which reports later disconnects.
func (x *Exchange) Canceled() bool {
	c, ok := x.Downstream.(Cancellable)
	return ok && c.Canceled()
}

// RequestBodyCloser is a Downstream that can close the body of its request without the wrappers
// that filters have put around it.
type RequestBodyCloser interface {
	// CloseRequestBody closes the body that the engine reads.
	CloseRequestBody()
}

// CloseRequestBody closes body, the body of x's request, so that a Read of it on another goroutine
// ends. If the Close of a filter's body panics, CloseRequestBody returns the panic as an error, and
// the Downstream closes the wrapped body.
func (x *Exchange) CloseRequestBody(body Body) (err error) {
	defer func() {
		if c, ok := x.Downstream.(RequestBodyCloser); ok && err != nil {
			c.CloseRequestBody()
		}
	}()
	defer RecoverPanic(&err)
	_ = body.Close() // the goroutine that reads the body gets the error
	return nil
}

// Named is a scope of metrics: a listener, a route, a cluster, a host, or a method of an RPC
// service. Values are comparable.
type Named interface {
	// Name returns the name for logs. It never changes.
	Name() string
}

// Host is a host to which requests are sent. Values are comparable.
type Host interface {
	Named
	// ResponseDiscarded records that the host's response in x is about to be discarded for another
	// attempt.
	ResponseDiscarded(x *Exchange)
}

// Attempt is one send of the request to one host.
type Attempt struct {
	Host   Host
	Local  string // local address of the upstream connection, as text; "" if there was none, or it is unknown
	TLS    *TLS   // TLS of the connection to Host; nil: plaintext, or there was no connection
	Reason Reason // why the attempt failed; ReasonNone if Host responded
	Status int    // status of the response; 0 if there was none
}

// Record describes what happened to an exchange, for access logs and metrics.
type Record struct {
	Reason      Reason  // why Weft sent a local reply or ended the exchange; otherwise ReasonNone
	Flags       Flags   // events in addition to Reason
	HealthCheck bool    // the health_check filter matches the request
	LogType     LogType // event for which access logs write a line; LogTypeNotSet until then
	// WeightedIndex is the index of the selected entry in the route's weighted clusters.
	WeightedIndex uint16
	Retries       uint16 // retries by the policy of the route so far; the attempts of a hedge do not count
	Detail        string // error text of the fault for operators; one line
	// EnvoyReply is how Envoy expresses the reason, or a local reply without a reason; nil: as it
	// expresses Reason.
	EnvoyReply *EnvoyReply

	// Listener is the listener that serves the exchange. The first service sets it; nil: no service
	// has received the exchange.
	Listener Named

	Method  Named // method of an RPC request, as the client named it; nil: unknown
	Route   Named // nil: no route matched
	Cluster Named // nil: no cluster was reached
	// TargetCluster is the name of the cluster that the route selected, set before the cluster is
	// reached; "" if the route sends a local reply.
	TargetCluster string

	// Hash is the hash of the values that the route's hash policies select; 0: they select none.
	// Consistent hashing sends exchanges with equal hashes to the same host.
	Hash uint64

	// Attempts lists the attempts in order; only the last one can have the response. The storage is
	// reused.
	Attempts []Attempt

	OriginalPath      string // "" if the path was not rewritten
	OriginalAuthority string // "" if the authority was not rewritten; see Exchange.RewriteAuthority

	RequestBytes  int64 // body bytes read from the client; for RPC, the size of the frame
	ResponseBytes int64 // body bytes written to the client; for RPC, the size of the frame

	UpstreamStart     time.Time // when the engine started to send the last attempt
	UpstreamFirstByte time.Time // when the response head of the last attempt was read
	End               time.Time // when the exchange ended: usually, when the last byte of the response was written
}

// Host returns the host of the last attempt, or nil if there was none.
func (r *Record) Host() Host {
	if len(r.Attempts) == 0 {
		return nil
	}
	return r.Attempts[len(r.Attempts)-1].Host
}

// BeginAttempt appends an attempt at host. It clears the times of the previous attempt, so that an
// attempt that does not reach its host does not report them.
func (r *Record) BeginAttempt(host Host) {
	r.Attempts = append(r.Attempts, Attempt{Host: host})
	r.UpstreamStart, r.UpstreamFirstByte = time.Time{}, time.Time{}
}

// Tried reports whether an attempt was made at host.
func (r *Record) Tried(host Host) bool {
	for i := range r.Attempts {
		if r.Attempts[i].Host == host {
			return true
		}
	}
	return false
}

// EffectiveDeadline returns when waiting for a response ends: the earlier of PerTryDeadline and
// Deadline. Upstream streams and pools wait until then; the zero time means no limit.
func (x *Exchange) EffectiveDeadline() time.Time {
	if d := x.PerTryDeadline; !d.IsZero() && (x.Deadline.IsZero() || d.Before(x.Deadline)) {
		return d
	}
	return x.Deadline
}

// Reset prepares x for the next request. It keeps storage, Meta.Conn, Downstream and EnvoyReplies.
func (x *Exchange) Reset() {
	x.Request.reset()
	x.Response.reset()
	x.Meta = Meta{Conn: x.Meta.Conn}
	clear(x.Record.Attempts)
	x.Record = Record{Attempts: x.Record.Attempts[:0]}
	x.Metadata.reset()
	x.Deadline, x.PerTryDeadline, x.IdleTimeout = time.Time{}, time.Time{}, 0
	clear(x.finishers) // empty unless an engine abandoned x
	x.finishers = x.finishers[:0]
}

// ResetResponse drops the response so that another can replace it. It closes Body and Tunnel to
// release the upstream, and the engine's body and tunnel even if the Close of a filter's wrapper
// panics.
func (x *Exchange) ResetResponse() {
	defer x.Response.closeUpstream()
	if x.Response.Body != nil {
		_ = x.Response.Body.Close() // the response is dropped, so the error does not matter
	}
	if x.Response.Tunnel != nil {
		_ = x.Response.Tunnel.Close()
	}
}

// TextPlain is the content type of the texts of local replies.
const TextPlain = "text/plain; charset=utf-8"

// LocalReply replaces the response with a local reply.
func (x *Exchange) LocalReply(status int, contentType, body string) {
	x.ResetResponse()
	x.Response.Status = status
	if contentType != "" && body != "" {
		if contentType == TextPlain && x.EnvoyReplies != nil {
			contentType = "text/plain"
		}
		x.Response.Header.Add("Content-Type", contentType)
	}
	x.Response.ContentLength = int64(len(body))
	if body != "" {
		x.localBody = StringBody{text: body}
		x.Response.Body = &x.localBody
	}
}

// LocalReplyError replaces the response with the local reply for err's Reason, and records err. The
// client gets only the text of the reason: err may contain internal details, which belong in the
// log.
func (x *Exchange) LocalReplyError(err error) {
	reason := ReasonOf(err)
	x.Record.Reason, x.Record.Detail, x.Record.EnvoyReply = reason, err.Error(), EnvoyReplyOf(err)
	if x.EnvoyReplies != nil {
		x.replyAsEnvoy()
		return
	}
	spec := reason.Spec()
	x.LocalReply(spec.HTTP, TextPlain, spec.Text+"\n")
	if reason == Overflow {
		x.Response.Header.Add(overloadedField, "true")
	}
}

// LocalReplyBody returns the body of the local reply, or "" if the response has another body.
func (x *Exchange) LocalReplyBody() string {
	if b, ok := x.Response.Body.(*StringBody); ok && b == &x.localBody {
		return b.text
	}
	return ""
}

// SetLocalReplyBody replaces the content type and the body of a local reply; "" stands for no body.
// It does nothing if the response has another body, such as a compressed one.
func (x *Exchange) SetLocalReplyBody(contentType, body string) {
	r := &x.Response
	if b, ok := r.Body.(*StringBody); r.Body != nil && (!ok || b != &x.localBody) {
		return
	}
	r.Body, r.ContentLength = nil, int64(len(body))
	if body == "" {
		r.Header.Del("Content-Type")
		return
	}
	if contentType == "" {
		contentType = "text/plain"
	}
	r.Header.Set("Content-Type", contentType)
	x.localBody = StringBody{text: body}
	r.Body = &x.localBody
}

// SentStatus returns the status of the response, or 0 if the client disconnected before there was
// one.
func (x *Exchange) SentStatus() int {
	if x.Record.Reason == ReasonDownstreamDisconnect && x.Response.Source == LocalReply {
		return 0
	}
	return x.Response.Status
}

// RecordFailure records err, which ends x although its response has begun. It keeps an earlier
// failure.
func (x *Exchange) RecordFailure(err error) {
	if x.Record.Reason == ReasonNone {
		x.Record.Reason, x.Record.Detail, x.Record.EnvoyReply = ReasonOf(err), err.Error(), EnvoyReplyOf(err)
	}
}

// Abandon records that the client disconnected before there was a response. Unlike LocalReplyError,
// it sets no body, because no client can read it, and allocates nothing.
func (x *Exchange) Abandon(detail string) {
	x.Record.Reason, x.Record.Detail, x.Record.EnvoyReply = ReasonDownstreamDisconnect, detail, nil
	x.LocalReply(ReasonDownstreamDisconnect.Spec().HTTP, "", "")
}

// overloadedField tells clients that a circuit breaker dropped the request, so that they do not
// retry immediately. Envoy defines the name.
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
