package h2

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacker is the connection of a client that violates the protocol. One goroutine sends; read may
// run on a second one.
type attacker struct {
	conn    net.Conn
	out     *bufio.Writer
	framer  *http2.Framer // writes to out
	block   bytes.Buffer  // the field block that encoder wrote last
	encoder *hpack.Encoder
	stream  uint32 // the last stream that was opened
	frames  int    // number of frames sent

	receivedGoAway atomic.Bool   // the server sent GOAWAY
	stopped        chan struct{} // closed after GOAWAY or a read error; nil: the attacker does not read
	readerDone     chan struct{} // closed after a read error; nil: the attacker does not read
}

// newAttacker connects and sends the preface with settings. If reads is true, it reads in the
// background. The caller closes it.
func newAttacker(address string, reads bool, settings ...http2.Setting) (*attacker, error) {
	conn, err := dial(address)
	if err != nil {
		return nil, err
	}
	a := &attacker{conn: conn, out: bufio.NewWriterSize(conn, 32<<10)}
	a.framer = http2.NewFramer(a.out, conn)
	a.framer.AllowIllegalWrites = true
	a.framer.AllowIllegalReads = true
	a.encoder = hpack.NewEncoder(&a.block)
	if reads {
		a.stopped, a.readerDone = make(chan struct{}), make(chan struct{})
		go a.read()
	}
	_, err = io.WriteString(a.out, http2.ClientPreface)
	return a, errors.Join(err, a.framer.WriteSettings(settings...), a.out.Flush())
}

// read reads frames until the connection ends.
func (a *attacker) read() {
	defer close(a.readerDone)
	for {
		f, err := a.framer.ReadFrame()
		_, isGoAway := f.(*http2.GoAwayFrame)
		if (err != nil || isGoAway) && !a.isStopped() {
			a.receivedGoAway.Store(isGoAway)
			close(a.stopped)
		}
		if err != nil {
			return
		}
	}
}

// isStopped reports whether the server has sent GOAWAY or a read has failed. It returns false if
// the attacker does not read.
func (a *attacker) isStopped() bool {
	select {
	case <-a.stopped: // nil: never
		return true
	default:
		return false
	}
}

func (a *attacker) close() {
	_ = a.conn.Close() // the server may have closed the connection
	if a.readerDone != nil {
		<-a.readerDone
	}
}

// countFrame counts a frame unless err reports that it was not sent, and returns err.
func (a *attacker) countFrame(err error) error {
	if err == nil {
		a.frames++
	}
	return err
}

// errExhausted reports that a connection has no stream ids left.
var errExhausted = errors.New("no stream ids are left")

// nextStream sets stream to the id of a new stream.
func (a *attacker) nextStream() error {
	switch {
	case a.stream == 0:
		a.stream = 1
	case a.stream >= 1<<31-3:
		return errExhausted
	default:
		a.stream += 2
	}
	return nil
}

// encode returns the field block of a request, which the next call overwrites.
func (a *attacker) encode(method, path string, extra ...hpack.HeaderField) []byte {
	a.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "attack.test"}, {Name: ":path", Value: path},
	}, extra...) {
		_ = a.encoder.WriteField(f) // writes to memory
	}
	return a.block.Bytes()
}

// open sends the head of a request on a new stream.
func (a *attacker) open(path string, endStream bool, extra ...hpack.HeaderField) error {
	if err := a.nextStream(); err != nil {
		return err
	}
	method := "POST"
	if endStream {
		method = "GET"
	}
	return a.countFrame(a.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: a.stream, BlockFragment: a.encode(method, path, extra...), EndStream: endStream, EndHeaders: true,
	}))
}
