package http2

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// slowReader reads pieces of random sizes from src, and pauses at random.
type slowReader struct {
	src  io.Reader
	rand *rand.Rand
}

//arch:clock simulates a slow peer
func (s slowReader) Read(p []byte) (int, error) {
	if s.rand.IntN(50) == 0 {
		time.Sleep(time.Millisecond) // meanwhile, windows close and socket buffers fill
	}
	return s.src.Read(p[:min(len(p), 1+s.rand.IntN(60_000))])
}

// TestBorrowedBodiesArriveIntact verifies that large bodies arrive intact, while many are in flight
// concurrently in both directions on one connection to the host. Borrowed bytes are then written by
// several goroutines, split within frames, and copied for slow peers. Some clients disconnect
// before the end.
func TestBorrowedBodiesArriveIntact(t *testing.T) {
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is always full-duplex
		_, _ = io.CopyBuffer(w, slowReader{r.Body, rand.New(rand.NewPCG(1, 2))}, make([]byte, 70_000))
	})
	r := newProxyRig(t, origin, nil, nil)
	c := newHTTP2Client(t)
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(i)))
			body := make([]byte, 1<<20+random.IntN(1<<20))
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(body)
			resp, err := c.Post(fmt.Sprintf("http://%s/%d", r.address, i), "text/plain", io.NopCloser(slowReader{bytes.NewReader(body), random}))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			want := body
			if i%3 == 0 {
				want = body[:len(body)/2]
			}
			got := make([]byte, len(want))
			n, err := io.ReadFull(slowReader{resp.Body, rand.New(rand.NewPCG(4, uint64(i)))}, got)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d: received %d bytes of %d, %v; equal: %v", i, n, len(want), err, bytes.Equal(got, want))
			}
		})
	}
	clients.Wait()
}

// TestFrameIsBorrowedOnce verifies that a write queue cannot borrow a frame again after a rewind:
// the first write queue still holds the frame, whose header must not change to that of another
// stream.
func TestFrameIsBorrowedOnce(t *testing.T) {
	source := &muxStream{conn: &muxConn{creditThreshold: 1}}
	body, b, consumer := &source.in, new(batch), new(pump)
	body.start(source, nil, 0)
	body.setPump(consumer)
	frame := syntax.AppendData(nil, 1, make([]byte, minBorrowSize), true)
	n := len(frame) - syntax.FrameHeaderLen
	if kick, borrows, _ := body.add(frame[syntax.FrameHeaderLen:], frame, b); kick != consumer || !borrows {
		t.Fatal("add did not borrow the payload")
	}
	body.markComplete()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := network.Dialer{}.Dial(t.Context(), "tcp", ln.Addr().String(), time.Now().Add(eventTimeout))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var goroutines sync.WaitGroup
	mc := &muxConn{writeQueue: network.NewWriteQueue(conn, goroutines.Go)}
	head := syntax.AppendFrameHeader(nil, n, syntax.FrameData, 0, 5)
	if !mc.appendBorrowed(b, body, head, n) {
		t.Fatal("appendBorrowed = false for a frame that was not borrowed before")
	}
	body.consume(n)
	if !body.Rewind() || body.unread != n {
		t.Fatalf("%d unread bytes after Rewind, want %d", body.unread, n)
	}
	if mc.appendBorrowed(b, body, syntax.AppendFrameHeader(nil, n, syntax.FrameData, 0, 7), n) {
		t.Error("appendBorrowed = true for a frame that is already borrowed")
	}
	if got := frame[8]; got != 5 {
		t.Errorf("the frame has stream identifier %d, want 5", got)
	}
	mc.writeQueue.Fail(io.ErrClosedPipe)
	b.reclaimBorrowed()
	body.copyBorrowed()
	body.reset()
}
