package zookeeper

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Backoff before each attempt after the first round, which tries each server once. The backoff
	// doubles with each round.
	minRoundBackoff = 100 * time.Millisecond
	maxRoundBackoff = 5 * time.Second
)

// hostProvider selects and dials the servers of one client. It implements the library's
// HostProvider and Dialer. The library requests one server at a time and dials it; each dial
// resolves the name again.
type hostProvider struct {
	// immutable
	tls       *tls.Config
	timeout   time.Duration // timeout to connect, and again for the connect response
	onFailure func(error)   // called for each failed attempt; must not block
	watches   *watchSet     // of the connections

	closed atomic.Bool // the client is closing; Next then tells the library to stop dialing

	mu        sync.Mutex
	servers   []string // guarded by mu
	nextIndex int      // guarded by mu; index of the next server
	attempts  int      // guarded by mu; number of attempts since the last call of Connected
	current   net.Conn // guarded by mu; nil: none
}

// Init stores the servers, which the library has shuffled.
func (p *hostProvider) Init(servers []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = servers
	return nil
}

// Len returns the number of servers.
func (p *hostProvider) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.servers)
}

// Next returns the next server. If retryStart is true, the library waits before it dials, unless
// the client is closed. retryStart is true only after the close, because dial waits before the
// attempts.
func (p *hostProvider) Next() (server string, retryStart bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server = p.servers[p.nextIndex%len(p.servers)]
	p.nextIndex++
	return server, p.closed.Load()
}

// Connected is called after a connect response that opens or resumes a session.
func (p *hostProvider) Connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts = 0
}

// dialer returns the library's Dialer. ctx bounds every dial.
func (p *hostProvider) dialer(ctx context.Context) func(network, address string, _ time.Duration) (net.Conn, error) {
	return func(network, address string, _ time.Duration) (net.Conn, error) {
		conn, err := p.dial(ctx, network, address)
		if err != nil && ctx.Err() == nil {
			p.onFailure(err)
		}
		return conn, err
	}
}

func (p *hostProvider) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := p.backOff(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if p.tls != nil {
		if conn, err = p.secure(ctx, conn, address); err != nil {
			return nil, err
		}
	}
	sc := &serverConn{Conn: conn, address: address, timeout: p.timeout, onFailure: p.onFailure, watches: p.watches}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = sc
	if p.closed.Load() { // closeConn ran before
		_ = sc.Close()
	}
	return sc, nil
}

// backOff waits before an attempt if all servers have been tried since the last call of Connected.
func (p *hostProvider) backOff(ctx context.Context) error {
	p.mu.Lock()
	rounds := p.attempts / len(p.servers)
	p.attempts++
	p.mu.Unlock()
	if rounds == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(jitter(min(minRoundBackoff<<min(rounds-1, 10), maxRoundBackoff)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// jitter returns a random duration from d/2 to d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func (p *hostProvider) secure(ctx context.Context, plain net.Conn, address string) (net.Conn, error) {
	cfg := p.tls
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	conn := tls.Client(plain, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return conn, nil
}

// closeConn closes the current connection.
func (p *hostProvider) closeConn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		_ = p.current.Close() // its reader gets the error
	}
}
