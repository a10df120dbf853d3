package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Values of Job.Protocol for HTTP/1.1 over TLS. Both sides present the certificates of
// Job.Certificates.
const (
	HTTPS      = "https"       // connections are kept alive
	HTTPSFresh = "https-fresh" // each request uses a new connection with a full handshake; Job.Request must contain Connection: close
)

// https generates HTTP/1.1 over TLS in a closed loop. Each connection has a goroutine, because
// crypto/tls blocks on its socket.
type https struct {
	*meter
	job    Job
	config *tls.Config
	conns  []*tls.Conn // nil: not open

	mu sync.Mutex // guards meter
}

func newHTTPS(job Job, m *meter) (*https, error) {
	config, err := job.Certificates.Client()
	if err != nil {
		return nil, err
	}
	return &https{meter: m, job: job, config: config, conns: make([]*tls.Conn, job.Connections)}, nil
}

func (g *https) close() {
	for _, c := range g.conns {
		if c != nil {
			_ = c.Close() // all results have been read
		}
	}
}

// runUntil sends requests on every connection until the deadline and waits for their responses.
func (g *https) runUntil(deadline time.Duration) error {
	results := make(chan error, len(g.conns))
	for i := range g.conns {
		go func() { results <- g.loop(i, deadline) }()
	}
	var err error
	for range g.conns {
		err = errors.Join(err, <-results)
	}
	return err
}

func (g *https) loop(i int, deadline time.Duration) error {
	buffer := make([]byte, maxHead+g.job.Body)
	for start := g.now(); start < deadline; start = g.now() {
		if err := g.doRequest(i, buffer); err != nil {
			return err
		}
		g.mu.Lock()
		g.count(g.now() - start)
		g.mu.Unlock()
	}
	return nil
}

// doRequest sends a request on connection i and reads its response.
func (g *https) doRequest(i int, buffer []byte) error {
	c := g.conns[i]
	if c == nil {
		nc, err := net.DialTimeout("tcp", g.job.Address.String(), stallTimeout)
		if err != nil {
			return err
		}
		c = tls.Client(nc, g.config)
		g.conns[i] = c
	}
	if err := c.SetDeadline(time.Now().Add(stallTimeout)); err != nil {
		return err
	}
	if _, err := c.Write(g.job.Request); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	closes, err := g.readResponse(c, buffer)
	switch {
	case err != nil:
		return err
	case closes != (g.job.Protocol == HTTPSFresh):
		return fmt.Errorf("unexpected Connection: close: %v", closes)
	}
	if !closes {
		return nil
	}
	g.conns[i] = nil
	if n, err := c.Read(buffer); err != io.EOF { // close_notify
		return fmt.Errorf("%d bytes and %w after the last response", n, err)
	}
	return c.Close()
}

// readResponse reads a response and reports whether the server closes the connection after it.
func (g *https) readResponse(c *tls.Conn, buffer []byte) (closes bool, err error) {
	got, head, response := 0, 0, responseHead{}
	for head == 0 || got < head+response.length {
		n, err := c.Read(buffer[got:])
		if n == 0 {
			return false, fmt.Errorf("read: %w", err)
		}
		got += n
		if head == 0 {
			if head, response, err = parse(buffer[:got]); err != nil {
				return false, err
			}
		}
		if head > 0 && response.length != g.job.Body {
			return false, fmt.Errorf("a response of %d bytes, want %d", response.length, g.job.Body)
		}
	}
	if got > head+response.length {
		return false, fmt.Errorf("%d bytes after the response", got-head-response.length)
	}
	return response.closes, nil
}
