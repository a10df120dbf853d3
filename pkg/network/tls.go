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

// tlsLayer is the TLS layer of a connection, between the socket and the methods of Conn that read
// and write, which carry plaintext once TLS has started.
//
//	reading  poller -> tryRead -> tls.Conn.Read -> tlsTransport.Read -> the socket, never waiting
//	writing  Write -> tls.Conn.Write -> tlsTransport.Write: sealed grows; then flush -> the socket
//
// A reader waits in the poller, not in tls.Conn: if the socket holds only part of a record,
// tls.Conn.Read returns errNoData, and its next call continues with the record. During the
// handshake, and on connections that are not sockets, tlsTransport.Read waits. A writer gathers the
// records of one call, and those that the reader seals (alerts, responses to key updates), in the
// order in which they were sealed, and sends them together.
type tlsLayer struct {
	conn *Conn     // immutable
	tls  *tls.Conn // immutable
	info TLS       // immutable once the handshake is done

	in struct { // owned by the reading goroutine
		unread    *buffer.IoBuffer // bytes that were read before TLS began; nil: none
		fd        uintptr          // the socket; only valid while polling
		polling   bool             // reads must not block
		socketEOF bool             // the peer has ended its direction of the socket
		// socketEmpty: the reader has consumed all bytes of the socket, so that there is nothing to
		// read before the socket is readable again.
		socketEmpty bool
	}
	out struct {
		mu       sync.Mutex
		sealed   *buffer.IoBuffer // guarded by mu; sealed records that are not yet sent; nil: none
		writing  bool             // guarded by mu; a writer waits for the socket, and sends records added meanwhile
		maxFrame int              // guarded by mu; bytes of the records of the largest frame above maxPieceSize; 0: none
	}
}

// tlsTransport is the net.Conn that tls.Conn uses as its socket.
type tlsTransport tlsLayer

// errNoData means that the socket has nothing to read. Because it is Temporary, tls.Conn does not
// fail, and its next Read continues.
var errNoData net.Error = noDataError{}

type noDataError struct{}

func (noDataError) Error() string   { return "network: nothing to read" }
func (noDataError) Timeout() bool   { return true }
func (noDataError) Temporary() bool { return true }

// resumableError is an error after which the next Read of tls.Conn continues, such as
// ErrInterrupted or a passed deadline.
type resumableError struct{ err error }

func (e *resumableError) Error() string { return e.err.Error() }
func (e *resumableError) Unwrap() error { return e.err }
func (*resumableError) Timeout() bool   { return true }
func (*resumableError) Temporary() bool { return true }

// Read implements net.Conn. tls.Conn calls it.
func (t *tlsTransport) Read(p []byte) (int, error) {
	s := (*tlsLayer)(t)
	if unread := s.in.unread; unread != nil {
		n, _ := unread.Read(p) // never fails: unread is not empty
		if unread.Len() == 0 {
			s.in.unread = nil
			unread.Release()
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
			s.in.socketEOF = true
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
			s.in.socketEOF = true
			return 0, err
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
		if err = s.conn.handleReadError(err); err != nil {
			return 0, &resumableError{err}
		}
	}
}

// maxSealed is the maximum number of bytes of records that wait for one socket, in addition to the
// size of the largest frame. Writers of frames do not reach the maximum. Without the maximum, a
// peer that keeps requesting key updates and reads nothing could make the responses fill the
// memory.
const maxSealed = 1 << 20

// errPeerNotReading is the error of a write that would exceed the maximum of pending records: see
// maxSealed.
var errPeerNotReading = errors.New("network: the peer does not read the TLS responses that it requests")

// Write implements net.Conn. tls.Conn calls Write, which never blocks.
func (t *tlsTransport) Write(p []byte) (int, error) {
	o := &(*tlsLayer)(t).out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed == nil {
		o.sealed = buffer.Get(len(p))
	}
	// Without a socket, tryFlush sends nothing, so pending records do not show that the peer is
	// slow.
	if t.conn.raw != nil && o.sealed.Len()+len(p) > maxSealed+o.maxFrame {
		return 0, errPeerNotReading
	}
	return o.sealed.Write(p)
}

// Close implements net.Conn. It does nothing: tls.Conn must not close the connection.
func (t *tlsTransport) Close() error { return nil }

// LocalAddr implements net.Conn.
func (t *tlsTransport) LocalAddr() net.Addr { return t.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (t *tlsTransport) RemoteAddr() net.Addr { return t.conn.RemoteAddr() }

// SetDeadline implements net.Conn. It does nothing: the deadlines of the Conn apply.
func (t *tlsTransport) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn. It does nothing.
func (t *tlsTransport) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn. It does nothing.
func (t *tlsTransport) SetWriteDeadline(time.Time) error { return nil }

// read reads plaintext. It waits for the socket unless s.in.polling.
func (s *tlsLayer) read(p []byte) (int, error) {
	n, err := s.tls.Read(p)
	s.in.socketEmpty = err != nil && errors.Is(err, errNoData)
	s.tryFlush() // records that reading has sealed
	if n > 0 {
		return n, nil // the next read returns the error again
	}
	return 0, s.convertReadError(err)
}

// convertReadError converts an error of tls.Conn to the error that the reader of a socket expects.
func (s *tlsLayer) convertReadError(err error) error {
	if err == io.EOF && s.in.socketEOF {
		// No close_notify: an attacker may have truncated the data (RFC 8446 6.1, RFC 9112 9.8).
		return io.ErrUnexpectedEOF
	}
	var resumable *resumableError
	if errors.As(err, &resumable) {
		return resumable.err
	}
	return err
}

// poll reads plaintext from the socket fd without blocking. It returns errNoData when there is
// nothing to read.
func (s *tlsLayer) poll(fd uintptr, p []byte) (int, error) {
	s.in.fd, s.in.polling = fd, true
	n, err := s.read(p)
	s.in.polling = false
	return n, err
}

// noData reports whether it is certain that there is nothing to read. It costs at most one system
// call, and neither a buffer nor the stack that tls.Conn needs.
func (s *tlsLayer) noData(fd uintptr) bool {
	if !s.in.socketEmpty {
		return false
	}
	_, errno := peek(fd)
	return errno == syscall.EAGAIN
}

// peekPlaintext reads ahead without blocking. For its result, see readState.peeked.
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

// readAheadSize is the size of the buffer for reads that only check for data, in bytes. The engines
// of downstream connections start with the same size.
const readAheadSize = 4 << 10

// write seals p and sends it, together with the pending records.
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
	if o.writing {
		return nil // the caller is the reader; the writer also sends the records of the reader
	}
	o.writing = true
	defer func() { o.writing = false }()
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

// tryFlush sends as many sealed bytes as the socket takes immediately. It reports whether bytes
// remain that the next write must send. While a writer sends the bytes, tryFlush does nothing and
// returns false. It is safe for concurrent use.
func (s *tlsLayer) tryFlush() (pending bool) {
	o := &s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed == nil || o.writing || s.conn.raw == nil {
		return o.sealed != nil && !o.writing
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

// encrypt seals p, sends as much as the socket takes immediately, and reports whether bytes remain
// that the next write must send.
func (s *tlsLayer) encrypt(p []byte) (pending bool, err error) {
	if len(p) > maxPieceSize {
		s.out.mu.Lock()
		s.out.maxFrame = max(s.out.maxFrame, len(p)+len(p)/64) // the payload and the overhead of its records
		s.out.mu.Unlock()
	}
	if _, err = s.tls.Write(p); err != nil {
		return false, err
	}
	return s.tryFlush(), nil
}

// sendCloseNotify sends close_notify before the socket is closed, if that is possible without
// blocking. Safe from any goroutine.
func (s *tlsLayer) sendCloseNotify() {
	_ = s.tls.CloseWrite() // fails only after a failed write
	s.tryFlush()
	s.dropSealed()
}

// dropSealed discards the sealed records, because the caller closes the socket.
func (s *tlsLayer) dropSealed() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.out.sealed != nil {
		s.out.sealed.Release()
		s.out.sealed = nil
	}
}
