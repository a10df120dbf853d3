package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

const (
	// Sizes of the library's buffers: for a request (an encoded URL has up to three times its
	// length), and for the largest response (80,000 children of 800 bytes).
	mostSent = 512 << 10
	mostRead = 64 << 20

	// closeTimeout bounds the wait for a server to end a session.
	closeTimeout = time.Second

	// Bounds of the timeout for a connection, and for the connect response: a third of the session
	// timeout.
	patienceLeast = time.Second
	patienceMost  = 10 * time.Second
)

// session is the state of the session. The loop owns it.
type session struct {
	client *client
	id     int64 // 0: none
	// earlier contains previous sessions that the server may not have ended yet, the latest last.
	// It is replaced, never modified.
	earlier []int64
	fresh   bool // begin has not run for this session
	ready   bool // requests may be sent
	// epoch counts the sessions: results of an earlier one are obsolete.
	epoch      int
	complained bool // a failure to connect was logged since the last connection
}

// client is a client of the library. It may have several sessions in sequence. The Registry
// replaces a client that has been disconnected for a session timeout: the library insists that the
// server knows the last transaction it saw, which a restored server does not.
type client struct {
	conn  *zk.Conn
	route *hostProvider
	stop  context.CancelFunc // cancels dials
	gone  chan struct{}      // closed when the library's goroutines have ended
	known bool               // the credentials were sent; owned by the loop
}

// printer passes the library's messages to the log, at the level debug.
type printer struct{ log *slog.Logger }

func (p printer) Printf(format string, values ...any) {
	p.log.Debug("ZooKeeper client library", "message", fmt.Sprintf(format, values...))
}

// open creates a client, which connects in the background.
func (r *Registry) open() {
	ctx, stop := context.WithCancel(context.Background())
	c := &client{stop: stop, gone: make(chan struct{})}
	c.route = &hostProvider{
		tls:      r.options.TLS,
		patience: min(max(r.options.SessionTimeout/3, patienceLeast), patienceMost),
		failed:   func(err error) { r.mailbox.post(func() { r.complain(err) }) },
	}
	conn, events, err := zk.Connect(r.servers, r.options.SessionTimeout,
		zk.WithDialer(c.route.dialer(ctx)), zk.WithHostProvider(c.route),
		zk.WithLogger(printer{r.log}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(mostRead), zk.WithMaxConnBufferSize(mostSent),
		zk.WithEventCallback(func(e zk.Event) { r.mailbox.post(func() { r.event(c, e) }) }))
	if err != nil {
		panic(fmt.Sprintf("zookeeper: invalid servers %v: %v", r.servers, err))
	}
	c.conn = conn
	go func() {
		defer close(c.gone)
		for range events { // the callback receives all events
			continue
		}
	}()
	r.session.client = c
}

// end ends the session, if there is one, and returns when the client has ended. It does not wait
// for the server once hurry is closed.
func (c *client) end(hurry <-chan struct{}) {
	c.route.closed.Store(true)
	c.stop()
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.conn.Close()
	}()
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-told:
	case <-hurry:
	case <-patience.C:
	}
	c.route.closeConn()
	<-told
	<-c.gone
}

// replace replaces the client. Znodes of the previous session stay until the server ends it, or
// this process takes them over.
func (r *Registry) replace() {
	old := r.session.client
	r.session.end()
	r.open()
	r.closingClients.Go(func() { old.end(r.closing) })
}

// complain records why there is no connection.
func (r *Registry) complain(err error) {
	r.standing.Update(func(s *registry.State) { s.LastError = err.Error() })
	level := slog.LevelDebug
	if !r.session.complained && !r.session.ready {
		r.session.complained = true
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "cannot connect to a ZooKeeper server", "error", err)
}

// event handles an event of the library.
func (r *Registry) event(c *client, e zk.Event) {
	switch {
	case c != r.session.client:
	case e.Type == zk.EventSession && e.State == zk.StateHasSession:
		r.onConnected()
	case e.Type == zk.EventSession && e.State == zk.StateDisconnected:
		r.onDisconnected(e.Server)
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		r.session.end()
		r.log.Warn("ZooKeeper session expired", "server", e.Server)
	case e.Type == zk.EventNodeCreated, e.Type == zk.EventNodeDeleted,
		e.Type == zk.EventNodeDataChanged, e.Type == zk.EventNodeChildrenChanged:
		r.touch(e.Path)
	}
}

// onConnected handles a new or resumed session. It sends credentials first; after a reconnect the
// library sends them itself.
func (r *Registry) onConnected() {
	c := r.session.client
	if id := c.conn.SessionID(); id != 0 && id != r.session.id {
		r.session.end()
		r.session.id, r.session.fresh = id, true
		r.session.epoch++
	}
	if r.options.Username == "" || c.known {
		r.begin()
		return
	}
	credentials := []byte(r.options.Username + ":" + r.options.Password)
	r.closingClients.Go(func() {
		err := c.conn.AddAuth("digest", credentials)
		r.mailbox.post(func() {
			switch {
			case c != r.session.client:
			case err == nil:
				c.known = true
				if c.conn.State() == zk.StateHasSession {
					r.begin()
				}
			case !isLost(err):
				r.complain(fmt.Errorf("authentication: %w", err))
				c.route.closeConn() // and retry
			}
		})
	})
}

// begin starts requests. It reads all nodes. In a new session it repeats all registrations, in a
// resumed one those that are not settled.
func (r *Registry) begin() {
	s := &r.session
	fresh := s.fresh
	s.ready, s.fresh, s.complained = true, false, false
	name := fmt.Sprintf("%#x", uint64(s.id))
	r.log.Info("connected to ZooKeeper", "server", s.client.conn.Server(), "session", name, "new", fresh)
	r.standing.Update(func(state *registry.State) {
		state.Connected, state.Since, state.Session = true, time.Now(), name
		if fresh {
			state.Sessions++
		}
	})
	if fresh {
		r.disarm()
	} else {
		// The library restores its watches (see link.go). The Registry also reads everything now,
		// and compares it shortly after, so that it does not depend on them.
		r.afterFunc(jitter(sweepAfter), r.resync)
	}
	for _, n := range r.nodes {
		n.dirty = true
		r.attendNode(n)
	}
	for _, e := range r.entries {
		if fresh {
			e.doubt()
		}
		r.startReconcile(e)
	}
	for q := range r.inquiries {
		r.ask(q)
	}
}

// mostEarlier bounds the remembered sessions: the server ends them soon.
const mostEarlier = 8

// end moves the session to earlier.
func (s *session) end() {
	if s.id == 0 {
		return
	}
	s.earlier = append(slices.Clone(s.earlier[max(0, len(s.earlier)-mostEarlier+1):]), s.id)
	s.id = 0
}

// onDisconnected stops requests until the next connection.
func (r *Registry) onDisconnected(server string) {
	s := &r.session
	if !s.ready {
		return
	}
	s.ready = false
	r.log.Warn("lost the connection to ZooKeeper", "server", server)
	r.standing.Update(func(state *registry.State) {
		state.Connected, state.Since = false, time.Now()
		state.LastError = "the connection to " + server + " was lost"
	})
	c, epoch := s.client, s.epoch
	r.afterFunc(r.options.SessionTimeout, func() {
		if s.client == c && s.epoch == epoch && !s.ready {
			r.replace()
		}
	})
}

// isLost reports whether an error leaves the outcome of a request unknown.
func isLost(err error) bool {
	for _, lost := range []error{zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrClosing, zk.ErrNoServer, zk.ErrSessionMoved} {
		if errors.Is(err, lost) {
			return true
		}
	}
	// The library returns errors of writes unwrapped.
	var network interface{ Timeout() bool }
	return errors.As(err, &network)
}

// backoff returns the wait time after consecutive failures, at least one, with jitter.
func backoff(failures int) time.Duration {
	const first, most = 100 * time.Millisecond, 2 * time.Minute
	return jitter(min(first<<min(2*(failures-1), 20), most))
}
