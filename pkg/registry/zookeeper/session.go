package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	// Sizes of the library's buffers. A request must hold a URL, whose encoding is up to three
	// times as long; the largest response holds 80,000 children of 800 bytes.
	maxRequestSize  = 512 << 10
	maxResponseSize = 64 << 20

	// closeTimeout bounds the wait for a server to end a session.
	closeTimeout = time.Second

	// Bounds of the timeout to connect, and of the timeout for the connect response. Both timeouts
	// are a third of the session timeout.
	minConnectTimeout = time.Second
	maxConnectTimeout = 10 * time.Second
)

// session is the state of the session. The loop owns it.
type session struct {
	client *client
	id     int64 // 0: none
	// earlierSessions contains previous sessions that the server may not have ended yet, the latest
	// last. It is replaced, never modified.
	earlierSessions []int64
	isNew           bool // startRequests has not run for this session
	ready           bool // requests may be sent
	// epoch counts the sessions. The loop ignores the results of node reads and of registrations
	// that began in an earlier session.
	epoch         int
	failureLogged bool // a failure to connect was logged since the last connection
}

// client is a client of the library. It may have several sessions in sequence. The Registry
// replaces a client that has been disconnected for a session timeout: the library connects only to
// a server that knows the last transaction that the client has seen. A server that was restored
// from a backup does not know it.
type client struct {
	conn         *zk.Conn
	hostProvider *hostProvider
	stop         context.CancelFunc // cancels dials
	done         chan struct{}      // closed when the library's goroutines have ended
	authSent     bool               // the credentials were sent; owned by the loop
}

// logAdapter logs the library's messages at debug level.
type logAdapter struct{ log *slog.Logger }

func (a logAdapter) Printf(format string, values ...any) {
	a.log.Debug("ZooKeeper client library", "message", fmt.Sprintf(format, values...))
}

// connectClient creates a client, which connects in the background.
func (r *Registry) connectClient() {
	ctx, stop := context.WithCancel(context.Background())
	c := &client{stop: stop, done: make(chan struct{})}
	c.hostProvider = &hostProvider{
		tls:       r.options.TLS,
		watches:   newWatchSet(),
		timeout:   min(max(r.options.SessionTimeout/3, minConnectTimeout), maxConnectTimeout),
		onFailure: func(err error) { r.callbacks.post(func() { r.recordConnectFailure(err) }) },
	}
	conn, events, err := zk.Connect(r.servers, r.options.SessionTimeout,
		zk.WithDialer(c.hostProvider.dialer(ctx)), zk.WithHostProvider(c.hostProvider),
		zk.WithLogger(logAdapter{r.log}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxResponseSize), zk.WithMaxConnBufferSize(maxRequestSize),
		zk.WithEventCallback(func(e zk.Event) { r.callbacks.post(func() { r.onEvent(c, e) }) }))
	if err != nil {
		panic(fmt.Sprintf("zookeeper: invalid servers %v: %v", r.servers, err))
	}
	c.conn = conn
	go func() {
		defer close(c.done)
		for range events { // discard: the event callback has received them
			continue
		}
	}()
	r.session.client = c
}

// end ends the session, if there is one, and returns when the client has ended. It waits for the
// server at most closeTimeout, and not after abort is closed.
func (c *client) end(abort <-chan struct{}) {
	c.hostProvider.closed.Store(true)
	c.stop()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.conn.Close()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-abort:
	case <-timer.C:
	}
	c.hostProvider.closeConn()
	<-closed
	<-c.done
}

// replaceClient replaces the client. Znodes of the previous session stay until the server ends the
// session, or the new session replaces them.
func (r *Registry) replaceClient() {
	old := r.session.client
	r.session.retire()
	r.connectClient()
	r.closingClients.Go(func() { old.end(r.closing) })
}

// recordConnectFailure records and logs why a connect failed.
func (r *Registry) recordConnectFailure(err error) {
	r.stateTracker.Update(func(s *registry.State) { s.LastError = err.Error() })
	level := slog.LevelDebug
	if !r.session.failureLogged && !r.session.ready {
		r.session.failureLogged = true
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "cannot connect to a ZooKeeper server", "error", err)
}

// onEvent handles an event of the library.
func (r *Registry) onEvent(c *client, e zk.Event) {
	switch {
	case c != r.session.client:
	case e.Type == zk.EventSession && e.State == zk.StateHasSession:
		r.onConnected()
	case e.Type == zk.EventSession && e.State == zk.StateDisconnected:
		r.onDisconnected(e.Server)
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		r.session.retire()
		r.log.Warn("ZooKeeper session expired", "server", e.Server)
	case e.Type == zk.EventNodeCreated, e.Type == zk.EventNodeDeleted,
		e.Type == zk.EventNodeDataChanged, e.Type == zk.EventNodeChildrenChanged:
		r.onWatchEvent(e.Path)
	}
}

// onConnected handles a new or resumed session. It sends credentials first; after a reconnect the
// library sends them itself.
func (r *Registry) onConnected() {
	c := r.session.client
	if id := c.conn.SessionID(); id != 0 && id != r.session.id {
		r.session.retire()
		r.session.id, r.session.isNew = id, true
		r.session.epoch++
	}
	if r.options.Username == "" || c.authSent {
		r.startRequests()
		return
	}
	credentials := []byte(r.options.Username + ":" + r.options.Password)
	r.closingClients.Go(func() {
		err := c.conn.AddAuth("digest", credentials)
		r.callbacks.post(func() {
			switch {
			case c != r.session.client:
			case err == nil:
				c.authSent = true
				if c.conn.State() == zk.StateHasSession {
					r.startRequests()
				}
			case !isLost(err):
				r.recordConnectFailure(fmt.Errorf("authentication: %w", err))
				c.hostProvider.closeConn() // the library connects again
			}
		})
	})
}

// startRequests starts requests on a connection. It reads and watches all nodes. In a new session
// it repeats all registrations, in a resumed session those that were not confirmed.
func (r *Registry) startRequests() {
	s := &r.session
	newSession := s.isNew
	s.ready, s.isNew, s.failureLogged = true, false, false
	name := fmt.Sprintf("%#x", uint64(s.id))
	r.log.Info("connected to ZooKeeper", "server", s.client.conn.Server(), "session", name, "new", newSession)
	r.stateTracker.Update(func(state *registry.State) {
		state.Connected, state.Since, state.SessionID = true, time.Now(), name
		if newSession {
			state.SessionCount++
		}
	})
	r.clearWatches()
	if !newSession {
		r.afterFunc(jitter(sweepDelay), r.resync)
	}
	for _, n := range r.nodes {
		n.dirty = true
		r.readIfDirty(n)
	}
	for _, e := range r.entries {
		if newSession {
			e.markUnconfirmed()
		}
		r.startReconcile(e)
	}
	for read := range r.metadataReads {
		r.readMetadata(read)
	}
}

// maxEarlierSessions bounds session.earlierSessions. The server has usually ended older sessions.
const maxEarlierSessions = 8

// retire moves the session to earlierSessions.
func (s *session) retire() {
	if s.id == 0 {
		return
	}
	s.earlierSessions = append(slices.Clone(s.earlierSessions[max(0, len(s.earlierSessions)-maxEarlierSessions+1):]), s.id)
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
	r.stateTracker.Update(func(state *registry.State) {
		state.Connected, state.Since = false, time.Now()
		state.LastError = "the connection to " + server + " was lost"
	})
	c, epoch := s.client, s.epoch
	r.afterFunc(r.options.SessionTimeout, func() {
		if s.client == c && s.epoch == epoch && !s.ready {
			r.replaceClient()
		}
	})
}

// isLost reports whether an error means a lost connection, so that the result of the request is
// unknown.
func isLost(err error) bool {
	for _, lost := range []error{zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrClosing, zk.ErrNoServer, zk.ErrSessionMoved} {
		if errors.Is(err, lost) {
			return true
		}
	}
	// A failed write returns the net.Error of the connection, which is not one of the library's
	// errors.
	var netErr interface{ Timeout() bool }
	return errors.As(err, &netErr)
}

// backoff returns the backoff, with jitter, after the given number of consecutive failures, which
// must be at least 1.
func backoff(failures int) time.Duration {
	const minBackoff, maxBackoff = 100 * time.Millisecond, 2 * time.Minute
	return jitter(min(minBackoff<<min(2*(failures-1), 20), maxBackoff))
}
