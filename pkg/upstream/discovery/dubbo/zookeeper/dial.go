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
	// Between rounds of attempts, all servers tried, it waits: a while that doubles.
	roundFirst = 100 * time.Millisecond
	roundMost  = 5 * time.Second
)

// hostProvider is the way to the servers of one client: which is next, and how it is reached.
// The library asks for the next server and dials it, one at a time; names are resolved
// at each dial. It is the library's HostProvider and Dialer.
type hostProvider struct {
	// immutable
	tls      *tls.Config
	patience time.Duration // for a connection, and again for its greeting
	failed   func(error)   // is told of each attempt that failed; must not wait

	closed atomic.Bool // the client ends: the library is to notice it

	mu       sync.Mutex
	servers  []string // guarded by mu
	turn     int      // guarded by mu; of the next server
	attempts int      // guarded by mu; since a server greeted
	current  net.Conn // guarded by mu; nil: none
}

// Init takes the servers, in an order of chance.
func (r *hostProvider) Init(servers []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = servers
	return nil
}

// Len returns how many servers there are.
func (r *hostProvider) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.servers)
}

// Next returns the server whose turn it is. It tells the library to look whether it
// has been closed, where others tell it to wait: dial waits.
func (r *hostProvider) Next() (server string, lookUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	server = r.servers[r.turn%len(r.servers)]
	r.turn++
	return server, r.closed.Load()
}

// Connected hears that a server has greeted.
func (r *hostProvider) Connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts = 0
}

// dialer returns the library's Dialer. Dialling ends with ctx.
func (r *hostProvider) dialer(ctx context.Context) func(network, address string, _ time.Duration) (net.Conn, error) {
	return func(network, address string, _ time.Duration) (net.Conn, error) {
		conn, err := r.dial(ctx, network, address)
		if err != nil && ctx.Err() == nil {
			r.failed(err)
		}
		return conn, err
	}
}

func (r *hostProvider) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := r.backOff(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience)
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
	l := &handshakeConn{Conn: conn, address: address, patience: r.patience, failed: r.failed}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = l
	if r.closed.Load() { // cut came before
		_ = l.Close() // it has carried nothing
	}
	return l, nil
}

// backOff waits before an attempt, if all servers have been tried since one greeted.
func (r *hostProvider) backOff(ctx context.Context) error {
	r.mu.Lock()
	rounds := r.attempts / len(r.servers)
	r.attempts++
	r.mu.Unlock()
	if rounds == 0 {
		return ctx.Err()
	}
	pause := time.NewTimer(jitter(min(roundFirst<<min(rounds-1, 10), roundMost)))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}

// jitter returns something between half of d and d.
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
		_ = plain.Close() // it has carried nothing
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return conn, nil
}

// closeConn ends the connection at once.
func (r *hostProvider) closeConn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		_ = r.current.Close() // whoever reads it hears of it
	}
}
