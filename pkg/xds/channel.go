package xds

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/status"
	"github.com/weft-proxy/weft/pkg/xds/transport"
)

// channel keeps a stream to a control plane open and reconnects when it ends. It passes events
// to the event loop of the Source, which owns the protocol state.
type channel struct {
	name         string                // of the cluster of the control plane
	secretSource resource.SecretSource // source of the secrets it serves; zero: it is the ADS channel
	service      discoveryService
	mode         ads.Mode
	node         *corev3.Node
	dialer       *transport.Dialer // owned by run, except its Target
	client       *ads.Client       // owned by the event loop, under the lock of the stack
	history      status.History    // owned by the event loop, under the lock of the stack
	events       chan<- event

	log        *slog.Logger
	lastLogged struct { // owned by run; the last failure that was logged
		reason string
		at     time.Time
	}

	lastResponse atomic.Int64 // Unix time of the last response in ns, or of the creation before the first

	mu            sync.Mutex
	queue         []ads.Request     // guarded by mu; requests to send
	queueSignal   chan struct{}     // capacity 1; receives when queue is not empty
	status        status.Connection // guarded by mu
	cancelSession func()            // guarded by mu; ends the session, nil before the first
}

// reconnect ends the current session, if any; run starts another.
func (f *channel) reconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancelSession != nil {
		f.cancelSession()
	}
}

// event is a new stream, a response, or the end of a stream. The loop closes done after it has
// handled the event.
type event struct {
	channel   *channel
	opened    bool
	response  *ads.Response
	streamErr error
	done      chan struct{}
}

// run keeps the stream open until ctx ends. It retries after every failure, also of reading a
// certificate; the active configuration stays meanwhile.
func (f *channel) run(ctx context.Context) {
	defer f.dialer.Close()
	var backoff transport.Backoff
	for ctx.Err() == nil {
		begun := time.Now()
		if f.isFirstAttempt() {
			f.log.Info("connecting to the control plane", logControl, f.name, logAddress, f.dialer.Target.Address)
		}
		opened, spoke, err := f.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if spoke {
			backoff.ResetAfter(time.Since(begun))
		}
		wait := backoff.Next()
		f.setFailed(err)
		if !opened { // the event loop logs the end of an open stream
			f.logFailure(err, wait)
		}
		retry := time.NewTimer(wait)
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
		retry.Stop()
	}
}

// isFirstAttempt reports whether no attempt has failed since the last connection.
func (f *channel) isFirstAttempt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status.Connected || f.status.Attempts == 0
}

// failureLogInterval is the minimum time between log lines with the same failure.
const failureLogInterval = 10 * time.Second

// logFailure logs why no stream could be opened. It logs a new reason immediately.
func (f *channel) logFailure(err error, wait time.Duration) {
	now, reason := time.Now(), err.Error()
	if reason == f.lastLogged.reason && now.Sub(f.lastLogged.at) < failureLogInterval {
		return
	}
	f.lastLogged.reason, f.lastLogged.at = reason, now
	f.log.Warn("cannot connect to the control plane", logControl, f.name, logAddress, f.dialer.Target.Address, logError, err,
		"retry_in", wait.Round(time.Millisecond))
}

// session opens one stream on a connection of its own and serves it until it ends. opened reports
// whether there was a stream, spoke whether a response arrived.
func (f *channel) session(ctx context.Context) (opened, spoke bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A new connection starts without the backoff of grpc, which would add to the backoff of run.
	conn, err := f.dialer.Dial()
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

// deliver passes e to the event loop and waits until it is handled. It returns false if ctx ended
// before.
func (f *channel) deliver(ctx context.Context, e event) bool {
	e.channel, e.done = f, make(chan struct{})
	select {
	case f.events <- e:
	case <-ctx.Done():
		return false
	}
	<-e.done
	return true
}

// sendLoop sends queued requests until ctx or the stream ends.
func (f *channel) sendLoop(ctx context.Context, s *stream) {
	for {
		f.mu.Lock()
		queue := f.queue
		f.queue = nil
		f.mu.Unlock()
		for _, r := range queue {
			if s.send(r) != nil {
				return // receive returns the error
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

// enqueue queues requests. They are dropped if the stream ends before they are sent.
func (f *channel) enqueue(all ...ads.Request) {
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

func (f *channel) setConnected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = status.Connection{Connected: true, Since: time.Now()}
}

func (f *channel) isConnected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status.Connected
}

func (f *channel) setFailed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.Connected || f.status.Since.IsZero() {
		f.status = status.Connection{Since: time.Now()}
	}
	f.status.Attempts++
	if err != nil {
		f.status.Failure = err.Error()
	}
}

// secretChannel returns the channel to a source of secrets, and creates and starts it if needed.
func (s *Source) secretChannel(from resource.SecretSource) *channel {
	for _, f := range s.channels {
		if f.secretSource == from {
			return f
		}
	}
	f := &channel{name: from.Cluster, service: sdsService(), secretSource: from, mode: ads.StateOfTheWorld}
	if from.Delta {
		f.mode = ads.Delta
	}
	s.newChannel(f, ads.Type{URL: resource.SecretType})
	if s.startChannel != nil {
		s.startChannel(f)
	}
	return f
}
