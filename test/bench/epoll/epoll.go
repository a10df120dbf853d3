// Package epoll is the event loop of the load generator and of the origin. It calls the kernel
// directly, without Go's network poller and scheduler, to use as little of the shared CPU as
// possible.
//
// A call blocks the Go scheduler's P as well as the thread. Use it only in a process that does
// nothing else: garbage collection and other goroutines do not run during the call.
package epoll

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Events to watch a descriptor for, level-triggered. The poller always reports errors and hangups.
const (
	Readable = unix.EPOLLIN
	Writable = unix.EPOLLOUT
)

// Event reports activity on the descriptor that was added with Token.
type Event struct {
	Token  int32
	Events uint32 // Readable, Writable, or other bits of epoll(7)
}

// Poller watches descriptors. Only one goroutine may use it.
type Poller struct {
	fd  int
	raw [256]unix.EpollEvent
}

// New returns a Poller that watches nothing. It sets the timer slack of the calling thread, so that
// the timeouts of Wait are precise while the goroutine stays on this thread.
func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	// By default the kernel may delay a timer by 50 µs to coalesce wakeups.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set the timer slack: %w", err)
	}
	return &Poller{fd: fd}, nil
}

// Close closes the poller. The watched descriptors stay open.
func (p *Poller) Close() error { return unix.Close(p.fd) }

// Add watches fd and reports its events with the token.
func (p *Poller) Add(fd int, token int32, events uint32) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, token, events)
}

// Modify replaces the events and the token of fd.
func (p *Poller) Modify(fd int, token int32, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, token, events)
}

func (p *Poller) control(operation, fd int, token int32, events uint32) error {
	if err := unix.EpollCtl(p.fd, operation, fd, &unix.EpollEvent{Events: events, Fd: token}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Wait fills events and returns their number. It returns 0 when the timeout has passed or a signal
// arrived. A negative timeout means no timeout.
func (p *Poller) Wait(events []Event, timeout time.Duration) (int, error) {
	limit := min(len(events), len(p.raw))
	var spec *unix.Timespec
	if timeout >= 0 {
		ts := unix.NsecToTimespec(int64(timeout))
		spec = &ts
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.raw[0])), uintptr(limit), uintptr(unsafe.Pointer(spec)), 0, 0)
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

// Read reads the available bytes into b, which must not be empty. It returns 0 at the end of the
// stream and unix.EAGAIN if no bytes are available.
func Read(fd int, b []byte) (int, error) {
	return transfer(unix.SYS_READ, fd, b)
}

// Write writes as much of b as the socket accepts; b must not be empty. It returns unix.EAGAIN if
// the socket accepts nothing.
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
