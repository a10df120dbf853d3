package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/internal/unixsocket"
)

// ListenOptions describe a listening socket.
type ListenOptions struct {
	Name           string
	Network        string       // "tcp" or "unix"
	Address        string       // ip:port or a path
	ReusePort      bool         // several sockets may bind the address
	Mark           uint32       // SO_MARK of the socket and of the connections that it accepts; 0: none
	MaxConnections int          // excess connections are accepted and closed immediately; 0: no limit
	AcceptRate     AcceptRate   // connections beyond it wait in the kernel
	Limiter        *ConnLimiter // shared with other listeners; nil: no shared limit
	Log            *slog.Logger // nil discards the log

	Counter ListenerCounter // may be nil
}

// ListenerCounter counts the events of a listener. Safe for concurrent use.
type ListenerCounter interface {
	Accepted()
	Refused()           // closed because of MaxConnections or the Limiter, or because its virtual listener has stopped
	AcceptError()       // for example EMFILE
	Closed(CloseReason) // an accepted connection has ended
}

// Listener accepts connections and passes each one, on its own goroutine, to the handler that is
// active at that moment.
type Listener struct {
	opts    ListenOptions  // immutable
	ln      net.Listener   // immutable; nil: the listener is virtual
	virtual *virtualSocket // immutable; nil: the listener has a socket
	limit   atomic.Int64   // maximum number of connections; 0: no limit
	rate    atomic.Pointer[AcceptRate]
	active  atomic.Pointer[activeHandler]

	drainsAfterNext atomic.Bool // see DrainAfterNext

	keepAlive   keepAliveSetting
	activeConns sync.WaitGroup

	originalDst atomic.Pointer[originalDstConfig] // nil: the listener ignores original destinations

	mu      sync.Mutex
	conns   map[*Conn]struct{} // guarded by mu
	stopped bool               // guarded by mu
	// replaced: the listener has stopped, but another one serves its address.
	replaced bool                // guarded by mu
	idle     map[*Conn]time.Time // guarded by mu; when CloseIdle recorded each parked connection; nil: not tracked

	stopping chan struct{} // closed by Stop
}

// Listen binds the address. Connections queue in the kernel until Serve runs.
func Listen(ctx context.Context, o ListenOptions, h Handler) (*Listener, error) {
	config := net.ListenConfig{KeepAlive: -1} // no keepalive by default: startConn applies the setting of SetKeepAlive
	if o.ReusePort || o.Mark != 0 {
		config.Control = func(_, _ string, raw syscall.RawConn) error {
			var sockErr error
			err := raw.Control(func(fd uintptr) {
				if o.ReusePort {
					sockErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
				}
			})
			return errors.Join(err, sockErr, setMark(raw, o.Mark))
		}
	}
	if o.Network == "unix" {
		if err := unixsocket.RemoveStale(ctx, o.Address); err != nil {
			return nil, fmt.Errorf("listener %s: %w", o.Name, err)
		}
	}
	ln, err := config.Listen(ctx, o.Network, o.Address)
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", o.Name, err)
	}
	return newListener(o, ln, h), nil
}

func newListener(o ListenOptions, ln net.Listener, h Handler) *Listener {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Listener{opts: o, ln: ln, conns: make(map[*Conn]struct{}), stopping: make(chan struct{})}
	l.SetMaxConnections(o.MaxConnections)
	l.SetAcceptRate(o.AcceptRate)
	l.active.Store(&activeHandler{handler: h})
	return l
}

// Addr returns the bound address, or the address of a virtual listener.
func (l *Listener) Addr() net.Addr {
	if l.virtual != nil {
		return l.virtual.addr
	}
	return l.ln.Addr()
}

// activeHandler is the active handler and the group of its connections; a nil group means none.
type activeHandler struct {
	handler Handler
	group   *ConnGroup
}

// SetHandler makes h serve the connections accepted from now on. They belong to g from the
// beginning; nil: to no group. The previous group ends only when DrainGroupAfterNext or DrainGroup
// ends it.
func (l *Listener) SetHandler(h Handler, g *ConnGroup) { l.active.Store(&activeHandler{h, g}) }

// SetMaxConnections changes the limit of ListenOptions; 0: no limit. A lower limit closes no open
// connection.
func (l *Listener) SetMaxConnections(n int) { l.limit.Store(int64(n)) }

// Serve accepts connections until Stop. After a temporary failure, such as too few descriptors,
// Serve backs off and continues; any other failure of the socket ends Serve, which returns the
// error. ctx is the context of ServeConn. When ctx ends, Serve returns only if it waits between two
// accepts.
func (l *Listener) Serve(ctx context.Context) error {
	if l.virtual != nil {
		l.serveVirtual(ctx)
		return nil
	}
	backoff := time.Duration(0)
	var b tokenBucket
	for l.awaitAccept(ctx, &b) {
		nc, err := l.ln.Accept()
		if err == nil {
			backoff = 0
			if !l.admit(ctx, nc) {
				return nil
			}
			continue
		}
		if l.isStopped() {
			return nil
		}
		if !temporary(err) {
			return fmt.Errorf("listener %s: %w", l.opts.Name, err)
		}
		if l.opts.Counter != nil {
			l.opts.Counter.AcceptError()
		}
		backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
		l.opts.Log.Warn("accept failed, trying again", "listener", l.opts.Name, "error", err, "pause", backoff)
		if !l.sleep(ctx, backoff) {
			return nil
		}
	}
	return nil
}

// temporary reports whether accepting may succeed later: the connection was aborted in the queue or
// rejected by a firewall rule, or the process or machine is out of a resource (accept(2)).
func temporary(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPERM, syscall.EPROTO,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func (l *Listener) startConn(ctx context.Context, nc net.Conn) {
	l.keepAlive.apply(nc)
	c := NewConn(nc)
	if d := l.originalDst.Load(); d != nil && l.redirect(d, c) {
		return
	}
	if !l.addConn(ctx, c) {
		_ = c.nc.Close() // the listener has stopped; no hooks are registered yet
	}
}

// addConn adds c to the listener and serves it, or refuses c because of MaxConnections or the
// Limiter. It returns false, and leaves c open, if the listener has stopped.
func (l *Listener) addConn(ctx context.Context, c *Conn) bool {
	limit := int(l.limit.Load())
	c.state.apply(eventAccept)
	l.mu.Lock()
	limitReached := limit > 0 && len(l.conns) >= limit || !l.opts.Limiter.acquire()
	if l.stopped {
		if !limitReached {
			l.opts.Limiter.release()
		}
		l.mu.Unlock()
		return false
	}
	if limitReached {
		l.mu.Unlock()
		l.refuseConn(c)
		return true
	}
	l.conns[c] = struct{}{}
	l.activeConns.Add(1)
	l.mu.Unlock()
	if l.drainsAfterNext.Load() {
		c.state.apply(eventDrainAfterNext)
	}
	if l.opts.Counter != nil {
		l.opts.Counter.Accepted()
	}
	h := l.handlerFor(c)
	clientFirst, ok := h.(ClientFirstHandler)
	if !ok {
		go l.serve(ctx, c, h)
		return true
	}
	if d := clientFirst.IdleTimeout(); d > 0 {
		c.SetReadDeadline(time.Now().Add(d))
	}
	go l.park(ctx, c, h)
	return true
}

// refuseConn counts and closes a connection that will not be served, without running close hooks.
func (l *Listener) refuseConn(c *Conn) {
	if l.opts.Counter != nil {
		l.opts.Counter.Refused()
	}
	_ = c.nc.Close()
}

// handlerFor returns the active handler and puts c into its group.
func (l *Listener) handlerFor(c *Conn) Handler {
	for {
		active := l.active.Load()
		if active.group == nil || active.group.Join(c) {
			return active.handler
		}
		// The group has ended, because SetHandler has just replaced the handler: load again.
	}
}

// serve runs the handler of one connection, until the connection ends or parks.
func (l *Listener) serve(ctx context.Context, c *Conn, h Handler) {
	err := l.serveRecovered(ctx, c, h)
	if errors.Is(err, ErrPark) {
		if c.Handler != nil {
			h = c.Handler
		}
		// Wait on a new goroutine, because the stack of this one has grown.
		go l.park(ctx, c, h)
		return
	}
	if err != nil {
		l.opts.Log.Debug("connection closed", "listener", l.opts.Name, "remote", c.RemoteAddr(), "error", err)
	}
	l.endConn(c)
}

// serveRecovered calls the handler. A panic of the handler ends only its connection.
func (l *Listener) serveRecovered(ctx context.Context, c *Conn, h Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			c.CloseReason = ClosedInternalError
			_ = c.closeWithoutNotify() // the data is incomplete; the handler may have closed c
			l.opts.Log.Error("panic while serving a connection, which was closed; this is a defect, please report it",
				"listener", l.opts.Name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return h.ServeConn(ctx, c)
}

// sendGoAway calls p.SendGoAway and recovers a panic, which it logs and returns as an error.
func (l *Listener) sendGoAway(c *Conn, p GoAwayHandler) error {
	err := recoverPanic(func() error { p.SendGoAway(); return nil })
	if err != nil {
		c.CloseReason = ClosedInternalError
		l.opts.Log.Error("panic while draining a connection; this is a defect, please report it", "listener", l.opts.Name, "panic", err)
	}
	return err
}

// park waits for bytes of an idle connection, and then calls serve, or ends the connection if it
// must end before bytes arrive.
func (l *Listener) park(ctx context.Context, c *Conn, h Handler) {
	c.shrink()
	c.state.apply(eventPark)
	err := c.SetIdle(true)
	if err == nil {
		err = c.AwaitReadable()
	}
	c.state.apply(eventUnpark)
	if err != nil {
		c.CloseReason = CloseReasonOf(err)
		p, announces := h.(GoAwayHandler)
		announces = announces && errors.Is(err, ErrDraining) && l.sendGoAway(c, p) == nil
		if c.writeQueue != nil {
			c.writeQueue.Close() // a slow client still gets the pending responses
		}
		if announces {
			linger(c)
		}
		l.endConn(c)
		return
	}
	_ = c.SetIdle(false) // never fails
	l.serve(ctx, c, h)
}

func (l *Listener) endConn(c *Conn) {
	_ = c.Close() // a handler may have closed it
	if err := c.closeHooks.Load().panicErr(); err != nil {
		l.opts.Log.Error("panic after the close of a connection; this is a defect, please report it", "listener", l.opts.Name, "panic", err)
	}
	c.reader.unread.release()
	l.mu.Lock()
	delete(l.conns, c)
	delete(l.idle, c)
	l.mu.Unlock()
	leaveGroup(c)
	l.opts.Limiter.release()
	if l.opts.Counter != nil {
		l.opts.Counter.Closed(c.state.load().closeReason(c.CloseReason))
	}
	l.activeConns.Done()
}

func (l *Listener) isStopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// forEachConn calls f for every open connection. It calls f without mu: a connection that f closes
// runs its close hooks, which may call the listener.
func (l *Listener) forEachConn(f func(*Conn)) {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		f(c)
	}
}

// DrainAfterNext makes each connection, open or accepted later, end after its current or next
// exchange. The listener continues to accept. Safe from any goroutine.
func (l *Listener) DrainAfterNext() {
	l.drainsAfterNext.Store(true) // before the loop: addConn adds a connection before it reads the value
	l.forEachConn(func(c *Conn) { c.state.apply(eventDrainAfterNext) })
}

// Connections returns how many connections are open.
func (l *Listener) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Stop stops accepting. Open connections continue.
func (l *Listener) Stop() {
	l.mu.Lock()
	alreadyStopped := l.stopped
	l.stopped = true
	l.mu.Unlock()
	if alreadyStopped {
		return
	}
	close(l.stopping)
	if l.ln != nil {
		_ = l.ln.Close() // unblocks Serve; nothing is lost if it fails
	}
}

// drainExpiryLead is how long before the drain deadline connections stop reading requests, unless a
// quarter of the remaining time is shorter.
const drainExpiryLead = 5 * time.Second

// firstExchangeTimeout is how long a drain waits for the first exchange of a connection. A request
// may be on its way already, and many clients do not send it again if a new connection closes.
const firstExchangeTimeout = time.Second

// Drain stops accepting, ends idle connections, and waits until the busy ones have ended after
// their current exchange, and those without an exchange after their first one. Without a first
// exchange, they end after firstExchangeTimeout, or shortly before the deadline of ctx if another
// listener has replaced this one. When ctx ends, Drain force-closes the remaining connections and returns
// how many of these were not idle. Shortly before the deadline of ctx, it asks connections with
// many concurrent exchanges to read no further requests, so that the requests in flight get their
// responses.
func (l *Listener) Drain(ctx context.Context) (forceClosed int) {
	l.Stop()
	done := make(chan struct{})
	go func() { l.activeConns.Wait(); close(done) }()
	firstExchange := firstExchangeTimeout
	l.mu.Lock()
	if l.replaced {
		firstExchange = 0
	}
	l.mu.Unlock()
	return l.drain(ctx, done, firstExchange, func(*Conn) bool { return true })
}
