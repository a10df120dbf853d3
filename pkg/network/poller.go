package network

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Poller waits for many ConnectedUDP sockets on one goroutine: that of Run. A socket costs
// an entry in the kernel and one in a map, where a waiting goroutine would cost a stack.
//
// A Poller is an epoll instance that the runtime's poller watches: when one of its sockets
// is readable, Run wakes up.
type Poller struct {
	file *os.File        // of the epoll
	raw  syscall.RawConn // of file
	fd   int

	closed atomic.Bool

	mu      sync.Mutex
	sockets map[int32]*ConnectedUDP // guarded by mu; by descriptor
}

// NewPoller returns a Poller without sockets.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that the runtime polls it
		_ = unix.Close(fd) // closes an unused descriptor
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close() // closes an unused descriptor
		return nil, err
	}
	return &Poller{file: file, raw: raw, fd: fd, sockets: make(map[int32]*ConnectedUDP)}, nil
}

// Add makes Run call owner when p has something to receive, until p is closed. The caller
// adds a socket only once.
func (l *Poller) Add(p *ConnectedUDP, owner ReadHandler) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return net.ErrClosed
	}
	p.handler = owner
	l.mu.Lock()
	l.sockets[int32(p.fd)] = p
	l.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.fd)}
	if err := unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, p.fd, &event); err != nil {
		l.remove(p.fd)
		return os.NewSyscallError("epoll_ctl", err)
	}
	p.poller = l
	return nil
}

// remove removes a descriptor that is about to be closed. The caller holds the mu of its
// ConnectedUDP.
func (l *Poller) remove(fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sockets, int32(fd))
}

// maxEvents is how many sockets one system call reports at most.
const maxEvents = 128

// Run calls the owners of readable sockets until Close; then it returns nil.
func (l *Poller) Run() error {
	buffer := make([]byte, MaxDatagram)
	events := make([]unix.EpollEvent, maxEvents)
	n, failed := 0, error(nil)
	look := func(fd uintptr) bool {
		n, failed = unix.EpollWait(int(fd), events, 0)
		return n != 0 // an error, too: -1
	}
	for {
		err := l.raw.Read(look)
		switch {
		case err != nil && l.closed.Load():
			return nil
		case err != nil:
			return err
		case errors.Is(failed, unix.EINTR):
			continue
		case failed != nil:
			return os.NewSyscallError("epoll_wait", failed)
		}
		for _, e := range events[:n] {
			if p := l.socket(e.Fd); p != nil {
				p.handler.Readable(buffer)
			}
		}
	}
}

func (l *Poller) socket(fd int32) *ConnectedUDP {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sockets[fd]
}

// Close ends Run. The caller closes the sockets first.
func (l *Poller) Close() error {
	l.closed.Store(true)
	return l.file.Close()
}
