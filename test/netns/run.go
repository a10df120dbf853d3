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

// inNamespaceEnv is an environment variable that RunInNamespace sets for the new process.
const inNamespaceEnv = "WEFT_NETWORK_INSIDE"

// InNamespace reports whether RunInNamespace started this process.
func InNamespace() bool { return os.Getenv(inNamespaceEnv) != "" }

// RunInNamespace runs this test binary again, with additional arguments, in a new network namespace
// with only a loopback interface. There all ports are free, and no process outside can connect.
// TestMain calls RunInNamespace and exits with the returned status. In the new process InNamespace
// returns true, and TestMain calls LoopbackUp. RunInNamespace returns an error if the namespace
// cannot be created. A user other than root also gets a user namespace, in which it has the ids of
// root.
func RunInNamespace(extra ...string) (status int, err error) {
	var args []string
	for _, a := range os.Args[1:] {
		// The go command reads the log of accessed files of this process, not of the new one.
		if !strings.HasPrefix(a, "-test.testlogfile=") {
			args = append(args, a)
		}
	}
	cmd := exec.Command(os.Args[0], append(args, extra...)...)
	cmd.Env = append(os.Environ(), inNamespaceEnv+"=1")
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
		return max(exit.ExitCode(), 1), nil // -1 if a signal killed the process
	}
	return 0, err
}

// LoopbackUp brings up the loopback interface of the network namespace of this process.
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
