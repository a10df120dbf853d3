package xds

import (
	"context"
	"fmt"
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
	store   *credential.Store
	client  *ads.Client // the loop's
	events  chan<- event

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

// run keeps the stream open until ctx ends.
func (f *feed) run(ctx context.Context) error {
	secured, forget, err := f.target.secure(f.store)
	if err != nil {
		return fmt.Errorf("control plane %s: %w", f.name, err)
	}
	defer forget()
	pause := firstPause
	for ctx.Err() == nil {
		begun := time.Now()
		spoke, err := f.session(ctx, secured)
		if ctx.Err() != nil {
			break
		}
		if spoke && time.Since(begun) > mostPause {
			pause = firstPause
		}
		f.failed(err)
		wait := time.NewTimer(pause/2 + rand.N(pause/2)) //nolint:gosec // a jitter
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		pause = min(2*pause, mostPause)
	}
	return nil
}

// session opens one stream, on a connection of its own, and serves it until it ends.
// spoke reports whether the control plane said anything.
func (f *feed) session(ctx context.Context, secured *credential.Client) (spoke bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A new connection knows no failures: grpc's own pauses do not come on top.
	conn, err := f.target.dial(secured)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	f.mu.Lock()
	f.cut = cancel
	f.mu.Unlock()
	s, err := openStream(ctx, conn, f.service, f.form, f.node)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	f.queue = nil
	f.mu.Unlock()
	if !f.tell(ctx, event{opened: true}) {
		return false, ctx.Err()
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
	return spoke, err
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
