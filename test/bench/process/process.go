// Package process starts the processes of a measurement on given CPUs and reads their resource
// usage from the kernel.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Launcher starts processes from one locked thread: children inherit the CPU affinity of that
// thread, and the kernel sends them SIGTERM when the thread ends, for example because this process
// was killed. The caller calls Close after the last child has exited.
type Launcher struct {
	work chan func()
	done chan struct{}
}

// NewLauncher returns a Launcher whose thread runs until Close.
func NewLauncher() *Launcher {
	l := &Launcher{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range l.work {
			f()
		}
	}()
	return l
}

// Start starts cmd with all of its threads on one CPU. The kernel sends SIGTERM to the child if
// this process dies first.
func (l *Launcher) Start(cmd *exec.Cmd, cpu int) error {
	result := make(chan error, 1)
	l.work <- func() {
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			result <- fmt.Errorf("pin to CPU %d: %w", cpu, err)
			return
		}
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
		result <- cmd.Start()
	}
	return <-result
}

// Close ends the thread and waits for its goroutine.
func (l *Launcher) Close() {
	close(l.work)
	<-l.done
}

// CPUs returns the CPUs that this process may use, in order.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPU affinity: %w", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// PinSelf moves every thread of this process to the CPU; later threads inherit it.
func PinSelf(cpu int) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		// The thread may have ended.
		if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("pin thread %d to CPU %d: %w", tid, cpu, err)
		}
	}
	return nil
}

// RaiseFiles raises the soft limit of open files of this process, which children inherit, towards
// n, and returns the resulting limit. It also raises the hard limit if permitted.
func RaiseFiles(n uint64) (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= n {
		return limit.Cur, nil
	}
	want := unix.Rlimit{Cur: n, Max: max(n, limit.Max)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &want) == nil {
		return n, nil
	}
	want = unix.Rlimit{Cur: min(n, limit.Max), Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		return 0, fmt.Errorf("raise the limit of open files: %w", err)
	}
	return want.Cur, nil
}

// Tree returns pid and the ids of its descendants, such as the workers of nginx.
func Tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		if err != nil {
			panic("process: bad pattern: " + err.Error())
		}
		for _, list := range lists {
			text, err := os.ReadFile(list)
			if err != nil {
				continue // the thread has ended
			}
			for field := range bytes.FieldsSeq(text) {
				if child, err := strconv.Atoi(string(field)); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}

// CPUTime returns the user and system CPU time of all threads of the processes since they started,
// including threads that have ended. It reads the scheduler's nanosecond clock, not the ticks of
// /proc/PID/stat.
func CPUTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		// The id of another process's CPU clock, as clock_getcpuclockid(3) forms it: the complement
		// of the pid above three bits, of which 2 means CPUCLOCK_SCHED.
		clock := int32(^pid<<3 | 2)
		var used unix.Timespec
		if err := unix.ClockGettime(clock, &used); err != nil {
			return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
		}
		sum += time.Duration(used.Nano())
	}
	return sum, nil
}

// BusyTime returns the time since boot in which the CPUs were not idle: work, interrupts, and time
// that a hypervisor gave to others. Its resolution is the tick of /proc/stat, usually 10 ms.
func BusyTime(cpus []int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var busy uint64
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		digits, found := bytes.CutPrefix(fields[0], []byte("cpu"))
		if cpu, err := strconv.Atoi(string(digits)); !found || err != nil || !slices.Contains(cpus, cpu) {
			continue
		}
		// Fields: user nice system idle iowait irq softirq steal guest guest_nice. Guest time is
		// included in user.
		for i, field := range fields[1:min(9, len(fields))] {
			ticks, err := strconv.ParseUint(string(field), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/stat: %w", err)
			}
			if i != 3 && i != 4 {
				busy += ticks
			}
		}
	}
	// /proc/stat uses hundredths of a second regardless of the kernel's tick.
	return time.Duration(busy) * (time.Second / 100), nil
}

// Switches counts context switches: voluntary ones are waits, involuntary ones preemptions.
type Switches struct {
	Voluntary   uint64 `json:"voluntary"`
	Involuntary uint64 `json:"involuntary"`
}

// ReadSwitches sums the switches of all current threads of the processes.
func ReadSwitches(pids []int) (Switches, error) {
	var sum Switches
	for _, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil {
			panic("process: bad pattern: " + err.Error())
		}
		for _, file := range files {
			fields, err := readFields(file, "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // the thread has ended
			}
			if err != nil {
				return Switches{}, err
			}
			sum.Voluntary += fields[0]
			sum.Involuntary += fields[1]
		}
	}
	return sum, nil
}

// Memory is the memory usage of processes, in bytes. Resident and Peak count a shared page once for
// each process; Proportional divides it among the processes.
type Memory struct {
	Resident     uint64 `json:"resident"`     // RSS now
	Proportional uint64 `json:"proportional"` // PSS now
	Peak         uint64 `json:"peak"`         // highest RSS since the start or ResetPeak
}

// ReadMemory sums the memory of the processes.
func ReadMemory(pids []int) (Memory, error) {
	var sum Memory
	for _, pid := range pids {
		status, err := readFields(fmt.Sprintf("/proc/%d/status", pid), "VmRSS", "VmHWM")
		if err != nil {
			return Memory{}, err
		}
		pss, err := readFields(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
		if err != nil {
			return Memory{}, err
		}
		sum.Resident += status[0] << 10
		sum.Peak += status[1] << 10
		sum.Proportional += pss[0] << 10
	}
	return sum, nil
}

// ResetPeak sets the peak of each process to its current RSS. It returns an error if the kernel
// refuses.
func ResetPeak(pids []int) error {
	for _, pid := range pids {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			return fmt.Errorf("reset the peak of process %d: %w", pid, err)
		}
	}
	return nil
}

// OpenFiles returns the number of open descriptors of the processes.
func OpenFiles(pids []int) (int, error) {
	sum := 0
	for _, pid := range pids {
		// Count the entries: the size of the directory is the count only since Linux 6.2.
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return 0, err
		}
		sum += len(entries)
	}
	return sum, nil
}

// readFields returns the numbers after "name:" in a file of /proc, in the order of names. A missing
// name is an error.
func readFields(file string, names ...string) ([]uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := make([]uint64, len(names))
	found := 0
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		for i, want := range names {
			if string(name) != want {
				continue
			}
			fields := bytes.Fields(rest)
			if len(fields) == 0 {
				return nil, fmt.Errorf("%s: %s has no value", file, want)
			}
			values[i], err = strconv.ParseUint(string(fields[0]), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, want, err)
			}
			found++
		}
	}
	if found != len(names) {
		return nil, fmt.Errorf("%s has %d of the fields %v", file, found, names)
	}
	return values, nil
}
