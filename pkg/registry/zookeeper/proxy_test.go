package zookeeper_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry/registrytest"
)

// tcpProxy is a proxy in front of a server. It records the last session that a client started or
// resumed, and can end that session or close all connections.
type tcpProxy struct {
	t        testing.TB
	server   string
	listener net.Listener
	wg       sync.WaitGroup

	mu              sync.Mutex
	conns           []net.Conn  // guarded by mu
	closed          bool        // guarded by mu; rejects connections
	tls             *tls.Config // guarded by mu; nil: plaintext
	connectResponse []byte      // guarded by mu; of the last session: protocol, timeout, session, password
}

// startProxy proxies a server until the end of the test.
func startProxy(t testing.TB, server string) *tcpProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tcpProxy{t: t, server: server, listener: ln}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = ln.Close() // ends serve
		p.closeConns()
		p.wg.Wait()
	})
	return p
}

// requireTLS makes p require TLS for new connections.
func (p *tcpProxy) requireTLS(cfg *tls.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tls = cfg
}

// clientConn returns the connection with which to read the data of a client.
func (p *tcpProxy) clientConn(client net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tls == nil {
		return client
	}
	return tls.Server(client, p.tls)
}

func (p *tcpProxy) address() string { return p.listener.Addr().String() }

func (p *tcpProxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		client = p.clientConn(client)
		server, err := net.Dial("tcp", p.server)
		if err != nil || !p.admit(client, server) {
			_ = client.Close()
			continue
		}
		p.wg.Go(func() {
			_, _ = io.Copy(server, client) // errors are irrelevant
			_ = server.Close()
		})
		p.wg.Go(func() {
			p.relayResponses(client, server)
			_ = client.Close()
		})
	}
}

// admit registers the two connections, unless p rejects connections.
func (p *tcpProxy) admit(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = server.Close()
		return false
	}
	p.conns = append(p.conns, client, server)
	return true
}

// reject closes all connections and rejects new ones, or accepts them again.
func (p *tcpProxy) reject(closed bool) {
	p.mu.Lock()
	p.closed = closed
	p.mu.Unlock()
	if closed {
		p.closeConns()
	}
}

// sessionOf returns the session of a connect response, or 0 if the server did not resume the
// session because it has expired.
func sessionOf(connectResponse []byte) uint64 {
	return binary.BigEndian.Uint64(connectResponse[8:16])
}

// relayResponses forwards data of the server, and records the connect response if it has a session.
func (p *tcpProxy) relayResponses(client io.Writer, server io.Reader) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(server, head); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(server, body); err != nil {
		return
	}
	if sessionOf(body) != 0 {
		p.mu.Lock()
		p.connectResponse = body
		p.mu.Unlock()
	}
	if _, err := client.Write(slices.Concat(head, body)); err != nil {
		return
	}
	_, _ = io.Copy(client, server)
}

// closeConns closes all connections.
func (p *tcpProxy) closeConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

// expire ends the last session, through a second client with its ID and password.
func (p *tcpProxy) expire() {
	p.t.Helper()
	p.reject(true) // otherwise the owner would resume the session
	defer p.reject(false)
	p.mu.Lock()
	connectResponse := p.connectResponse
	p.mu.Unlock()
	connectRequest := resumeRequest(connectResponse)
	closeRequest := []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5} // request 1: close
	var err error
	for deadline := time.Now().Add(registrytest.Timeout); time.Now().Before(deadline); {
		var responses [][]byte
		if responses, err = call(p.server, connectRequest); err == nil && sessionOf(responses[0]) == 0 {
			return // the session does not exist
		}
		// The last requests of the owner may arrive in between.
		_, err = call(p.server, connectRequest, closeRequest)
	}
	p.t.Fatalf("the session did not end: %v", err)
}

// resumeRequest returns a connect request for the session of a connect response: protocol, last
// transaction ID, timeout, session, password.
func resumeRequest(connectResponse []byte) []byte {
	return slices.Concat(connectResponse[:4], make([]byte, 8), connectResponse[4:36])
}

// call sends messages to a server, and returns its responses.
func call(address string, messages ...[]byte) (responses [][]byte, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	for _, message := range messages {
		if _, err := conn.Write(slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message)); err != nil {
			return nil, err
		}
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			return nil, err
		}
		response := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(conn, response); err != nil {
			return nil, err
		}
		responses = append(responses, response)
	}
	return responses, nil
}
