package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// insideKey is set in the process that Again has started.
const insideKey = "WEFT_NETWORK_INSIDE"

// Inside says whether this process was started by Again.
func Inside() bool { return os.Getenv(insideKey) != "" }

// Again runs this test program once more, in a network of its own where there is nothing
// but a loopback interface: whoever listens there on every address is reached by nobody
// else, and no port is taken. The caller is TestMain, which ends with the status; in the
// new process Inside is true, and it calls LoopbackUp. The error says why there can be no
// such network. Who is not root becomes nobody in particular there, who may do no more.
func Again(more ...string) (status int, err error) {
	var args []string
	for _, a := range os.Args[1:] {
		// The cache of test results is told of files by this process alone.
		if !strings.HasPrefix(a, "-test.testlogfile=") {
			args = append(args, a)
		}
	}
	cmd := exec.Command(os.Args[0], append(args, more...)...)
	cmd.Env = append(os.Environ(), insideKey+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Getuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // a signal has the code -1
	}
	return 0, err
}

// LoopbackUp switches the loopback interface on of the network that this process is in.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	request, err := unix.NewIfreq("lo")
	if err != nil {
		panic("netns: the name of the loopback interface: " + err.Error())
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(request))); errno != 0 {
		return fmt.Errorf("loopback: %w", errno)
	}
	return nil
}
