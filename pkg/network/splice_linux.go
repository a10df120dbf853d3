package network

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeSize is the capacity of a pipe, in bytes (pipe(7)).
const pipeSize = 64 << 10

// maxIdlePipes is the maximum number of idle pipes that the process keeps for reuse. Each has two
// descriptors.
const maxIdlePipes = 32

// pipe is the kernel's buffer between two sockets. It is empty between uses. A connection has a
// pipe only while bytes are in the pipe.
type pipe struct{ r, w int }

// pipes holds the pipes that no connection uses, at most maxIdlePipes. The garbage collector must
// not decide when descriptors are closed: see TestPipesDoNotOutliveTheirConnections.
//
//nolint:gochecknoglobals // descriptors are the process's; pipes are shared by all connections
var pipes idlePipes

// idlePipes is a free list. The zero value is empty. Safe for concurrent use.
type idlePipes struct {
	mu   sync.Mutex
	free []*pipe // guarded by mu; the newest last
}

// get removes a pipe from the list and returns it; nil if there is none.
func (l *idlePipes) get() *pipe {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free) - 1
	if n < 0 {
		return nil
	}
	p := l.free[n]
	l.free = l.free[:n]
	return p
}

// put keeps p, which is empty, or closes it if the list has maxIdlePipes.
func (l *idlePipes) put(p *pipe) {
	l.mu.Lock()
	keep := len(l.free) < maxIdlePipes
	if keep {
		l.free = append(l.free, p)
	}
	l.mu.Unlock()
	if !keep {
		p.close()
	}
}

// errNoPipe means that the system creates no pipe, usually because the process is out of
// descriptors.
var errNoPipe = errors.New("network: no pipe")

// acquirePipe returns an empty pipe; nil if it cannot get one.
func acquirePipe() *pipe {
	if p := pipes.get(); p != nil {
		return p
	}
	return newPipe()
}

func newPipe() *pipe {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	return &pipe{r: fds[0], w: fds[1]}
}

// close closes both ends and discards what is in the pipe.
func (p *pipe) close() {
	_ = unix.Close(p.r) // nothing can be done about an error
	_ = unix.Close(p.w)
}

// Splice moves limit bytes from src to dst within the kernel (splice(2)), under src's read deadline
// and dst's write timeout and deadline. ok is false, and nothing has moved, if dst or src is not a
// plain socket, src has unread bytes, or there is no pipe. If pipes run out later, Splice returns
// early. After a read error, dst has all moved bytes; after a write error, dst is lost. The caller
// is the reading goroutine of src and the writing goroutine of dst.
func Splice(dst, src *Conn, limit int64) (moved int64, ok bool, readErr, writeErr error) {
	return spliceCounted(dst, src, limit, new(atomic.Int64))
}

// spliceCounted is Splice that adds the moved bytes to count as they move.
func spliceCounted(dst, src *Conn, limit int64, count *atomic.Int64) (moved int64, ok bool, readErr, writeErr error) {
	if dst.raw == nil || src.raw == nil || src.reader.unread.buf != nil || dst.secure.Load() != nil || src.secure.Load() != nil {
		return 0, false, nil, nil
	}
	for moved < limit {
		p, n, err := spliceIn(src, limit-moved)
		switch {
		case errors.Is(err, errNoPipe):
			return moved, moved > 0, nil, nil
		case err != nil:
			return moved, true, err, nil
		}
		m, err := spliceOut(dst, p, n)
		moved += m
		count.Add(m)
		if err != nil {
			p.close() // it is not empty
			return moved, true, nil, err
		}
		pipes.put(p)
	}
	return moved, true, nil, nil
}

// spliceIn moves the bytes of one call, at most limit, from src into an empty pipe. While it waits,
// it holds no pipe.
func spliceIn(src *Conn, limit int64) (p *pipe, n int64, err error) {
	for {
		var result error
		err = src.raw.Read(func(fd uintptr) bool {
			if p = acquirePipe(); p == nil {
				result = errNoPipe
				return true
			}
			n, result = spliceFD(int(fd), p.w, min(limit, pipeSize))
			if n == 0 {
				pipes.put(p)
			}
			return !errors.Is(result, syscall.EAGAIN)
		})
		if err == nil && result == nil && n == 0 {
			return nil, 0, io.EOF
		}
		if err == nil {
			return p, n, result
		}
		if err = src.handleReadError(err); err != nil {
			return nil, 0, err
		}
	}
}

// spliceOut moves the n bytes in the pipe to dst.
func spliceOut(dst *Conn, p *pipe, n int64) (moved int64, err error) {
	dst.writer.timer.start(dst.nc)
	rearmed := false
	for moved < n {
		var m int64
		var result error
		err = dst.raw.Write(func(fd uintptr) bool {
			m, result = spliceFD(p.r, int(fd), n-moved)
			return !errors.Is(result, syscall.EAGAIN)
		})
		switch {
		case err == nil && result != nil:
			return moved, result
		case err == nil:
			moved += m
			rearmed = false
		case !errors.Is(err, os.ErrDeadlineExceeded) || dst.writer.timer.timedOut(dst.nc, rearmed):
			return moved, err
		default:
			rearmed = true
		}
	}
	return moved, nil
}

func spliceFD(from, to int, n int64) (int64, error) {
	for {
		m, err := unix.Splice(from, nil, to, nil, int(n), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, os.NewSyscallError("splice", err)
		}
		return m, nil
	}
}
