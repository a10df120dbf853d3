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

// Poller waits for many ConnectedUDP sockets on the goroutine of Run, so that a socket costs no
// goroutine of its own.
//
// A Poller is an epoll instance that the runtime's poller watches: when one of its sockets is
// readable, Run wakes up.
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

// Add makes Run call handler when u has something to receive, until u is closed. The caller adds a
// socket only once.
func (p *Poller) Add(u *ConnectedUDP, handler ReadHandler) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fd < 0 {
		return net.ErrClosed
	}
	u.handler = handler
	p.mu.Lock()
	p.sockets[int32(u.fd)] = u
	p.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(u.fd)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, u.fd, &event); err != nil {
		p.remove(u.fd)
		return os.NewSyscallError("epoll_ctl", err)
	}
	u.poller = p
	return nil
}

// remove makes Run ignore a descriptor. The caller holds the mu of its ConnectedUDP.
func (p *Poller) remove(fd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sockets, int32(fd))
}

// maxEvents is the maximum number of sockets that one system call reports.
const maxEvents = 128

// Run calls the handlers of readable sockets until Close; then it returns nil.
func (p *Poller) Run() error {
	buf := make([]byte, MaxDatagram)
	events := make([]unix.EpollEvent, maxEvents)
	n, waitErr := 0, error(nil)
	wait := func(fd uintptr) bool {
		n, waitErr = unix.EpollWait(int(fd), events, 0)
		return n != 0 // n is -1 after an error
	}
	for {
		err := p.raw.Read(wait)
		switch {
		case err != nil && p.closed.Load():
			return nil
		case err != nil:
			return err
		case errors.Is(waitErr, unix.EINTR):
			continue
		case waitErr != nil:
			return os.NewSyscallError("epoll_wait", waitErr)
		}
		for _, e := range events[:n] {
			if u := p.socket(e.Fd); u != nil {
				u.handler.Readable(buf)
			}
		}
	}
}

func (p *Poller) socket(fd int32) *ConnectedUDP {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sockets[fd]
}

// Close ends Run. The caller closes the sockets first.
func (p *Poller) Close() error {
	p.closed.Store(true)
	return p.file.Close()
}
