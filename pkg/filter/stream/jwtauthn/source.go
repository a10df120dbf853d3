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
	// keys returns the set that verifies tokens. If newer is not nil, keys returns a set that
	// replaced newer, or errNoKey if it cannot get one. Before keys waits for a fetch, it calls
	// wait; if wait returns false, keys returns errMustWait instead.
	keys(ctx context.Context, newer keySet, wait func() bool) (keySet, error)
}

// errMustWait means that keys are being fetched, and that the caller does not allow waiting.
var errMustWait = errors.New("the keys are being fetched")

// staticKeys is a source of keys from the configuration.
type staticKeys keySet

func (f staticKeys) keys(_ context.Context, newer keySet, _ func() bool) (keySet, error) {
	if newer != nil {
		return nil, errNoKey
	}
	return keySet(f), nil
}

// minFetchInterval is the minimum time between the starts of two fetches. Without it, failed
// fetches and tokens with unknown keys would cause a fetch each.
const minFetchInterval = 5 * time.Second

// maxKeySetBytes is the maximum size of a fetched set of keys in bytes.
const maxKeySetBytes = 1 << 20

// remoteKeys is a source that fetches keys when requests need them and caches them. At most one
// fetch is in flight. Requests wait for it only if there is no usable set, or if they need a newer
// one.
type remoteKeys struct {
	config RemoteJWKS           // immutable
	client filter.ClusterClient // immutable
	now    func() time.Time     // immutable

	mu        sync.Mutex
	set       keySet        // guarded by mu; nil: no fetch has succeeded
	fetchedAt time.Time     // guarded by mu; when set was fetched
	lastFetch time.Time     // guarded by mu; when the last fetch began
	err       error         // guarded by mu; error of the last fetch
	inFlight  chan struct{} // guarded by mu; closed when the fetch in flight has ended; nil: none in flight
}

// keys implements source.
func (f *remoteKeys) keys(ctx context.Context, newer keySet, wait func() bool) (keySet, error) {
	f.mu.Lock()
	now := f.now()
	age := now.Sub(f.fetchedAt)
	usable := f.set != nil && age < f.config.Duration+f.config.Stale
	if newer != nil && !f.set.isSame(newer) {
		newer = nil // a newer set has replaced it
	}
	if (!usable || newer != nil || age >= f.config.Duration) && f.inFlight == nil && (f.lastFetch.IsZero() || now.Sub(f.lastFetch) >= minFetchInterval) {
		f.inFlight = make(chan struct{})
		f.lastFetch = now
		f.client.Go(f.fetch)
	}
	set, flight, err := f.set, f.inFlight, f.err
	f.mu.Unlock()
	switch {
	case usable && newer == nil:
		return set, nil
	case flight == nil && newer != nil:
		return nil, errNoKey
	case flight == nil:
		return nil, fmt.Errorf("fetching the keys failed: %w", errors.Join(err, errors.New("no key set is available")))
	case !wait():
		return nil, errMustWait
	}
	select {
	case <-flight:
	case <-ctx.Done():
		return nil, protocol.NewFault(protocol.Draining, ctx.Err())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, fmt.Errorf("fetching the keys failed: %w", f.err)
	}
	return f.set, nil
}

// errFetchPanicked is the error of a fetch that panicked.
var errFetchPanicked = errors.New("the fetch was interrupted")

// fetch fetches the keys once.
func (f *remoteKeys) fetch(ctx context.Context) {
	set, err := keySet(nil), errFetchPanicked
	defer func() { // even after a panic, because requests wait for flight
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err = err; err == nil {
			f.set, f.fetchedAt = set, f.now()
		}
		close(f.inFlight)
		f.inFlight = nil
	}()
	set, err = f.requestKeys(ctx)
}

func (f *remoteKeys) requestKeys(ctx context.Context) (set keySet, err error) {
	uri, err := url.Parse(f.config.HTTP.URI)
	if err != nil {
		return nil, err
	}
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Protocol, x.Meta.Version, x.Meta.Conn = string(config.HTTP1), "HTTP/1.1", new(protocol.ConnMeta)
	x.Meta.Start = time.Now()
	x.Deadline = x.Meta.Start.Add(f.config.HTTP.Timeout)
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "GET", uri.Scheme, uri.Host, uri.RequestURI()
	x.Request.Header.Add("Accept", "application/jwk-set+json, application/json")
	to := filter.Target{Cluster: f.config.HTTP.Cluster, Protocol: config.HTTP1}
	err = f.client.Call(ctx, to, x, func() error {
		if x.Response.Status != 200 || x.Response.Body == nil {
			return fmt.Errorf("%s: unexpected response status %d", f.config.HTTP.URI, x.Response.Status)
		}
		text, err := io.ReadAll(io.LimitReader(x.Response.Body, maxKeySetBytes+1))
		if err == nil && len(text) > maxKeySetBytes {
			err = errors.New("the key set is larger than 1 MiB")
		}
		if err == nil {
			set, err = parseKeys(text)
		}
		return err
	})
	return set, err
}

// jwksCache caches the fetched keys of the process. They outlive a configuration, so that a reload
// does not depend on the issuers. Entries that no configuration uses stay: they are small and few.
type jwksCache struct {
	mu       sync.Mutex
	byConfig map[RemoteJWKS]*remoteKeys // guarded by mu
}

func (s *jwksCache) getOrCreate(r RemoteJWKS, calls filter.ClusterClient, now func() time.Time) *remoteKeys {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byConfig[r]
	if f == nil {
		f = &remoteKeys{config: r, client: calls, now: now}
		s.byConfig[r] = f
	}
	return f
}
