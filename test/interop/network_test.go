package interop

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dubbo's server listens on every address, whatever it is told. So the tests run
// in a network namespace of their own that has a loopback interface alone: nobody
// reaches the peers, the peers reach nobody, and no port is taken.

// insideKey is set in the process that runs the tests in a network of its own.
const insideKey = "WEFT_INTEROP_INSIDE"

// runInOwnNetwork runs this program again, in a network of its own, and returns
// its exit status. The error says why there can be none.
func runInOwnNetwork() (int, error) {
	var args []string
	for _, a := range os.Args[1:] {
		// The cache of test results is told of files by this process alone.
		if !strings.HasPrefix(a, "-test.testlogfile=") {
			args = append(args, a)
		}
	}
	// Most of the time the peers wait; they may do it together.
	args = append(args, "-test.parallel=8")
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), insideKey+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Getuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // a signal has the code -1
	}
	return 0, err
}

// loopbackUp switches the namespace's loopback interface on.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(request))); errno != 0 {
		return errno
	}
	return nil
}
