package http2

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
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

// TestLargeBodiesArriveIntact verifies that large bodies arrive intact, while many are in flight
// concurrently in both directions on one connection to the host. Several goroutines write them, in
// parts of frames, to peers that read slowly. Some clients disconnect before the end.
func TestLargeBodiesArriveIntact(t *testing.T) {
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
				t.Errorf("response %d: received %d bytes, %v; want %d and no error; equal to the request body: %t, want true", i, n, err, len(want), bytes.Equal(got, want))
			}
		})
	}
	clients.Wait()
}
