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
	// Backoff between rounds of attempts in which all servers were tried.
	minRoundBackoff = 100 * time.Millisecond
	maxRoundBackoff = 5 * time.Second
)

// hostProvider selects and dials the servers of one client. It implements the library's
// HostProvider and Dialer. The library requests one server at a time and dials it; each dial
// resolves names again.
type hostProvider struct {
	// immutable
	tls       *tls.Config
	timeout   time.Duration // timeout to connect, and again for the connect response
	onFailure func(error)   // called for each failed attempt; must not block

	closed atomic.Bool // the client is closing, which the library must notice

	mu        sync.Mutex
	servers   []string // guarded by mu
	nextIndex int      // guarded by mu; index of the next server
	attempts  int      // guarded by mu; since the last connect response
	current   net.Conn // guarded by mu; nil: none
}

// Init stores the servers, which the library has shuffled.
func (r *hostProvider) Init(servers []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = servers
	return nil
}

// Len returns the number of servers.
func (r *hostProvider) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.servers)
}

// Next returns the next server. It uses lookUp, which normally makes the library wait, only to make
// it check whether the client is closed: dial does the waiting.
func (r *hostProvider) Next() (server string, lookUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	server = r.servers[r.nextIndex%len(r.servers)]
	r.nextIndex++
	return server, r.closed.Load()
}

// Connected is called after a connect response.
func (r *hostProvider) Connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts = 0
}

// dialer returns the library's Dialer. ctx bounds every dial.
func (r *hostProvider) dialer(ctx context.Context) func(network, address string, _ time.Duration) (net.Conn, error) {
	return func(network, address string, _ time.Duration) (net.Conn, error) {
		conn, err := r.dial(ctx, network, address)
		if err != nil && ctx.Err() == nil {
			r.onFailure(err)
		}
		return conn, err
	}
}

func (r *hostProvider) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := r.backOff(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if r.tls != nil {
		if conn, err = r.secure(ctx, conn, address); err != nil {
			return nil, err
		}
	}
	l := &handshakeConn{Conn: conn, address: address, timeout: r.timeout, onFailure: r.onFailure}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = l
	if r.closed.Load() { // closeConn ran before
		_ = l.Close() // it has carried no data
	}
	return l, nil
}

// backOff waits before an attempt if all servers have been tried since the last connect response.
func (r *hostProvider) backOff(ctx context.Context) error {
	r.mu.Lock()
	rounds := r.attempts / len(r.servers)
	r.attempts++
	r.mu.Unlock()
	if rounds == 0 {
		return ctx.Err()
	}
	pause := time.NewTimer(jitter(min(minRoundBackoff<<min(rounds-1, 10), maxRoundBackoff)))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}

// jitter returns a random duration from d/2 to d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func (r *hostProvider) secure(ctx context.Context, plain net.Conn, address string) (net.Conn, error) {
	settings := r.tls
	if settings.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		settings = settings.Clone()
		settings.ServerName = host
	}
	conn := tls.Client(plain, settings)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close() // it has carried no data
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return conn, nil
}

// closeConn closes the current connection.
func (r *hostProvider) closeConn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		_ = r.current.Close() // its reader gets the error
	}
}
