package network

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// tlsLayer is the TLS of a connection: it stands between the socket and the methods
// of Conn that carry bytes, which mean plaintext from then on.
//
//	reading  poller -> tryRead -> tls.Conn.Read -> wire.Read -> the socket, never waiting
//	writing  Write -> tls.Conn.Write -> wire.Write: sealed grows; then flush -> the socket
//
// Reading waits in the poller, outside of tls.Conn, which is left in the middle of
// a record and goes on when there is more: a socket that brought half a record is
// one that has nothing to read. Writing gathers the records of one call, and of
// what the reader has to say (alerts, answers to key updates), in the order in
// which they were sealed; they leave in one system call.
type tlsLayer struct {
	conn *Conn     // immutable
	tls  *tls.Conn // immutable
	info TLS       // immutable once the handshake is done

	in struct { // owned by the reading goroutine
		early   *buffer.IoBuffer // read before TLS began; nil: none
		fd      uintptr          // while polling
		polling bool             // reads must not wait
		ended   bool             // the peer has ended its direction of the socket
		// dry: all that the socket brought was given out, so that there is nothing
		// before the socket is readable again.
		dry bool
	}
	out struct {
		mu     sync.Mutex
		sealed *buffer.IoBuffer // guarded by mu; records that wait for the socket; nil: none
		busy   bool             // guarded by mu; a writer waits for the socket, and takes what comes
		large  int              // guarded by mu; bytes of the largest frame that was sealed at once
	}
}

// tlsTransport is what tls.Conn takes for the socket.
type tlsTransport tlsLayer

// errNothing is what tls.Conn is told by a socket that has nothing to read: it goes
// on as if nothing had happened, which it does after errors that say Temporary.
var errNothing net.Error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "network: nothing to read" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// interrupted is an error of the socket after which reading may go on.
type interrupted struct{ err error }

func (e *interrupted) Error() string { return e.err.Error() }
func (e *interrupted) Unwrap() error { return e.err }
func (*interrupted) Timeout() bool   { return true }
func (*interrupted) Temporary() bool { return true }

// Read is for tls.Conn.
func (w *tlsTransport) Read(p []byte) (int, error) {
	s := (*tlsLayer)(w)
	if e := s.in.early; e != nil {
		n, _ := e.Read(p) // never empty
		if e.Len() == 0 {
			s.in.early = nil
			e.Release()
		}
		return n, nil
	}
	if s.in.polling {
		n, errno := readFD(s.in.fd, p)
		switch {
		case errno == syscall.EAGAIN:
			return 0, errNothing
		case errno != 0:
			return 0, os.NewSyscallError("read", errno)
		case n == 0:
			s.in.ended = true
			return 0, io.EOF
		}
		return n, nil
	}
	if err := s.flush(); err != nil {
		return 0, err
	}
	for {
		n, err := s.conn.nc.Read(p)
		switch {
		case n > 0:
			return n, nil
		case err == io.EOF:
			s.in.ended = true
			return 0, err
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
		if err = s.conn.readFailed(err); err != nil {
			return 0, &interrupted{err}
		}
	}
}

// mostSealed is how many bytes of records may wait for a socket, beside those of one
// frame that is larger. Writers stay below by themselves. The answers to a peer that
// asks for new keys time and again, and takes none of them, would not.
const mostSealed = 1 << 20

// errDeaf ends the writing to such a peer.
var errDeaf = errors.New("network: the peer has TLS answered and takes no answers")

// Write is for tls.Conn: it never waits.
func (w *tlsTransport) Write(p []byte) (int, error) {
	o := &(*tlsLayer)(w).out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed == nil {
		o.sealed = buffer.Get(len(p))
	}
	// In memory it may be the reader that sends, while the writer goes on.
	if w.conn.raw != nil && o.sealed.Len()+len(p) > mostSealed+o.large {
		return 0, errDeaf
	}
	return o.sealed.Write(p)
}

// Close is for tls.Conn, which does not close the connection.
func (w *tlsTransport) Close() error { return nil }

// LocalAddr is for tls.Conn.
func (w *tlsTransport) LocalAddr() net.Addr { return w.conn.LocalAddr() }

// RemoteAddr is for tls.Conn.
func (w *tlsTransport) RemoteAddr() net.Addr { return w.conn.RemoteAddr() }

// SetDeadline is for tls.Conn: deadlines are those of the Conn.
func (w *tlsTransport) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is for tls.Conn.
func (w *tlsTransport) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for tls.Conn.
func (w *tlsTransport) SetWriteDeadline(time.Time) error { return nil }

// read is a read of plaintext that waits for the socket unless s.in.polling.
func (s *tlsLayer) read(p []byte) (int, error) {
	n, err := s.tls.Read(p)
	s.in.dry = err != nil && errors.Is(err, errNothing)
	s.tryFlush() // what reading had to say
	if n > 0 {
		return n, nil // an error comes again with the next read
	}
	return 0, s.readFailed(err)
}

// readFailed turns an error of tls.Conn into what the reader of a socket expects.
func (s *tlsLayer) readFailed(err error) error {
	if err == io.EOF && s.in.ended {
		// Not close_notify: somebody may have cut what was sent (RFC 8446 6.1, RFC
		// 9112 9.8).
		return io.ErrUnexpectedEOF
	}
	var paused *interrupted
	if errors.As(err, &paused) {
		return paused.err
	}
	return err
}

// poll is read on the socket fd, without waiting: errNothing.
func (s *tlsLayer) poll(fd uintptr, p []byte) (int, error) {
	s.in.fd, s.in.polling = fd, true
	n, err := s.read(p)
	s.in.polling = false
	return n, err
}

// idle reports whether there is nothing to read, at the cost of a look at the
// socket and no more: neither a buffer nor a stack that has grown.
func (s *tlsLayer) idle(fd uintptr) bool {
	if !s.in.dry {
		return false
	}
	_, errno := peek(fd)
	return errno == syscall.EAGAIN
}

// peekPlaintext reads ahead what there is, without waiting, and reports as readCalls.found.
func (s *tlsLayer) peekPlaintext(fd uintptr) int {
	if s.conn.reader.unread != nil {
		return s.conn.reader.unread.Len()
	}
	if s.idle(fd) {
		return -1
	}
	b := buffer.Get(aheadSize)
	n, err := s.poll(fd, b.Tail())
	if n > 0 {
		b.Extend(n)
		s.conn.Unread(b)
		return n
	}
	b.Release()
	if errors.Is(err, errNothing) {
		return -1
	}
	return 0
}

// aheadSize is the buffer for what is read only to see whether there is something,
// in bytes: what engines begin with.
const aheadSize = 4 << 10

// write seals p and sends it, with what waited.
func (s *tlsLayer) write(p []byte) (written int, err error) {
	for {
		n := min(len(p)-written, outboxPiece)
		if n > 0 {
			if n, err = s.tls.Write(p[written : written+n]); err != nil {
				return written, err
			}
		}
		if err = s.flush(); err != nil {
			return written, err
		}
		if written += n; written == len(p) {
			return written, nil
		}
	}
}

// flush sends what is sealed, waiting for the socket.
func (s *tlsLayer) flush() error {
	o := &s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		return nil // only where the reader sends, who finds nothing else to do
	}
	o.busy = true
	defer func() { o.busy = false }()
	for o.sealed != nil {
		b := o.sealed
		o.sealed = nil
		o.mu.Unlock()
		_, err := s.conn.writePlain(b.Bytes())
		b.Release()
		o.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// tryFlush sends what the socket takes at once of what is sealed, unless a writer does,
// and reports whether something is left for one. Safe from any goroutine.
func (s *tlsLayer) tryFlush() (left bool) {
	o := &s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed == nil || o.busy || s.conn.raw == nil {
		return o.sealed != nil && !o.busy
	}
	err := s.conn.raw.Control(func(fd uintptr) {
		for o.sealed.Len() > 0 {
			n, errno := writeFD(fd, o.sealed.Bytes())
			if errno != 0 { // EAGAIN, or what the next writer finds out as well
				return
			}
			o.sealed.Discard(n)
		}
	})
	if err == nil && o.sealed.Len() > 0 {
		return true
	}
	o.sealed.Release()
	o.sealed = nil
	return false
}

// encrypt makes records of p, which it writes as far as the socket takes them at once,
// and reports whether something is left: the next write sends it.
func (s *tlsLayer) encrypt(p []byte) (left bool, err error) {
	if len(p) > outboxPiece {
		s.out.mu.Lock()
		s.out.large = max(s.out.large, len(p)+len(p)/64) // and what records add
		s.out.mu.Unlock()
	}
	if _, err = s.tls.Write(p); err != nil {
		return false, err
	}
	return s.tryFlush(), nil
}

// sendCloseNotify tells the peer that nothing follows, if that can be without waiting, before
// the socket is closed. Safe from any goroutine.
func (s *tlsLayer) sendCloseNotify() {
	_ = s.tls.CloseWrite() // before the end of the handshake there is nothing to end
	s.tryFlush()
	s.drop()
}

// drop gives up what is sealed: the socket will not take it any more.
func (s *tlsLayer) drop() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.out.sealed != nil {
		s.out.sealed.Release()
		s.out.sealed = nil
	}
}
