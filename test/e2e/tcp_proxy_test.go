package e2e

import (
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// tcpProxy runs a tcp_proxy in front of clusters, each with one host and named by its key.
func tcpProxy(t *testing.T, config object, hosts map[string]string) (w *weft, front string) {
	t.Helper()
	front = freeAddress()
	s := setup{listeners: list{tcpListener("bytes", front, config)}}
	for name, address := range hosts {
		s.clusters = append(s.clusters, cluster(name, object{"connect_timeout": "1s"}, address))
	}
	return startWeft(t, s.config()), front
}

// startGreeter starts a server that sends name on each connection.
func startGreeter(t *testing.T, name string) string {
	t.Helper()
	return startTCPServer(t, func(c net.Conn) { _, _ = io.WriteString(c, name) })
}

func TestTCPRoutesByAddress(t *testing.T) {
	t.Parallel()
	hosts := map[string]string{}
	for _, name := range []string{"subnet", "host", "ports", "rest"} {
		hosts[name] = startGreeter(t, name)
	}
	config := object{
		"cluster": "rest",
		"routes": list{
			object{"cluster": "subnet", "source_addrs": list{"127.2.0.0/16"}},
			object{"cluster": "host", "source_addrs": list{object{"address": "127.3.0.1", "length": 32}}, "destination_addrs": list{"127.0.0.1"}},
			object{"cluster": "ports", "source_addrs": list{"127.4.0.0/16"}, "source_port": "9500-9599"},
		},
	}
	_, front := tcpProxy(t, config, hosts)
	for _, c := range []struct{ from, want string }{
		{"127.2.7.7:0", "subnet"},
		{"127.3.0.1:0", "host"},
		{"127.3.0.2:0", "rest"},
		{"127.4.0.1:9555", "ports"},
		{"127.4.0.1:9600", "rest"},
		{"127.0.0.1:0", "rest"},
	} {
		local, err := net.ResolveTCPAddr("tcp", c.from)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := (&net.Dialer{LocalAddr: local}).Dial("tcp", front)
		if err != nil {
			t.Fatal(err)
		}
		if got := newRawConn(t, conn).readToEnd(); got != c.want {
			t.Errorf("from %s: cluster %q, want %q", c.from, got, c.want)
		}
	}
}

func TestTCPWithoutRouteIsClosed(t *testing.T) {
	t.Parallel()
	hosts := map[string]string{"a": startGreeter(t, "a")}
	_, front := tcpProxy(t, object{"routes": list{object{"cluster": "a", "source_addrs": list{"10.0.0.0/8"}}}}, hosts)
	if got := dialRaw(t, front).readToEnd(); got != "" {
		t.Errorf("got %q, want none", got)
	}
}

// TestTCPHalfClose verifies that Weft forwards a half-close and keeps the other direction open, in
// both orders.
func TestTCPHalfClose(t *testing.T) {
	t.Parallel()
	t.Run("client first", func(t *testing.T) {
		t.Parallel()
		app := startTCPServer(t, func(c net.Conn) {
			data, _ := io.ReadAll(c)
			_, _ = io.WriteString(c, "got "+string(data))
		})
		_, front := tcpProxy(t, object{"cluster": "a"}, map[string]string{"a": app})
		client := dialRaw(t, front).send("request")
		if err := client.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := client.readToEnd(); got != "got request" {
			t.Errorf("got %q, want \"got request\"", got)
		}
	})
	t.Run("host first", func(t *testing.T) {
		t.Parallel()
		received := make(chan string, 1)
		app := startTCPServer(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "response")
			_ = c.(*net.TCPConn).CloseWrite() // the client detects a failure
			data, _ := io.ReadAll(c)
			received <- string(data)
		})
		_, front := tcpProxy(t, object{"cluster": "a"}, map[string]string{"a": app})
		client := dialRaw(t, front)
		if got := client.readToEnd(); got != "response" {
			t.Errorf("the client got %q, want \"response\"", got)
		}
		client.send("after EOF")
		_ = client.Close() // ends the other direction
		if got := <-received; got != "after EOF" {
			t.Errorf("the host got %q, want \"after EOF\"", got)
		}
	})
}

// TestTCPForwardsReset verifies that a reset by the client ends the connection to the host.
func TestTCPForwardsReset(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	app := startTCPServer(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "hello")
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	_, front := tcpProxy(t, object{"cluster": "a"}, map[string]string{"a": app})
	client := dialRaw(t, front)
	if _, err := io.ReadFull(client.r, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := client.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = client.Close() // with a reset
	select {
	case <-ended:
	case <-time.After(waitTimeout):
		t.Error("the connection to the host did not close")
	}
}

func TestTCPIdleTimeout(t *testing.T) {
	t.Parallel()
	app := startTCPServer(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	w, front := tcpProxy(t, object{"cluster": "a", "idle_timeout": "1500ms"}, map[string]string{"a": app})
	client := dialRaw(t, front)
	start := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var lastSent time.Time
	for time.Since(start) < 3*time.Second { // longer than the timeout, but the connection is never idle for that long
		<-tick.C
		lastSent = time.Now()
		client.send("x")
		if _, err := client.r.ReadByte(); err != nil {
			t.Fatalf("after %v of traffic: %v, want an open connection", time.Since(start), err)
		}
	}
	if got := client.readToEnd(); got != "" {
		t.Errorf("got %q, want none", got)
	}
	if elapsed := time.Since(lastSent); elapsed < 1500*time.Millisecond || elapsed > 1500*time.Millisecond+rpcDeadline {
		t.Errorf("the connection closed after %v of idle time, want 1.5 s", elapsed)
	}
	eventually(t, "no connection is open", func() bool {
		return w.metric("weft_cluster_connections_active") == 0 && w.metric("weft_listener_connections_active") == 0
	})
}

// TestTCPConnectAttempts verifies that Weft connects to other hosts, up to max_connect_attempts.
func TestTCPConnectAttempts(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]bool{1: false, 2: true} {
		front := freeAddress()
		dead, alive := freeAddress(), startGreeter(t, "alive")
		w := startWeft(t, setup{
			listeners: list{tcpListener("bytes", front, object{"cluster": "a", "max_connect_attempts": attempts})},
			clusters:  list{cluster("a", nil, dead, alive)},
		}.config())
		first, second := dialRaw(t, front).readToEnd(), dialRaw(t, front).readToEnd() // one of them tries the dead host first
		if got := first == "alive" && second == "alive"; got != want {
			t.Errorf("with %d attempts: %q and %q, want both alive: %v", attempts, first, second, want)
		}
		if n := w.metric("weft_cluster_connect_failures_total"); n != 1 {
			t.Errorf("with %d attempts: %v failed connects, want 1", attempts, n)
		}
	}
}

// TestTCPBulkTransfer verifies that 256 MiB in both directions at the same time arrive
// complete, in bounded memory.
func TestTCPBulkTransfer(t *testing.T) {
	t.Parallel()
	size := int64(256 << 20)
	if testing.Short() {
		size = 16 << 20
	}
	type sums struct {
		in  [32]byte
		n   int64
		err error
	}
	hostResults := make(chan sums, 1)
	app := startTCPServer(t, func(c net.Conn) {
		sendErr := make(chan error, 1)
		go func() {
			_, err := io.Copy(c, randomStream(1, size))
			sendErr <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
		}()
		sum, n, err := readSum(c)
		hostResults <- sums{sum, n, errors.Join(err, <-sendErr)}
	})
	w, front := tcpProxy(t, object{"cluster": "a"}, map[string]string{"a": app})
	checkGrowth := w.watchMemory()
	client := dialRaw(t, front)
	sendErr := make(chan error, 1)
	go func() {
		_, err := io.Copy(client.Conn, randomStream(2, size))
		sendErr <- errors.Join(err, client.Conn.(*net.TCPConn).CloseWrite())
	}()
	sum, n, err := readSum(client.Conn)
	if err := errors.Join(err, <-sendErr); err != nil || n != size || sum != streamSum(1, size) {
		t.Errorf("the client read %d bytes, intact %v, %v; want %d, true, nil", n, sum == streamSum(1, size), err, size)
	}
	if host := <-hostResults; host.err != nil || host.n != size || host.in != streamSum(2, size) {
		t.Errorf("the host got %d bytes, intact %v, %v; want %d, true, nil", host.n, host.in == streamSum(2, size), host.err, size)
	}
	checkGrowth(bodyMemory)
}

// randomStream returns size pseudorandom bytes, which are the same for the same seed.
func randomStream(seed uint64, size int64) io.Reader {
	block := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(block)
	return io.LimitReader(&repeatReader{block: block}, size)
}

// repeatReader reads its block repeatedly. Each repetition changes a byte.
type repeatReader struct {
	block     []byte
	offset    int
	iteration byte
}

func (r *repeatReader) Read(p []byte) (int, error) {
	if r.offset == len(r.block) {
		r.offset = 0
		r.iteration++
		r.block[r.iteration] ^= r.iteration | 1
	}
	n := copy(p, r.block[r.offset:])
	r.offset += n
	return n, nil
}

// streamSum returns the digest of a stream.
func streamSum(seed uint64, size int64) [32]byte {
	sum, _, _ := readSum(randomStream(seed, size))
	return sum
}

// readSum reads to the end and returns the digest and the number of bytes.
func readSum(r io.Reader) (sum [32]byte, n int64, err error) {
	h := sha256.New()
	n, err = io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	h.Sum(sum[:0])
	return sum, n, err
}

// TestTCPDrains verifies that byte streams continue during the drain time until the client closes.
func TestTCPDrains(t *testing.T) {
	t.Parallel()
	app := startTCPServer(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	front := freeAddress()
	w := startWeft(t, setup{
		server:    object{"graceful_timeout": "1m"},
		listeners: list{tcpListener("bytes", front, object{"cluster": "a"})},
		clusters:  list{cluster("a", nil, app)},
	}.config())
	client := dialRaw(t, front).send("before")
	got := make([]byte, 6)
	if _, err := io.ReadFull(client.r, got); err != nil {
		t.Fatal(err)
	}
	w.signal(sigterm)
	eventually(t, "new connections are refused", func() bool { return connectionRefused(front) })
	client.send("after!")
	if _, err := io.ReadFull(client.r, got); err != nil || string(got) != "after!" {
		t.Errorf("while draining: %q, %v; want \"after!\"", got, err)
	}
	_ = client.Close() // the last connection
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestTCPConnectionsAreCounted verifies max_connections of a cluster.
func TestTCPConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	var open atomic.Int64
	app := startTCPServer(t, func(c net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		_, _ = io.Copy(c, c)
	})
	front := freeAddress()
	startWeft(t, setup{
		listeners: list{tcpListener("bytes", front, object{"cluster": "a"})},
		clusters:  list{cluster("a", object{"circuit_breakers": list{object{"max_connections": 2}}}, app)},
	}.config())
	first, second := dialRaw(t, front), dialRaw(t, front)
	eventually(t, "two clients are connected", func() bool { return open.Load() == 2 })
	if got := dialRaw(t, front).readToEnd(); got != "" {
		t.Errorf("a third connection got %q, want EOF", got)
	}
	_ = first.Close() // frees a slot
	eventually(t, "one client is connected", func() bool { return open.Load() == 1 })
	eventually(t, "another connection is accepted", func() bool {
		c, err := net.Dial("tcp", front)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(waitTimeout))
		if _, err := c.Write([]byte("x")); err != nil {
			return false // already closed
		}
		_, err = io.ReadFull(c, make([]byte, 1))
		return err == nil
	})
	second.send("y")
	if _, err := second.r.ReadByte(); err != nil {
		t.Errorf("the second connection: %v", err)
	}
}
