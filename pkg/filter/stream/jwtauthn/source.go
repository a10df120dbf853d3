package jwtauthn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// keySource provides the keys of an issuer.
type keySource interface {
	// keys returns the key set that verifies tokens. If outdated is not nil, keys returns a set
	// that replaced outdated, or errNoKey if there is none. To wait for a fetch, keys calls await,
	// and returns its error.
	keys(outdated keySet, await awaitFunc) (keySet, error)
}

// awaitFunc waits until fetched is closed. Its errors wrap errUndecided.
type awaitFunc func(fetched <-chan struct{}) error

// errUndecided means that a request needs keys that are still being fetched, so that its tokens are
// neither valid nor invalid.
var errUndecided = errors.New("the keys are being fetched")

// errMustWait is the error of doNotWait.
var errMustWait = fmt.Errorf("%w, and this goroutine must not wait", errUndecided)

// doNotWait is the awaitFunc of a goroutine that must not wait.
func doNotWait(<-chan struct{}) error { return errMustWait }

// awaitKeys waits until fetched is closed. The error wraps a Fault: ReasonDownstreamDisconnect when
// the client of x disconnects, Draining when ctx ends. See filter.WaitFor.
func awaitKeys(ctx context.Context, x *protocol.Exchange, fetched <-chan struct{}) error {
	err := filter.WaitFor(ctx, x, fetched)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, filter.ErrClientDisconnected):
		return protocol.NewFault(protocol.ReasonDownstreamDisconnect, errUndecided)
	}
	return protocol.NewFault(protocol.Draining, errUndecided)
}

// staticKeys is a keySource for keys in the configuration.
type staticKeys keySet

func (s staticKeys) keys(outdated keySet, _ awaitFunc) (keySet, error) {
	if outdated != nil {
		return nil, errNoKey
	}
	return keySet(s), nil
}

// minFetchInterval is the minimum time between the starts of two fetches. It limits the fetches
// after a failed fetch and for tokens with an unknown key, which would otherwise start one per
// request.
const minFetchInterval = 5 * time.Second

// maxKeySetBytes is the maximum size of a fetched key set in bytes.
const maxKeySetBytes = 1 << 20

// remoteKeys is a keySource that fetches keys when requests need them and caches them. At most one
// fetch is in flight. A request waits for the fetch only if there is no usable set, or if it needs
// a newer set.
type remoteKeys struct {
	config RemoteJWKS           // immutable
	client filter.ClusterClient // immutable
	now    func() time.Time     // immutable

	mu        sync.Mutex
	set       keySet        // guarded by mu; nil: no fetch has succeeded
	fetchedAt time.Time     // guarded by mu; when set was fetched
	lastFetch time.Time     // guarded by mu; when the last fetch began
	err       error         // guarded by mu; error of the last fetch
	inFlight  chan struct{} // guarded by mu; closed when the fetch in flight has ended; nil: no fetch is in flight
}

// keys implements keySource.
func (r *remoteKeys) keys(outdated keySet, await awaitFunc) (keySet, error) {
	r.mu.Lock()
	now := r.now()
	age := now.Sub(r.fetchedAt)
	usable := r.set != nil && age < r.config.CacheDuration+r.config.StaleDuration
	if outdated != nil && !r.set.isSame(outdated) {
		outdated = nil // a fetch has already replaced outdated
	}
	if (!usable || outdated != nil || age >= r.config.CacheDuration) && r.inFlight == nil && (r.lastFetch.IsZero() || now.Sub(r.lastFetch) >= minFetchInterval) {
		r.inFlight = make(chan struct{})
		r.lastFetch = now
		r.client.Go(r.fetch)
	}
	set, fetched, err := r.set, r.inFlight, r.err
	r.mu.Unlock()
	switch {
	case usable && outdated == nil:
		return set, nil
	case fetched == nil && outdated != nil:
		return nil, errNoKey
	case fetched == nil:
		return nil, fmt.Errorf("fetching the keys failed: %w", errors.Join(err, errors.New("no key set is available")))
	}
	if err := await(fetched); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, fmt.Errorf("fetching the keys failed: %w", r.err)
	}
	return r.set, nil
}

// errFetchPanicked is the error of a fetch that panicked.
var errFetchPanicked = errors.New("the fetch was interrupted")

// fetch fetches the keys once.
func (r *remoteKeys) fetch(ctx context.Context) {
	set, err := keySet(nil), errFetchPanicked
	defer func() { // also after a panic, because requests wait for inFlight
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.err = err; err == nil {
			r.set, r.fetchedAt = set, r.now()
		}
		close(r.inFlight)
		r.inFlight = nil
	}()
	set, err = r.requestKeys(ctx)
}

func (r *remoteKeys) requestKeys(ctx context.Context) (set keySet, err error) {
	uri, err := url.Parse(r.config.HTTP.URI)
	if err != nil {
		return nil, err
	}
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Protocol, x.Meta.Version, x.Meta.Conn = string(config.HTTP1), "HTTP/1.1", new(protocol.ConnMeta)
	x.Meta.Start = time.Now()
	x.Deadline = x.Meta.Start.Add(r.config.HTTP.Timeout)
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "GET", uri.Scheme, uri.Host, uri.RequestURI()
	x.Request.Header.Add("Accept", "application/jwk-set+json, application/json")
	target := filter.Target{Cluster: r.config.HTTP.Cluster, Protocol: config.HTTP1, Timeout: r.config.HTTP.Timeout}
	err = r.client.Call(ctx, target, x, func() error {
		if x.Response.Status != 200 || x.Response.Body == nil {
			return fmt.Errorf("%s: unexpected response status %d", r.config.HTTP.URI, x.Response.Status)
		}
		content, err := io.ReadAll(io.LimitReader(x.Response.Body, maxKeySetBytes+1))
		if err == nil && len(content) > maxKeySetBytes {
			err = errors.New("the key set is larger than 1 MiB")
		}
		if err == nil {
			set, err = parseKeys(content)
		}
		return err
	})
	return set, err
}

// jwksCache caches the fetched keys of the process. The keys outlive a configuration, so that a
// reload does not depend on the issuers. Unused entries are not removed: they are small and few.
type jwksCache struct {
	mu       sync.Mutex
	byConfig map[RemoteJWKS]*remoteKeys // guarded by mu
}

func (c *jwksCache) getOrCreate(cfg RemoteJWKS, clusters filter.ClusterClient, now func() time.Time) *remoteKeys {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := c.byConfig[cfg]
	if keys == nil {
		keys = &remoteKeys{config: cfg, client: clusters, now: now}
		c.byConfig[cfg] = keys
	}
	return keys
}
