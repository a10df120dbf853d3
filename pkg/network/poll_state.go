package network

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// readState holds the functions that the runtime's poller calls for a reader, with their arguments
// and results. The functions are created once, so that a read allocates nothing. The reading
// goroutine owns them.
type readState struct {
	try, writeAndRead func(fd uintptr) bool // tryRead, tryWriteAndRead
	peek              func(fd uintptr)      // tryPeek
	secure            *tlsLayer             // the connection's TLS; nil: none

	waiting bool             // the last tryReadTLS found nothing: the next one reads without a peek
	onWait  func()           // callback of FillOnWait; nil: none
	buf     *buffer.IoBuffer // destination; nil: the read takes a buffer from the pool
	size    int              // of a buffer taken from the pool, in bytes
	out     []byte           // bytes that tryWriteAndRead still has to write
	n       int              // bytes read
	err     error
	peeked  int // result of tryPeek: positive: there are bytes; 0: EOF or an error; -1: nothing
}

// writeState is the counterpart of readState for a writer.
type writeState struct {
	try func(fd uintptr) bool // tryWrite
	out []byte                // bytes still to be written
	err error
}

// tryRead reads once. The runtime's poller calls it with the read side locked: once at first, then
// whenever the socket became readable, until it returns true.
func (r *readState) tryRead(fd uintptr) bool {
	if r.secure != nil {
		return r.tryReadTLS(fd)
	}
	allocated := r.buf == nil
	if allocated {
		r.buf = buffer.Get(r.size)
	}
	n, errno := readFD(fd, r.buf.Tail())
	if errno == syscall.EAGAIN {
		if allocated {
			r.buf.Release()
			r.buf = nil
		}
		if r.onWait != nil {
			r.onWait()
		}
		return false
	}
	r.n = n
	switch {
	case errno != 0:
		r.err = os.NewSyscallError("read", errno)
	case n == 0:
		r.err = io.EOF
	default:
		r.buf.Extend(n)
	}
	return true
}

// tryWriteAndRead writes out, then waits and reads like tryRead. It returns early when the socket
// is full. The poller discards earlier readiness events before its first call, and so before the
// write: the response always causes a new event.
func (r *readState) tryWriteAndRead(fd uintptr) bool {
	if len(r.out) == 0 {
		return r.tryRead(fd)
	}
	r.out, r.err = writeAvailable(fd, r.out)
	return r.err != nil || len(r.out) > 0
}

// tryReadTLS is tryRead over TLS. The TLS layer records that its last read found nothing, so that a
// read of an idle connection need not take a buffer.
func (r *readState) tryReadTLS(fd uintptr) bool {
	if !r.waiting && r.secure.noData(fd) {
		return r.await()
	}
	allocated := r.buf == nil
	if allocated {
		r.buf = buffer.Get(r.size)
	}
	n, err := r.secure.poll(fd, r.buf.Tail())
	if errors.Is(err, errNoData) {
		if allocated {
			r.buf.Release()
			r.buf = nil
		}
		return r.await()
	}
	r.waiting = false
	r.n, r.err = n, err
	r.buf.Extend(n)
	return true
}

// await runs the callback of FillOnWait and returns false, so that the poller waits.
func (r *readState) await() bool {
	r.waiting = true
	if r.onWait != nil {
		r.onWait()
	}
	return false
}

func (r *readState) tryPeek(fd uintptr) {
	if r.secure != nil {
		r.peeked = r.secure.peekPlaintext(fd)
		return
	}
	n, errno := peek(fd)
	switch errno {
	case 0:
		r.peeked = n
	case syscall.EAGAIN:
		r.peeked = -1
	default:
		r.peeked = 0
	}
}

// tryWrite writes w.out. The poller calls it as it calls tryRead, until it returns true.
func (w *writeState) tryWrite(fd uintptr) bool {
	w.out, w.err = writeAvailable(fd, w.out)
	return w.err != nil || len(w.out) == 0
}

// writeAvailable writes as much of out as the socket takes and returns the rest.
func writeAvailable(fd uintptr, out []byte) (rest []byte, err error) {
	for len(out) > 0 {
		n, errno := writeFD(fd, out)
		switch {
		case errno == syscall.EAGAIN:
			return out, nil
		case errno != 0:
			return out, os.NewSyscallError("write", errno)
		}
		out = out[n:]
	}
	return out, nil
}
