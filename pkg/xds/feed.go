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

// feed keeps a stream to a control plane open, over and over. What happens on it is
// told to the loop of the Source, which alone knows what to say: the feed has no state
// of the protocol.
type feed struct {
	name    string                // of the cluster of the control plane
	secrets resource.SecretSource // that it is; the zero value: it has everything
	service service
	form    ads.Form
	node    *corev3.Node
	target  target
	store   *credential.Reloader
	client  *ads.Client // the loop's
	events  chan<- event

	log      *slog.Logger
	reported struct { // owned by run; the last failure that was logged
		reason string
		at     time.Time
	}

	answered atomic.Int64 // when there was a response last, in ns since 1970; when it was made before that

	mu     sync.Mutex
	queue  []ads.Request // guarded by mu; to be sent
	more   chan struct{} // of one place: there is something in queue
	status feedStatus    // guarded by mu
	cut    func()        // guarded by mu; ends the session, nil before the first
}

// restart ends the stream, if there is one: there will be another.
func (f *feed) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut != nil {
		f.cut()
	}
}

// feedStatus is what is told of a feed.
type feedStatus struct {
	connected bool
	since     time.Time // of the last change of connected
	failure   string    // why it is not, or was not the last time
	attempts  int       // in vain, since it was
}

// event is what happened on a feed: it has a new stream, or a response came, or the
// stream ended. done is closed when the loop has dealt with it.
type event struct {
	feed     *feed
	opened   bool
	response *ads.Response
	ended    error
	done     chan struct{}
}

// Between two attempts a feed waits for half to all of a time that doubles, unless the
// last stream was good for longer than the longest.
const (
	firstPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
)

// run keeps the stream open until ctx ends. Whatever fails is tried again, as a certificate
// that cannot be read: the active configuration stays meanwhile.
func (f *feed) run(ctx context.Context) {
	as := clientIdentity{target: f.target, store: f.store}
	defer as.close()
	pause := firstPause
	for ctx.Err() == nil {
		begun := time.Now()
		if f.begins() {
			f.log.Info("connecting to the control plane", logControl, f.name, logAddress, f.target.address)
		}
		opened, spoke, err := f.attempt(ctx, &as)
		if ctx.Err() != nil {
			break
		}
		if spoke && time.Since(begun) > mostPause {
			pause = firstPause
		}
		wait := pause/2 + rand.N(pause/2) //nolint:gosec // a jitter
		f.failed(err)
		if !opened { // the loop tells of a stream that has ended
			f.report(err, wait)
		}
		retry := time.NewTimer(wait)
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
		retry.Stop()
		pause = min(2*pause, mostPause)
	}
}

// attempt is session, after reading the certificates if need be.
func (f *feed) attempt(ctx context.Context, as *clientIdentity) (opened, spoke bool, err error) {
	secured, err := as.client()
	if err != nil {
		return false, false, err
	}
	return f.session(ctx, secured)
}

// begins reports whether nothing has failed since there was a stream.
func (f *feed) begins() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status.connected || f.status.attempts == 0
}

// reportEvery is how often a failure that repeats itself is logged.
const reportEvery = 10 * time.Second

// report logs why no stream could be opened: at once if the reason is new.
func (f *feed) report(err error, wait time.Duration) {
	now, reason := time.Now(), err.Error()
	if reason == f.reported.reason && now.Sub(f.reported.at) < reportEvery {
		return
	}
	f.reported.reason, f.reported.at = reason, now
	f.log.Warn("cannot connect to the control plane", logControl, f.name, logAddress, f.target.address, logError, err,
		"retry_in", wait.Round(time.Millisecond))
}

// clientIdentity is what a client of a control plane proves who it is with.
type clientIdentity struct {
	target target
	store  *credential.Reloader

	read    bool
	secured *credential.Client
	forget  func()
}

// client returns the TLS client, nil for plaintext. It reads the certificates at the first
// call that can.
func (i *clientIdentity) client() (*credential.Client, error) {
	if i.read {
		return i.secured, nil
	}
	var err error
	if i.secured, i.forget, err = i.target.secure(i.store); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	i.read = true
	return i.secured, nil
}

func (i *clientIdentity) close() {
	if i.read {
		i.forget()
	}
}

// session opens one stream, on a connection of its own, and serves it until it ends.
// opened reports whether there was a stream, spoke whether the control plane said anything.
func (f *feed) session(ctx context.Context, secured *credential.Client) (opened, spoke bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A new connection knows no failures: grpc's own pauses do not come on top.
	conn, err := f.target.dial(secured)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = conn.Close() }()
	f.mu.Lock()
	f.cut = cancel
	f.mu.Unlock()
	s, err := openStream(ctx, conn, f.service, f.form, f.node)
	if err != nil {
		return false, false, err
	}
	f.mu.Lock()
	f.queue = nil
	f.mu.Unlock()
	if !f.tell(ctx, event{opened: true}) {
		return false, false, ctx.Err()
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		f.sendAll(ctx, s)
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
			f.connected()
		}
		if !f.tell(ctx, event{response: &r}) {
			break
		}
	}
	cancel()
	sending.Wait()
	f.tell(context.WithoutCancel(ctx), event{ended: err})
	return true, spoke, err
}

// tell has the loop deal with e, and reports false if ctx ended before.
func (f *feed) tell(ctx context.Context, e event) bool {
	e.feed, e.done = f, make(chan struct{})
	select {
	case f.events <- e:
	case <-ctx.Done():
		return false
	}
	<-e.done
	return true
}

// sendAll sends what is queued until ctx ends or the stream does.
func (f *feed) sendAll(ctx context.Context, s *stream) {
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
		case <-f.more:
		case <-ctx.Done():
			return
		}
	}
}

// say queues requests; they are dropped if the stream ends before.
func (f *feed) say(all ...ads.Request) {
	if len(all) == 0 {
		return
	}
	f.mu.Lock()
	f.queue = append(f.queue, all...)
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

func (f *feed) connected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = feedStatus{connected: true, since: time.Now()}
}

func (f *feed) isConnected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status.connected
}

func (f *feed) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.connected || f.status.since.IsZero() {
		f.status = feedStatus{since: time.Now()}
	}
	f.status.attempts++
	if err != nil {
		f.status.failure = err.Error()
	}
}

// secretFeed returns the feed of one who has secrets, which is begun if there is none.
func (s *Source) secretFeed(from resource.SecretSource) *feed {
	for _, f := range s.feeds {
		if f.secrets == from {
			return f
		}
	}
	f := &feed{name: from.Cluster, service: secrets(), secrets: from, form: ads.StateOfTheWorld}
	if from.Delta {
		f.form = ads.Delta
	}
	s.newFeed(f, ads.Type{URL: resource.SecretType})
	if s.launch != nil {
		s.launch(f)
	}
	return f
}
