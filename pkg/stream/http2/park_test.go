package http2

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/stream"
)

// TestDrainCompletesResponsesOfParkedConnection verifies that the drain of a parked connection does
// not truncate a response that its client still reads. Weft once ended the connection as soon as it
// had queued the GOAWAY.
//
//arch:clock a listener parks connections after real time, which no event reports
func TestDrainCompletesResponsesOfParkedConnection(t *testing.T) {
	const size = 12 << 20 // more than the sockets buffer
	r := newRig(t, reply(200, strings.Repeat("x", size)), nil)
	p := r.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 * size})
	p.must(p.conn.(*net.TCPConn).SetReadBuffer(64 << 10)) // so that Weft still has pending bytes below
	p.must(p.fr.WriteWindowUpdate(0, 2*size))
	p.request(1, true)
	received, ended, goAway := 0, false, false
	read := func() bool {
		f := p.next()
		switch f := f.(type) {
		case *http2.DataFrame:
			received += len(f.Data())
			ended = ended || f.StreamEnded()
		case *http2.GoAwayFrame:
			goAway = true
		}
		return f != nil
	}
	for len(r.recorded) == 0 { // until Weft has queued the end of the response
		read()
		time.Sleep(time.Millisecond) // so that the client has not read all of it by then
	}
	p.must(p.fr.WritePing(false, [8]byte{})) // the reader waits again, now for ParkAfter
	time.Sleep(3 * stream.ParkAfter)
	drained := make(chan int, 1)
	go func() {
		drainCtx, cancel := context.WithTimeout(context.Background(), eventTimeout)
		defer cancel()
		drained <- r.ln.Drain(drainCtx)
	}()
	time.Sleep(stream.ParkAfter) // the drain begins before the client reads
	for read() {
	}
	if received != size || !ended || !goAway {
		t.Errorf("received %d bytes, END_STREAM: %v, GOAWAY: %v; want %d, true, true", received, ended, goAway, size)
	}
	_ = p.conn.Close()
	if forceClosed := <-drained; forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
}
