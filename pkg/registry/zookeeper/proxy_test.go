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

// tcpProxy is a proxy in front of a server. It records the last session that was started through it, and can
// end it or close its connections.
type tcpProxy struct {
	t        testing.TB
	server   string
	listener net.Listener
	wg       sync.WaitGroup

	mu              sync.Mutex
	conns           []net.Conn  // guarded by mu
	closed          bool        // guarded by mu; rejects connections
	tls             *tls.Config // guarded by mu; nil: plaintext
	connectResponse []byte      // guarded by mu; the last connect response: protocol, timeout, session, password
}

// startProxy proxies a server until the end of the test.
func startProxy(t testing.TB, server string) *tcpProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &tcpProxy{t: t, server: server, listener: l}
	w.wg.Go(w.serve)
	t.Cleanup(func() {
		_ = l.Close() // ends serve
		w.closeConn()
		w.wg.Wait()
	})
	return w
}

// secure makes w require TLS for new connections.
func (w *tcpProxy) secure(settings *tls.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tls = settings
}

// front returns the connection to read a client's data from.
func (w *tcpProxy) front(client net.Conn) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tls == nil {
		return client
	}
	return tls.Server(client, w.tls)
}

func (w *tcpProxy) address() string { return w.listener.Addr().String() }

func (w *tcpProxy) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		client = w.front(client)
		server, err := net.Dial("tcp", w.server)
		if err != nil || !w.admit(client, server) {
			_ = client.Close() // as if it had reached the server
			continue
		}
		w.wg.Go(func() {
			_, _ = io.Copy(server, client) // errors are irrelevant
			_ = server.Close()
		})
		w.wg.Go(func() {
			w.listen(client, server)
			_ = client.Close()
		})
	}
}

// admit registers the two connections, unless w is closed.
func (w *tcpProxy) admit(client, server net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = server.Close() // nothing was sent
		return false
	}
	w.conns = append(w.conns, client, server)
	return true
}

// reject closes all connections and rejects new ones, or accepts them again.
func (w *tcpProxy) reject(closed bool) {
	w.mu.Lock()
	w.closed = closed
	w.mu.Unlock()
	if closed {
		w.closeConn()
	}
}

// listen forwards data of the server, and records the connect response.
func (w *tcpProxy) listen(client io.Writer, server io.Reader) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(server, head); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(server, body); err != nil {
		return
	}
	w.mu.Lock()
	w.connectResponse = body
	w.mu.Unlock()
	if _, err := client.Write(slices.Concat(head, body)); err != nil {
		return
	}
	_, _ = io.Copy(client, server)
}

// closeConn closes all connections.
func (w *tcpProxy) closeConn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close() // it may have ended already
	}
	w.conns = nil
}

// expire ends the last session, through a second client with its ID and password.
func (w *tcpProxy) expire() {
	w.t.Helper()
	w.reject(true) // or the owner of the session would resume it
	defer w.reject(false)
	w.mu.Lock()
	greeting := w.connectResponse
	w.mu.Unlock()
	// protocol, last transaction ID, timeout, session, password
	hello := slices.Concat(greeting[:4], make([]byte, 8), greeting[4:36])
	farewell := []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5} // request 1: close
	var err error
	for end := time.Now().Add(registrytest.Timeout); time.Now().Before(end); {
		var answers [][]byte
		if answers, err = w.call(hello); err == nil && binary.BigEndian.Uint64(answers[0][8:16]) == 0 {
			return // the session does not exist
		}
		// The last requests of the owner may arrive in between.
		_, err = w.call(hello, farewell)
	}
	w.t.Fatalf("the session does not end: %v", err)
}

// call sends messages to the server, and returns its responses.
func (w *tcpProxy) call(messages ...[]byte) (answers [][]byte, err error) {
	conn, err := net.Dial("tcp", w.server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // everything was sent
	for _, message := range messages {
		if _, err := conn.Write(slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message)); err != nil {
			return nil, err
		}
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			return nil, err
		}
		answer := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(conn, answer); err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	return answers, nil
}
