package e2e

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
)

// bodyMemory is the maximum growth, in bytes, of the memory of a process over its idle value,
// whatever the size of the bodies that pass through it.
const bodyMemory = 32 << 20

// framings are the framings of an HTTP/1.1 body: Content-Length and chunks.
var framings = [...]string{"length", "chunks"}

// largeBodySize returns the size of a large body: 1 GiB, or 32 MiB in short mode and with
// invariants enabled.
func largeBodySize() int64 {
	if testing.Short() || invariants.Enabled {
		return 32 << 20
	}
	return 1 << 30
}

// TestLargeBodiesInBoundedMemory verifies that a large body arrives complete, in both
// directions and with each framing, while the memory of Weft stays bounded. Each side computes a
// digest.
func TestLargeBodiesInBoundedMemory(t *testing.T) { // not in parallel: it needs the whole machine
	size := largeBodySize()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			sum, n, err := readSum(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, "%x %d", sum, n)
			return
		}
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		}
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, randomStream(1, size), make([]byte, 256<<10)) // the client verifies the body
	})
	s, front := simpleProxy(app.address)
	w := startWeft(t, s.config())
	sendRequest(t, newClient(t), "POST", "http://"+front+"/", "warm")
	checkGrowth := w.watchMemory()
	want := streamSum(1, size)
	for _, framing := range framings {
		url := "http://" + front + "/" + framing
		t.Run("down/"+framing, func(t *testing.T) {
			defer logTransfer(t, w, size)()
			response, err := newClient(t).Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if chunked := response.ContentLength < 0; chunked != (framing == "chunks") {
				t.Errorf("Content-Length is %d, want it only for the framing length", response.ContentLength)
			}
			if sum, n, err := readSum(response.Body); err != nil || n != size || sum != want {
				t.Errorf("the client read %d bytes, intact %v, %v; want %d, true, nil", n, sum == want, err, size)
			}
		})
		t.Run("up/"+framing, func(t *testing.T) {
			defer logTransfer(t, w, size)()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, randomStream(1, size))
			if err != nil {
				t.Fatal(err)
			}
			if framing == "length" {
				request.ContentLength = size
			}
			response, err := newClient(t).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			got, err := io.ReadAll(response.Body)
			if want := fmt.Sprintf("%x %d", want, size); err != nil || string(got) != want {
				t.Errorf("the upstream saw %q, %v; want %q", got, err, want)
			}
		})
	}
	checkGrowth(bodyMemory)
}

// logTransfer starts to time a transfer. The returned function logs the duration and the peak of
// memory.
func logTransfer(t *testing.T, w *weft, size int64) func() {
	start := time.Now()
	return func() {
		elapsed := time.Since(start)
		t.Logf("%d MB in %v, the peak of memory is %d KB", size>>20, elapsed.Round(time.Millisecond), w.memory().peak>>10)
	}
}

// TestBackpressure verifies that while one side does not read, Weft buffers a bounded amount, the
// sockets fill, and the sender blocks. When that side reads again, it gets every byte.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	for _, framing := range framings {
		t.Run("down/"+framing, func(t *testing.T) {
			t.Parallel()
			sender := newSender(framing)
			app := startTCPServer(t, func(c net.Conn) {
				if _, _, err := readRequest(bufio.NewReader(c)); err != nil {
					t.Errorf("the upstream: %v", err)
					return
				}
				sender.send(c, "HTTP/1.1 200 OK")
			})
			s, front := simpleProxy(app)
			w := startWeft(t, s.config())
			checkGrowth := w.watchMemory()
			client := dialRaw(t, front).send(get)
			sender.checkBlocked(t, front, app)
			response, err := http.ReadResponse(client.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if sum, n, err := readSum(response.Body); err != nil || n != sender.size || sum != streamSum(1, sender.size) {
				t.Errorf("the client read %d bytes, intact %v, %v; want %d, true, nil", n, sum == streamSum(1, sender.size), err, sender.size)
			}
			checkGrowth(bodyMemory)
		})
		t.Run("up/"+framing, func(t *testing.T) {
			t.Parallel()
			sender := newSender(framing)
			startReading := make(chan struct{})
			app := startTCPServer(t, func(c net.Conn) {
				select {
				case <-startReading:
				case <-t.Context().Done():
					return
				}
				respondDigestRaw(t, c)
			})
			s, front := simpleProxy(app)
			w := startWeft(t, s.config())
			checkGrowth := w.watchMemory()
			var sending sync.WaitGroup
			t.Cleanup(sending.Wait) // after the connection is closed
			client := dialRaw(t, front)
			sending.Go(func() { sender.send(client.Conn, "POST / HTTP/1.1\r\nHost: a") })
			sender.checkBlocked(t, front, app)
			close(startReading)
			sum := streamSum(1, sender.size)
			if _, got := client.readResponse(http.MethodPost); got != hex.EncodeToString(sum[:]) {
				t.Errorf("the upstream saw %q, want %x", got, sum)
			}
			checkGrowth(bodyMemory)
		})
	}
}

// respondDigestRaw reads a request and responds with the digest of its body.
func respondDigestRaw(t *testing.T, c net.Conn) {
	request, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		t.Errorf("the upstream: %v", err)
		return
	}
	sum, _, err := readSum(request.Body)
	if err != nil {
		t.Errorf("the upstream, in the body: %v", err)
		return
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%x", 2*len(sum), sum) // the client verifies the digest
}

// sender writes a message with more body than sockets hold, and counts the bytes it has sent.
type sender struct {
	framing   string
	size      int64        // of the body
	sentBytes atomic.Int64 // bytes of the message in completed writes
}

func newSender(framing string) *sender { return &sender{framing: framing, size: 64 << 20} }

// send returns when it has sent everything, or when the connection has ended. The reader verifies
// the content.
func (s *sender) send(c net.Conn, head string) {
	w := countingWriter{c, &s.sentBytes}
	if s.framing == "length" {
		_, _ = fmt.Fprintf(w, "%s\r\nContent-Length: %d\r\n\r\n", head, s.size)
		_, _ = io.Copy(w, randomStream(1, s.size))
		return
	}
	_, _ = fmt.Fprintf(w, "%s\r\nTransfer-Encoding: chunked\r\n\r\n", head)
	chunks := httputil.NewChunkedWriter(w)
	_, _ = io.Copy(chunks, randomStream(1, s.size))
	_ = chunks.Close()
	_, _ = io.WriteString(w, "\r\n")
}

// checkBlocked waits until the sender has made no progress for 500 ms. It checks that Weft holds at
// most 512 KiB of the sent bytes: the bytes that are not in the sockets of the connections of
// addresses.
func (s *sender) checkBlocked(t *testing.T, addresses ...string) {
	t.Helper()
	const maxInWeft = 512 << 10
	last, since := int64(-1), time.Now()
	eventually(t, "the sender blocks", func() bool {
		if n := s.sentBytes.Load(); n != last {
			last, since = n, time.Now()
		}
		return last > 0 && time.Since(since) > 500*time.Millisecond
	})
	inWeft := last - socketQueueBytes(t, addresses...)
	t.Logf("blocked after %d KB, of which %d KB are in Weft", last>>10, inWeft>>10)
	if last >= s.size {
		t.Errorf("sent all %d bytes to a receiver that does not read, want the sender to block", last)
	}
	if inWeft > maxInWeft {
		t.Errorf("Weft buffers %d bytes for a receiver that does not read, want at most %d", inWeft, maxInWeft)
	}
}

// countingWriter counts the written bytes in n.
type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (c countingWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// socketQueueBytes returns how many bytes the sockets at both ends of the connections of addresses
// hold: sent and not acknowledged, and received and not read.
func socketQueueBytes(t *testing.T, addresses ...string) (n int64) {
	t.Helper()
	var ports []string
	for _, a := range addresses {
		_, text, _ := net.SplitHostPort(a)
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, fmt.Sprintf(":%04X", port))
	}
	table, err := os.ReadFile("/proc/thread-self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		const local, remote, queues = 1, 2, 4 // tx_queue:rx_queue, hexadecimal
		fields := strings.Fields(line)
		for _, port := range ports {
			if !strings.HasSuffix(fields[local], port) && !strings.HasSuffix(fields[remote], port) {
				continue
			}
			var tx, rx int64
			if _, err := fmt.Sscanf(fields[queues], "%x:%x", &tx, &rx); err != nil {
				t.Fatalf("/proc/net/tcp: %q: %v", line, err)
			}
			n += tx + rx
		}
	}
	return n
}
