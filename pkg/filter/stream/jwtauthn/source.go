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

// source provides the keys of an issuer.
type source interface {
	// keys returns the set that verifies tokens. If newer is not nil, keys returns a set that
	// replaced newer, or errNoKey if it cannot get one. Before keys waits for a fetch, it calls
	// wait; if wait returns false, keys returns errWait instead.
	keys(ctx context.Context, newer keySet, wait func() bool) (keySet, error)
}

// errWait means that keys are being fetched, and that the caller does not allow waiting.
var errWait = errors.New("the keys are being fetched")

// fixed is a source of keys from the configuration.
type fixed keySet

func (f fixed) keys(_ context.Context, newer keySet, _ func() bool) (keySet, error) {
	if newer != nil {
		return nil, errNoKey
	}
	return keySet(f), nil
}

// pause is the minimum time between the starts of two fetches. Without it, failed fetches and
// tokens with unknown keys would cause a fetch each.
const pause = 5 * time.Second

// mostKeys is the maximum size of a fetched set of keys in bytes.
const mostKeys = 1 << 20

// fetched is a source that fetches keys when requests need them and caches them. At most one fetch
// is in flight. Requests wait for it only if there is no usable set, or if they need a newer one.
type fetched struct {
	config RemoteJWKS           // immutable
	calls  filter.ClusterClient // immutable
	now    func() time.Time     // immutable

	mu     sync.Mutex
	set    keySet        // guarded by mu; nil: no fetch has succeeded
	at     time.Time     // guarded by mu; when set was fetched
	tried  time.Time     // guarded by mu; when the last fetch began
	err    error         // guarded by mu; error of the last fetch
	flight chan struct{} // guarded by mu; closed when the fetch in flight has ended; nil: none in flight
}

// keys implements source.
func (f *fetched) keys(ctx context.Context, newer keySet, wait func() bool) (keySet, error) {
	f.mu.Lock()
	now := f.now()
	age := now.Sub(f.at)
	usable := f.set != nil && age < f.config.Duration+f.config.Stale
	if newer != nil && !f.set.is(newer) {
		newer = nil // a newer set has replaced it
	}
	if (!usable || newer != nil || age >= f.config.Duration) && f.flight == nil && (f.tried.IsZero() || now.Sub(f.tried) >= pause) {
		f.flight = make(chan struct{})
		f.tried = now
		f.calls.Go(f.fetch)
	}
	set, flight, err := f.set, f.flight, f.err
	f.mu.Unlock()
	switch {
	case usable && newer == nil:
		return set, nil
	case flight == nil && newer != nil:
		return nil, errNoKey
	case flight == nil:
		return nil, fmt.Errorf("fetching the keys failed: %w", errors.Join(err, errors.New("no key set is available")))
	case !wait():
		return nil, errWait
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

// errCut is the error of a fetch that panicked.
var errCut = errors.New("the fetch was interrupted")

// fetch fetches the keys once.
func (f *fetched) fetch(ctx context.Context) {
	set, err := keySet(nil), errCut
	defer func() { // even after a panic, because requests wait for flight
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err = err; err == nil {
			f.set, f.at = set, f.now()
		}
		close(f.flight)
		f.flight = nil
	}()
	set, err = f.ask(ctx)
}

func (f *fetched) ask(ctx context.Context) (set keySet, err error) {
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
	err = f.calls.Call(ctx, to, x, func() error {
		if x.Response.Status != 200 || x.Response.Body == nil {
			return fmt.Errorf("%s: unexpected response status %d", f.config.HTTP.URI, x.Response.Status)
		}
		text, err := io.ReadAll(io.LimitReader(x.Response.Body, mostKeys+1))
		if err == nil && len(text) > mostKeys {
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
	mu  sync.Mutex
	all map[RemoteJWKS]*fetched // guarded by mu
}

func (s *jwksCache) of(r RemoteJWKS, calls filter.ClusterClient, now func() time.Time) *fetched {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[r]
	if f == nil {
		f = &fetched{config: r, calls: calls, now: now}
		s.all[r] = f
	}
	return f
}
