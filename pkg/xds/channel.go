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

// channel keeps a stream to a control plane open and reconnects when the stream ends. It passes
// events to the event loop of the Source, which updates the protocol state.
type channel struct {
	name         string                // name of the control plane's cluster, or path
	onlyType     string                // type URL of the only type that the channel serves, except secrets; "": ADS, or secrets
	path         string                // of the file that the channel reads; "": a control plane
	secretSource resource.SecretSource // source of the secrets that the channel serves; zero: the ADS channel
	service      discoveryService
	mode         ads.Mode
	node         *corev3.Node
	dialer       *transport.Dialer // owned by run, except its Target
	client       *ads.Client       // guarded by the lock of the stack
	history      status.History    // guarded by the lock of the stack
	events       chan<- event

	log        *slog.Logger
	lastLogged struct { // owned by run; the last failure that was logged
		reason string
		at     time.Time
	}

	lastResponse atomic.Int64 // Unix time in ns of the last response or, before the first, when the channel was created

	mu            sync.Mutex
	queue         []ads.Request     // guarded by mu; requests to send
	queueSignal   chan struct{}     // capacity 1; receives a value when enqueue adds to queue
	status        status.Connection // guarded by mu
	cancelSession func()            // guarded by mu; ends the last session; nil: there was none
}

// reconnect ends the current session, if any; run starts another.
func (c *channel) reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelSession != nil {
		c.cancelSession()
	}
}

// event is a new stream, a response, or the end of a stream. The event loop closes done after it
// has handled the event.
type event struct {
	channel   *channel
	opened    bool
	response  *ads.Response
	streamErr error
	done      chan struct{}
}

// run keeps the stream open, or watches the file, until ctx ends. It retries after every failure, including a failure to
// read a certificate.
func (c *channel) run(ctx context.Context) {
	if c.path != "" {
		c.watchFile(ctx)
		return
	}
	defer c.dialer.Close()
	var backoff transport.Backoff
	for ctx.Err() == nil {
		started := time.Now()
		if c.isFirstAttempt() {
			c.log.Info("connecting to the control plane", logControl, c.name, logAddress, c.dialer.Target.Address)
		}
		opened, responded, err := c.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if responded {
			backoff.ResetAfter(time.Since(started))
		}
		wait := backoff.Next()
		c.setFailed(err)
		if !opened { // the event loop logs the end of an open stream
			c.logFailure(err, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// isFirstAttempt reports whether no earlier session has ended.
func (c *channel) isFirstAttempt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status.Connected || c.status.Attempts == 0
}

// failureLogInterval is the minimum time between log lines with the same failure.
const failureLogInterval = 10 * time.Second

// logFailure logs why no stream could be opened. It logs a new reason immediately.
func (c *channel) logFailure(err error, wait time.Duration) {
	now, reason := time.Now(), err.Error()
	if reason == c.lastLogged.reason && now.Sub(c.lastLogged.at) < failureLogInterval {
		return
	}
	c.lastLogged.reason, c.lastLogged.at = reason, now
	c.log.Warn("cannot connect to the control plane", logControl, c.name, logAddress, c.dialer.Target.Address, logError, err,
		"retry_in", wait.Round(time.Millisecond))
}

// session opens one stream on a new connection and serves it until it ends. opened reports whether
// the stream was opened, responded whether a response arrived.
func (c *channel) session(ctx context.Context) (opened, responded bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A new connection starts without the backoff of grpc, which would add to the backoff of run.
	conn, err := c.dialer.Dial()
	if err != nil {
		return false, false, err
	}
	defer func() { _ = conn.Close() }()
	c.mu.Lock()
	c.cancelSession = cancel
	c.mu.Unlock()
	s, err := openStream(ctx, conn, c.service, c.mode, c.node)
	if err != nil {
		return false, false, err
	}
	c.mu.Lock()
	c.queue = nil
	c.mu.Unlock()
	if !c.deliver(ctx, event{opened: true}) {
		return false, false, ctx.Err()
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		c.sendLoop(ctx, s)
		cancel()
	})
	for {
		r, recvErr := s.receive(resource.Name)
		if recvErr != nil {
			err = recvErr
			break
		}
		if !responded {
			responded = true
			c.setConnected()
		}
		if !c.deliver(ctx, event{response: &r}) {
			break
		}
	}
	cancel()
	sender.Wait()
	c.deliver(context.WithoutCancel(ctx), event{streamErr: err})
	return true, responded, err
}

// deliver passes e to the event loop and waits until the loop has handled it. It returns false if
// ctx ends before the loop receives e.
func (c *channel) deliver(ctx context.Context, e event) bool {
	e.channel, e.done = c, make(chan struct{})
	select {
	case c.events <- e:
	case <-ctx.Done():
		return false
	}
	<-e.done
	return true
}

// sendLoop sends queued requests until ctx or the stream ends.
func (c *channel) sendLoop(ctx context.Context, s *stream) {
	for {
		c.mu.Lock()
		queue := c.queue
		c.queue = nil
		c.mu.Unlock()
		for _, r := range queue {
			if s.send(r) != nil {
				return // receive returns the error
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-c.queueSignal:
		case <-ctx.Done():
			return
		}
	}
}

// enqueue queues requests. The channel drops requests that it has not sent when the stream ends.
func (c *channel) enqueue(requests ...ads.Request) {
	if len(requests) == 0 {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, requests...)
	c.mu.Unlock()
	select {
	case c.queueSignal <- struct{}{}:
	default:
	}
}

func (c *channel) setConnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status.Connection{Connected: true, Since: time.Now()}
}

func (c *channel) isConnected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status.Connected
}

func (c *channel) setFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status.Connected || c.status.Since.IsZero() {
		c.status = status.Connection{Since: time.Now()}
	}
	c.status.Attempts++
	if err != nil {
		c.status.Failure = err.Error()
	}
}

// servesSecrets reports whether the channel serves the secrets of a source.
func (c *channel) servesSecrets(from resource.SecretSource) bool {
	return c.onlyType == "" && c.secretSource == from
}

// secretChannel returns the channel to a source of secrets, and creates and starts it if needed.
func (s *Source) secretChannel(from resource.SecretSource) *channel {
	for _, ch := range s.channels {
		if ch.servesSecrets(from) {
			return ch
		}
	}
	ch := &channel{name: from.Cluster, service: sdsService(), secretSource: from, mode: ads.StateOfTheWorld}
	if from.Delta {
		ch.mode = ads.Delta
	}
	s.newChannel(ch, ads.Type{URL: resource.SecretType})
	if s.startChannel != nil {
		s.startChannel(ch)
	}
	return ch
}
