package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soakDuration returns how long the soak lasts: WEFT_SOAK, or five seconds.
func soakDuration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("WEFT_SOAK")
	if text == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("WEFT_SOAK: %v", err)
	}
	return d
}

// TestSoak sends random faulty traffic, with reloads in between, through a binary with the race
// detector, poisoned buffers and checked releases. No request of a well-behaved client may fail. At
// the end, goroutines, sockets and heap must be back near their initial values.
//
//arch:clock the time between two reloads
func TestSoak(t *testing.T) {
	t.Parallel()
	binary, err := checkedBinary()
	if err != nil {
		t.Skipf("cannot build with -race: %v", err)
	}
	faultyUpstream := startTCPServer(t, serveFaulty)
	steadyUpstream := startUpstream(t, respondWith("steady"))
	front := freeAddress()
	config := func(n int) object {
		return setup{
			listeners: list{httpListenerWith("front", front, object{"max_request_body_size": 4 << 20, "head_timeout": "2s", "body_timeout": "2s"},
				object{"connection_idle_timeout": "3s"})},
			tables: list{routeTable("front",
				routeTo("/steady", "steady", object{"timeout": fmt.Sprintf("%ds", 20+n%3)}),
				routeTo("/", "faulty", object{"timeout": "5s", "retry_policy": object{"retry_on": true, "num_retries": 2, "retry_timeout": "2s"}}))},
			clusters: list{
				cluster("steady", object{"idle_timeout": "2s"}, steadyUpstream.address),
				cluster(fmt.Sprintf("faulty-%d", n%2), nil, faultyUpstream),
				cluster("faulty", object{"idle_timeout": "2s", "max_request_per_conn": 50}, faultyUpstream),
			},
			admin: "",
		}.config()
	}
	first := config(0)
	w := launchWeft(t, launchOptions{config: first, binary: binary})
	w.awaitReady()
	admin := first["admin"]

	wellBehaved := newClient(t)
	sendRequest(t, wellBehaved, "GET", "http://"+front+"/steady", "")
	wellBehaved.CloseIdleConnections()
	eventually(t, "the connections of the warm-up are closed", func() bool { return len(sockets(w)) <= 2 })
	goroutines, descriptors, heap := w.goroutines(), len(sockets(w)), w.heap()

	end := time.Now().Add(soakDuration(t))
	var clients sync.WaitGroup
	var faulty, good atomic.Int64
	for range 24 {
		clients.Go(func() {
			for time.Now().Before(end) {
				misbehave(front)
				faulty.Add(1)
			}
		})
	}
	for range 4 {
		clients.Go(func() {
			c := newClient(t)
			for time.Now().Before(end) {
				resp, err := tryRequest(t.Context(), c, "GET", "http://"+front+"/steady", "")
				if err != nil || resp.status != 200 || resp.body != "steady" {
					t.Errorf("a well-behaved client got %d %q, %v; want 200, \"steady\"", resp.status, resp.body, err)
					return
				}
				good.Add(1)
			}
			c.CloseIdleConnections()
		})
	}
	reloads := 0
	for ; time.Now().Before(end); reloads++ {
		time.Sleep(300 * time.Millisecond)
		next := config(reloads)
		next["admin"] = admin
		w.reload(next)
	}
	clients.Wait()
	t.Logf("%d faulty exchanges and connections, %d good exchanges, %d reloads", faulty.Load(), good.Load(), reloads)

	sendRequest(t, wellBehaved, "GET", "http://"+front+"/steady", "")
	wellBehaved.CloseIdleConnections()
	eventually(t, "every socket except the listening ones is closed", func() bool { return len(sockets(w)) <= descriptors })
	eventually(t, "every goroutine has ended", func() bool { return w.goroutines() <= goroutines+2 })
	heapAfter := w.heap()
	t.Logf("before and after: %d and %d goroutines, %d and %d sockets, %d and %d KB of heap",
		goroutines, w.goroutines(), descriptors, len(sockets(w)), heap>>10, heapAfter>>10)
	if heapAfter > heap+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes, want at most 8 MiB more", heap, heapAfter)
	}
}

// sockets returns the open sockets of the process. adminClient leaves no socket open.
func sockets(w *weft) (out []string) {
	for _, d := range w.descriptors() {
		if strings.HasPrefix(d, "socket:") {
			out = append(out, d)
		}
	}
	return out
}

// serveFaulty serves the requests of a connection. Each response has a random one of the faults in
// respondFaulty, or none.
func serveFaulty(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // if the connection is closed, the read fails
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		fault := rand.IntN(16)
		if fault > 1 { // for smaller values, respond before the body is read
			if _, err := io.Copy(io.Discard, request.Body); err != nil {
				return
			}
		}
		if request.Header.Get("Upgrade") != "" {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, r)
			return
		}
		if !respondFaulty(c, fault, request.Method == http.MethodHead) {
			return
		}
	}
}

// respondFaulty responds and reports whether the connection stays open.
//
//arch:clock simulates slow upstreams
func respondFaulty(c net.Conn, fault int, head bool) bool {
	body := strings.Repeat("0123456789abcdef", 1<<rand.IntN(14))
	if head {
		body = ""
	}
	send := func(s string) { _, _ = io.WriteString(c, s) } // Weft may have closed the connection
	valid := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	switch fault {
	case 0: // an early response, then a close
		send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false
	case 2: // a reset
		_ = c.(*net.TCPConn).SetLinger(0)
		return false
	case 3: // an incomplete body
		send(valid + body[:len(body)/2])
		return false
	case 4: // garbage
		send("220 mail.example ESMTP\r\n")
		return false
	case 5: // chunks, closed in the middle
		send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n5\r\nab")
		return false
	case 6: // a body until the close
		send("HTTP/1.1 200 OK\r\n\r\n" + body)
		return false
	case 7: // slow
		for i := range len(valid) {
			send(valid[i : i+1])
		}
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		send(body)
	case 8: // more bytes than the response has
		send(valid + body + "HTTP/1.1 200 OK\r\n")
	case 9: // an interim response first
		send("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + valid + body)
	case 10, 11:
		if head {
			send(valid)
			break
		}
		send(fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-End: 1\r\n\r\n", len(body), body))
	default:
		send(valid + body)
	}
	return true
}

// misbehave opens a connection and sends or reads in one of several faulty ways.
//
//arch:clock simulates slow clients
func misbehave(address string) {
	nc, err := net.DialTimeout("tcp", address, waitTimeout)
	if err != nil {
		return // the well-behaved clients detect that Weft does not accept connections
	}
	c := nc.(*net.TCPConn)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(8 * time.Second))
	send := func(s string) { _, _ = io.WriteString(c, s) }
	read := func() {
		_, _ = io.CopyN(io.Discard, c, int64(rand.IntN(1<<18)))
	}
	get := "GET /" + strconv.Itoa(rand.IntN(9)) + " HTTP/1.1\r\nHost: soak\r\n\r\n"
	post := "POST / HTTP/1.1\r\nHost: soak\r\nContent-Length: 300000\r\n\r\n"
	switch rand.IntN(12) {
	case 0: // sends nothing
	case 1: // incomplete head
		send(get[:rand.IntN(len(get))])
	case 2: // not HTTP
		send("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
		read()
	case 3: // sends a request and closes
		send(get)
	case 4: // sends a request and resets
		send(get)
		_ = c.SetLinger(0)
	case 5: // pipelines
		send(strings.Repeat(get, 1+rand.IntN(20)))
		read()
	case 6: // incomplete body
		send(post + strings.Repeat("x", rand.IntN(200000)))
		if rand.IntN(2) == 0 {
			_ = c.SetLinger(0)
		}
	case 7: // a complete body
		send(post + strings.Repeat("x", 300000))
		read()
	case 8: // chunks, sometimes complete
		send("POST / HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("100\r\n"+strings.Repeat("y", 256)+"\r\n", 1+rand.IntN(300)))
		if rand.IntN(2) == 0 {
			send("0\r\n\r\n")
		}
		read()
	case 9: // a tunnel
		send("GET / HTTP/1.1\r\nHost: soak\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		send(strings.Repeat("echo", rand.IntN(20000)))
		if rand.IntN(2) == 0 {
			_ = c.CloseWrite()
		}
		read()
	case 10: // reads slowly
		send(strings.Repeat(get, 3))
		buf := make([]byte, 100)
		for range 20 {
			if _, err := c.Read(buf); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	default: // half-closes
		send(get)
		_ = c.CloseWrite()
		read()
	}
}
