package network

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// readCalls are the arguments and results of the functions that the runtime's
// poller calls for a reader, and those functions: made once, so that a read
// allocates nothing. Owned by the reading goroutine.
type readCalls struct {
	try, call func(fd uintptr) bool // tryRead, tryCall
	peek      func(fd uintptr)      // tryPeek
	secure    *tlsLayer             // the connection's TLS; nil: none

	waits bool             // of trySecure: the poller was asked to wait, and calls again
	wait  func()           // OnWait's; nil: none
	buf   *buffer.IoBuffer // read into; nil: one is taken
	size  int              // of that one, in bytes
	out   []byte           // what tryCall still has to write
	n     int              // bytes read
	err   error
	found int // what tryPeek found: bytes, 0 for the end or an error, -1 for nothing
}

// writeCalls is the same for a writer.
type writeCalls struct {
	try func(fd uintptr) bool // tryWrite
	out []byte                // what is still to be written
	err error
}

// tryRead is called by the runtime's poller, with the read side locked: once at
// first, then whenever the socket became readable, until it returns true.
func (r *readCalls) tryRead(fd uintptr) bool {
	if r.secure != nil {
		return r.trySecure(fd)
	}
	mine := r.buf == nil
	if mine {
		r.buf = buffer.Get(r.size)
	}
	n, errno := readFD(fd, r.buf.Tail())
	if errno == syscall.EAGAIN {
		if mine {
			r.buf.Release()
			r.buf = nil
		}
		if r.wait != nil {
			r.wait()
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

// tryCall is tryRead with a write before the first wait. The poller forgets
// earlier events just before it calls this the first time, so that the answer's
// arrival cannot be missed.
func (r *readCalls) tryCall(fd uintptr) bool {
	if len(r.out) == 0 {
		return r.tryRead(fd)
	}
	for len(r.out) > 0 {
		n, errno := writeFD(fd, r.out)
		switch {
		case errno == syscall.EAGAIN:
			return true
		case errno != 0:
			r.err = os.NewSyscallError("write", errno)
			return true
		}
		r.out = r.out[n:]
	}
	return false
}

// trySecure is tryRead of plaintext. What was said last is remembered, so that a
// connection which has nothing to read takes no buffer to find that out.
func (r *readCalls) trySecure(fd uintptr) bool {
	if !r.waits && r.secure.idle(fd) {
		return r.await()
	}
	mine := r.buf == nil
	if mine {
		r.buf = buffer.Get(r.size)
	}
	n, err := r.secure.poll(fd, r.buf.Tail())
	if errors.Is(err, errNothing) {
		if mine {
			r.buf.Release()
			r.buf = nil
		}
		return r.await()
	}
	r.waits = false
	r.n, r.err = n, err
	r.buf.Extend(n)
	return true
}

// await says that the poller is to wait: false.
func (r *readCalls) await() bool {
	r.waits = true
	if r.wait != nil {
		r.wait()
	}
	return false
}

func (r *readCalls) tryPeek(fd uintptr) {
	if r.secure != nil {
		r.found = r.secure.peekPlaintext(fd)
		return
	}
	n, errno := peek(fd)
	switch errno {
	case 0:
		r.found = n
	case syscall.EAGAIN:
		r.found = -1
	default:
		r.found = 0
	}
}

// tryWrite is to writing what tryRead is to reading.
func (w *writeCalls) tryWrite(fd uintptr) bool {
	for len(w.out) > 0 {
		n, errno := writeFD(fd, w.out)
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			w.err = os.NewSyscallError("write", errno)
			return true
		}
		w.out = w.out[n:]
	}
	return true
}
