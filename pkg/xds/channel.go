package xds

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// xdsChannel keeps a stream to a control plane open, over and over. What happens on it is
// told to the loop of the Source, which alone knows what to say: the feed has no state
// of the protocol.
type xdsChannel struct {
	name         string                // of the cluster of the control plane
	secretSource resource.SecretSource // that it is; the zero value: it has everything
	service      discoveryService
	mode         ads.Mode
	node         *corev3.Node
	target       target
	reloader     *credential.Reloader
	client       *ads.Client // the loop's
	events       chan<- event

	log        *slog.Logger
	lastLogged struct { // owned by run; the last failure that was logged
		reason string
		at     time.Time
	}

	lastResponse atomic.Int64 // when there was a response last, in ns since 1970; when it was made before that

	mu            sync.Mutex
	queue         []ads.Request // guarded by mu; to be sent
	queueSignal   chan struct{} // of one place: there is something in queue
	status        channelStatus // guarded by mu
	cancelSession func()        // guarded by mu; ends the session, nil before the first
}

// reconnect ends the stream, if there is one: there will be another.
func (f *xdsChannel) reconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancelSession != nil {
		f.cancelSession()
	}
}

// channelStatus is what is told of a feed.
type channelStatus struct {
	connected bool
	since     time.Time // of the last change of connected
	failure   string    // why it is not, or was not the last time
	attempts  int       // in vain, since it was
}

// event is what happened on a feed: it has a new stream, or a response came, or the
// stream ended. done is closed when the loop has dealt with it.
type event struct {
	channel   *xdsChannel
	opened    bool
	response  *ads.Response
	streamErr error
	done      chan struct{}
}

// Between two attempts a feed waits for half to all of a time that doubles, unless the
// last stream was good for longer than the longest.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// run keeps the stream open until ctx ends. Whatever fails is tried again, as a certificate
// that cannot be read: the active configuration stays meanwhile.
func (f *xdsChannel) run(ctx context.Context) {
	as := tlsIdentity{target: f.target, reloader: f.reloader}
	defer as.close()
	pause := minBackoff
	for ctx.Err() == nil {
		begun := time.Now()
		if f.isFirstAttempt() {
			f.log.Info("connecting to the control plane", logControl, f.name, logAddress, f.target.address)
		}
		opened, spoke, err := f.connect(ctx, &as)
		if ctx.Err() != nil {
			break
		}
		if spoke && time.Since(begun) > maxBackoff {
			pause = minBackoff
		}
		wait := pause/2 + rand.N(pause/2) //nolint:gosec // a jitter
		f.setFailed(err)
		if !opened { // the loop tells of a stream that has ended
			f.logFailure(err, wait)
		}
		retry := time.NewTimer(wait)
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
		retry.Stop()
		pause = min(2*pause, maxBackoff)
	}
}

// connect is session, after reading the certificates if need be.
func (f *xdsChannel) connect(ctx context.Context, as *tlsIdentity) (opened, spoke bool, err error) {
	secured, err := as.client()
	if err != nil {
		return false, false, err
	}
	return f.session(ctx, secured)
}

// isFirstAttempt reports whether nothing has failed since there was a stream.
func (f *xdsChannel) isFirstAttempt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status.connected || f.status.attempts == 0
}

// failureLogInterval is how often a failure that repeats itself is logged.
const failureLogInterval = 10 * time.Second

// logFailure logs why no stream could be opened: at once if the reason is new.
func (f *xdsChannel) logFailure(err error, wait time.Duration) {
	now, reason := time.Now(), err.Error()
	if reason == f.lastLogged.reason && now.Sub(f.lastLogged.at) < failureLogInterval {
		return
	}
	f.lastLogged.reason, f.lastLogged.at = reason, now
	f.log.Warn("cannot connect to the control plane", logControl, f.name, logAddress, f.target.address, logError, err,
		"retry_in", wait.Round(time.Millisecond))
}

// tlsIdentity is what a client of a control plane proves who it is with.
type tlsIdentity struct {
	target   target
	reloader *credential.Reloader

	loaded  bool
	tls     *credential.Client
	release func()
}

// client returns the TLS client, nil for plaintext. It reads the certificates at the first
// call that can.
func (i *tlsIdentity) client() (*credential.Client, error) {
	if i.loaded {
		return i.tls, nil
	}
	var err error
	if i.tls, i.release, err = i.target.loadTLS(i.reloader); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	i.loaded = true
	return i.tls, nil
}

func (i *tlsIdentity) close() {
	if i.loaded {
		i.release()
	}
}

// session opens one stream, on a connection of its own, and serves it until it ends.
// opened reports whether there was a stream, spoke whether the control plane said anything.
func (f *xdsChannel) session(ctx context.Context, secured *credential.Client) (opened, spoke bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A new connection knows no failures: grpc's own pauses do not come on top.
	conn, err := f.target.dial(secured)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = conn.Close() }()
	f.mu.Lock()
	f.cancelSession = cancel
	f.mu.Unlock()
	s, err := openStream(ctx, conn, f.service, f.mode, f.node)
	if err != nil {
		return false, false, err
	}
	f.mu.Lock()
	f.queue = nil
	f.mu.Unlock()
	if !f.deliver(ctx, event{opened: true}) {
		return false, false, ctx.Err()
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		f.sendLoop(ctx, s)
		cancel()
	})
	for {
		r, failed := s.receive(resource.Name)
		if failed != nil {
			err = failed
			break
		}
		if !spoke {
			spoke = true
			f.setConnected()
		}
		if !f.deliver(ctx, event{response: &r}) {
			break
		}
	}
	cancel()
	sending.Wait()
	f.deliver(context.WithoutCancel(ctx), event{streamErr: err})
	return true, spoke, err
}

// deliver has the loop deal with e, and reports false if ctx ended before.
func (f *xdsChannel) deliver(ctx context.Context, e event) bool {
	e.channel, e.done = f, make(chan struct{})
	select {
	case f.events <- e:
	case <-ctx.Done():
		return false
	}
	<-e.done
	return true
}

// sendLoop sends what is queued until ctx ends or the stream does.
func (f *xdsChannel) sendLoop(ctx context.Context, s *stream) {
	for {
		f.mu.Lock()
		queue := f.queue
		f.queue = nil
		f.mu.Unlock()
		for _, r := range queue {
			if s.send(r) != nil {
				return // receive has the reason
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-f.queueSignal:
		case <-ctx.Done():
			return
		}
	}
}

// enqueue queues requests; they are dropped if the stream ends before.
func (f *xdsChannel) enqueue(all ...ads.Request) {
	if len(all) == 0 {
		return
	}
	f.mu.Lock()
	f.queue = append(f.queue, all...)
	f.mu.Unlock()
	select {
	case f.queueSignal <- struct{}{}:
	default:
	}
}

func (f *xdsChannel) setConnected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = channelStatus{connected: true, since: time.Now()}
}

func (f *xdsChannel) isConnected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status.connected
}

func (f *xdsChannel) setFailed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.connected || f.status.since.IsZero() {
		f.status = channelStatus{since: time.Now()}
	}
	f.status.attempts++
	if err != nil {
		f.status.failure = err.Error()
	}
}

// secretChannel returns the feed of one who has secrets, which is begun if there is none.
func (s *Source) secretChannel(from resource.SecretSource) *xdsChannel {
	for _, f := range s.channels {
		if f.secretSource == from {
			return f
		}
	}
	f := &xdsChannel{name: from.Cluster, service: sdsService(), secretSource: from, mode: ads.StateOfTheWorld}
	if from.Delta {
		f.mode = ads.Delta
	}
	s.newChannel(f, ads.Type{URL: resource.SecretType})
	if s.startChannel != nil {
		s.startChannel(f)
	}
	return f
}
