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

// attacker is a connection of a caller that breaks the rules. It is used by one
// goroutine.
type attacker struct {
	conn   net.Conn
	out    *bufio.Writer
	framer *http2.Framer // writes to out
	block  bytes.Buffer  // the field block that encoder wrote last
	fields *hpack.Encoder
	stream uint32 // the last that was opened
	frames int    // that were sent

	goneAway atomic.Bool   // by GOAWAY
	over     chan struct{} // closed when GOAWAY came or nothing more is read; nil if nobody reads
	ended    chan struct{} // closed when nothing more is read; nil if nobody reads
}

// newAttacker connects, sends the preface with settings, and reads what comes back
// if reads. Close it.
func newAttacker(address string, reads bool, settings ...http2.Setting) (*attacker, error) {
	conn, err := dial(address)
	if err != nil {
		return nil, err
	}
	a := &attacker{conn: conn, out: bufio.NewWriterSize(conn, 32<<10)}
	a.framer = http2.NewFramer(a.out, conn)
	a.framer.AllowIllegalWrites = true
	a.framer.AllowIllegalReads = true
	a.fields = hpack.NewEncoder(&a.block)
	if reads {
		a.over, a.ended = make(chan struct{}), make(chan struct{})
		go a.read()
	}
	_, err = io.WriteString(a.out, http2.ClientPreface)
	return a, errors.Join(err, a.framer.WriteSettings(settings...), a.out.Flush())
}

// read ends with the connection.
func (a *attacker) read() {
	defer close(a.ended)
	for {
		f, err := a.framer.ReadFrame()
		_, away := f.(*http2.GoAwayFrame)
		if (err != nil || away) && !a.isOver() {
			a.goneAway.Store(away)
			close(a.over)
		}
		if err != nil {
			return
		}
	}
}

// isOver tells whether the server has ended the connection, as far as anybody
// reads it.
func (a *attacker) isOver() bool {
	select {
	case <-a.over: // nil: never
		return true
	default:
		return false
	}
}

func (a *attacker) close() {
	_ = a.conn.Close() // it may be gone
	if a.ended != nil {
		<-a.ended
	}
}

// sent counts a frame, or passes on why it could not be sent.
func (a *attacker) sent(err error) error {
	if err == nil {
		a.frames++
	}
	return err
}

// errExhausted tells that a connection has no stream ids left.
var errExhausted = errors.New("no stream ids are left")

// next makes stream the id of a new one.
func (a *attacker) next() error {
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
func (a *attacker) encode(method, path string, more ...hpack.HeaderField) []byte {
	a.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "attack.test"}, {Name: ":path", Value: path},
	}, more...) {
		_ = a.fields.WriteField(f) // to memory
	}
	return a.block.Bytes()
}

// open sends the head of a request on a new stream.
func (a *attacker) open(path string, ends bool, more ...hpack.HeaderField) error {
	if err := a.next(); err != nil {
		return err
	}
	method := "POST"
	if ends {
		method = "GET"
	}
	return a.sent(a.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: a.stream, BlockFragment: a.encode(method, path, more...), EndStream: ends, EndHeaders: true,
	}))
}
