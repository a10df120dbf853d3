// Package epoll is the event loop of the load generator and of the origin: bare
// system calls, without Go's network poller and scheduler between them and the
// kernel, so that they cost the core that they share as little as can be.
//
// A call blocks the processor of the Go scheduler as well as the thread. It is
// for a process that does nothing else: garbage collection and other goroutines
// of the process stand still meanwhile.
package epoll

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Events that a descriptor is watched for, level-triggered. Errors and the
// peer's end are always reported.
const (
	Readable = unix.EPOLLIN
	Writable = unix.EPOLLOUT
)

// Event tells that something happened to the descriptor that was added with the
// Token.
type Event struct {
	Token  int32
	Events uint32 // Readable, Writable, or other bits of epoll(7)
}

// Poller watches descriptors. It is for one goroutine.
type Poller struct {
	fd  int
	raw [256]unix.EpollEvent
}

// New returns a Poller that watches nothing. The timeouts of Wait on this thread
// are from now on kept to the microsecond: lock the goroutine to its thread.
func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	// The kernel may be 50 µs late by default to wake for several timers at once.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set the timer slack: %w", err)
	}
	return &Poller{fd: fd}, nil
}

// Close stops watching. The descriptors stay open.
func (p *Poller) Close() error { return unix.Close(p.fd) }

// Add watches fd, and reports it with the token.
func (p *Poller) Add(fd int, token int32, events uint32) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, token, events)
}

// Modify replaces what fd is watched for and its token.
func (p *Poller) Modify(fd int, token int32, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, token, events)
}

func (p *Poller) control(operation, fd int, token int32, events uint32) error {
	if err := unix.EpollCtl(p.fd, operation, fd, &unix.EpollEvent{Events: events, Fd: token}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Wait fills events with what has happened and returns how many there are: at
// least one, or none when the timeout has passed or a signal came. A negative
// timeout waits for ever.
func (p *Poller) Wait(events []Event, timeout time.Duration) (int, error) {
	limit := min(len(events), len(p.raw))
	var until *unix.Timespec
	if timeout >= 0 {
		spec := unix.NsecToTimespec(int64(timeout))
		until = &spec
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.raw[0])), uintptr(limit), uintptr(unsafe.Pointer(until)), 0, 0)
	switch errno {
	case 0:
	case unix.EINTR:
		return 0, nil
	default:
		return 0, fmt.Errorf("epoll_pwait2: %w", errno)
	}
	for i, e := range p.raw[:n] {
		events[i] = Event{Token: e.Fd, Events: e.Events}
	}
	return int(n), nil
}

// Read reads what is there into b, which is not empty. At the end of the stream
// it returns 0; with nothing there unix.EAGAIN.
func Read(fd int, b []byte) (int, error) {
	return transfer(unix.SYS_READ, fd, b)
}

// Write writes what the socket takes of b, which is not empty; unix.EAGAIN if
// that is nothing.
func Write(fd int, b []byte) (int, error) {
	return transfer(unix.SYS_WRITE, fd, b)
}

func transfer(call uintptr, fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
