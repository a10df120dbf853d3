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
// of Conn that carry bytes, which carry plaintext from then on.
//
//	reading  poller -> tryRead -> tls.Conn.Read -> tlsTransport.Read -> the socket, never waiting
//	writing  Write -> tls.Conn.Write -> tlsTransport.Write: sealed grows; then flush -> the socket
//
// Reading waits in the poller, outside of tls.Conn, which stops in the middle of a
// record and continues when there is more: a socket that holds half a record has
// nothing to read. Writing gathers the records of one call, and those that the reader
// sends (alerts, responses to key updates), in the order in which they were sealed;
// they leave in one system call.
type tlsLayer struct {
	conn *Conn     // immutable
	tls  *tls.Conn // immutable
	info TLS       // immutable once the handshake is done

	in struct { // owned by the reading goroutine
		early   *buffer.IoBuffer // read before TLS began; nil: none
		fd      uintptr          // while polling
		polling bool             // reads must not wait
		ended   bool             // the peer has ended its direction of the socket
		// dry: the reader has consumed all bytes of the socket, so that there is nothing to
		// read before the socket is readable again.
		dry bool
	}
	out struct {
		mu     sync.Mutex
		sealed *buffer.IoBuffer // guarded by mu; sealed records that are not yet sent; nil: none
		busy   bool             // guarded by mu; a writer waits for the socket, and sends records added meanwhile
		large  int              // guarded by mu; bytes of the largest frame sealed in one call
	}
}

// tlsTransport is the net.Conn that tls.Conn uses as its socket.
type tlsTransport tlsLayer

// errNoData is the error for tls.Conn when the socket has nothing to read. tls.Conn
// continues after it as if nothing had happened, because it is Temporary.
var errNoData net.Error = noDataError{}

type noDataError struct{}

func (noDataError) Error() string   { return "network: nothing to read" }
func (noDataError) Timeout() bool   { return true }
func (noDataError) Temporary() bool { return true }

// resumableError is an error of the socket after which reading may continue.
type resumableError struct{ err error }

func (e *resumableError) Error() string { return e.err.Error() }
func (e *resumableError) Unwrap() error { return e.err }
func (*resumableError) Timeout() bool   { return true }
func (*resumableError) Temporary() bool { return true }

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
			return 0, errNoData
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
			return 0, &resumableError{err}
		}
	}
}

// maxSealed is how many bytes of records may wait for a socket, in addition to those
// of one larger frame. Writers stay below it by themselves. The responses to a peer that
// requests new keys again and again, and reads nothing, would not.
const maxSealed = 1 << 20

// errPeerNotReading ends writing to such a peer.
var errPeerNotReading = errors.New("network: the peer does not read the TLS responses that it requests")

// Write is for tls.Conn: it never waits.
func (w *tlsTransport) Write(p []byte) (int, error) {
	o := &(*tlsLayer)(w).out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed == nil {
		o.sealed = buffer.Get(len(p))
	}
	// Without a socket, the reader may send while the writer continues.
	if w.conn.raw != nil && o.sealed.Len()+len(p) > maxSealed+o.large {
		return 0, errPeerNotReading
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

// read reads plaintext. It waits for the socket unless s.in.polling.
func (s *tlsLayer) read(p []byte) (int, error) {
	n, err := s.tls.Read(p)
	s.in.dry = err != nil && errors.Is(err, errNoData)
	s.tryFlush() // records that reading has sealed
	if n > 0 {
		return n, nil // the next read returns the error again
	}
	return 0, s.readFailed(err)
}

// readFailed turns an error of tls.Conn into the error that the reader of a socket expects.
func (s *tlsLayer) readFailed(err error) error {
	if err == io.EOF && s.in.ended {
		// No close_notify: an attacker may have truncated the data (RFC 8446 6.1, RFC
		// 9112 9.8).
		return io.ErrUnexpectedEOF
	}
	var paused *resumableError
	if errors.As(err, &paused) {
		return paused.err
	}
	return err
}

// poll reads from the socket fd without waiting. It returns errNoData when there is nothing
// to read.
func (s *tlsLayer) poll(fd uintptr, p []byte) (int, error) {
	s.in.fd, s.in.polling = fd, true
	n, err := s.read(p)
	s.in.polling = false
	return n, err
}

// noData reports whether there is nothing to read. It costs one look at the socket, and
// neither a buffer nor a larger stack.
func (s *tlsLayer) noData(fd uintptr) bool {
	if !s.in.dry {
		return false
	}
	_, errno := peek(fd)
	return errno == syscall.EAGAIN
}

// peekPlaintext reads ahead without waiting. Its result is that of readState.peeked.
func (s *tlsLayer) peekPlaintext(fd uintptr) int {
	if unread := s.conn.reader.unread.buf; unread != nil {
		return unread.Len()
	}
	if s.noData(fd) {
		return -1
	}
	b := buffer.Get(readAheadSize)
	n, err := s.poll(fd, b.Tail())
	if n > 0 {
		b.Extend(n)
		s.conn.Unread(b)
		return n
	}
	b.Release()
	if errors.Is(err, errNoData) {
		return -1
	}
	return 0
}

// readAheadSize is the size of the buffer for reads that only check for data, in bytes. Engines
// start with the same size.
const readAheadSize = 4 << 10

// write seals p and sends it, together with the records that waited.
func (s *tlsLayer) write(p []byte) (written int, err error) {
	for {
		n := min(len(p)-written, maxPieceSize)
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

// flush sends the sealed records and waits for the socket.
func (s *tlsLayer) flush() error {
	o := &s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		return nil // only the reader gets here, and the writer sends its records
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

// tryFlush sends as many sealed bytes as the socket takes immediately, unless a writer does
// so, and reports whether something remains for a writer. Safe from any goroutine.
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
			if errno != 0 { // EAGAIN, or an error that the next writer gets as well
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

// encrypt seals p, writes as much as the socket takes immediately, and reports whether
// something remains: the next write sends it.
func (s *tlsLayer) encrypt(p []byte) (left bool, err error) {
	if len(p) > maxPieceSize {
		s.out.mu.Lock()
		s.out.large = max(s.out.large, len(p)+len(p)/64) // the payload and the overhead of its records
		s.out.mu.Unlock()
	}
	if _, err = s.tls.Write(p); err != nil {
		return false, err
	}
	return s.tryFlush(), nil
}

// sendCloseNotify sends close_notify before the socket is closed, if that is possible
// without waiting. Safe from any goroutine.
func (s *tlsLayer) sendCloseNotify() {
	_ = s.tls.CloseWrite() // before the end of the handshake there is nothing to end
	s.tryFlush()
	s.dropSealed()
}

// dropSealed discards the sealed records: the socket will not take them any more.
func (s *tlsLayer) dropSealed() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.out.sealed != nil {
		s.out.sealed.Release()
		s.out.sealed = nil
	}
}
