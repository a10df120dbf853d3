package process

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startCat starts a cat process on the CPU that exits when its input is closed.
func startCat(t *testing.T, cpu int) *exec.Cmd {
	t.Helper()
	launcher := NewLauncher()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := launcher.Start(cmd, cpu); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("cat exits with %v, want nil", err)
		}
		launcher.Close()
	})
	return cmd
}

func TestCPUAffinity(t *testing.T) {
	cpus, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := cpus[len(cpus)-1]
	cmd := startCat(t, last)
	status, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	if want := "Cpus_allowed_list:\t" + strconv.Itoa(last) + "\n"; !strings.Contains(string(status), want) {
		t.Errorf("status lacks %q:\n%s", want, status)
	}
}

func TestCPUTimeGrowsWithWork(t *testing.T) {
	self := []int{os.Getpid()}
	before, err := CPUTime(self)
	if err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
		io.Discard.Write(nil)
	}
	after, err := CPUTime(self)
	if err != nil {
		t.Fatal(err)
	}
	if used := after - before; used < time.Millisecond || used > 10*time.Second {
		t.Errorf("CPUTime grows by %v over 20 ms of work, want 1ms to 10s", used)
	}
}

func TestTree(t *testing.T) {
	cpus, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := startCat(t, cpus[0])
	if got := Tree(os.Getpid()); !slices.Contains(got, cmd.Process.Pid) {
		t.Errorf("Tree(%d) = %v, want its child %d among them", os.Getpid(), got, cmd.Process.Pid)
	}
}

func TestReadStatistics(t *testing.T) {
	self := []int{os.Getpid()}
	memory, err := ReadMemory(self)
	if err != nil {
		t.Fatal(err)
	}
	// RSS is counted per CPU and may lag behind PSS, which is not.
	if memory.Resident == 0 || memory.Peak < memory.Resident || memory.Proportional > 2*memory.Peak {
		t.Errorf("ReadMemory = %+v, want resident memory, at most the peak", memory)
	}
	switches, err := ReadSwitches(self)
	if err != nil {
		t.Fatal(err)
	}
	if switches.Voluntary == 0 {
		t.Errorf("ReadSwitches = %+v, want voluntary switches", switches)
	}
	before, err := OpenFiles(self)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if after, err := OpenFiles(self); err != nil || after != before+1 {
		t.Errorf("OpenFiles = %d, %v after one more open, want %d", after, err, before+1)
	}
}

func TestExitedProcessIsAnError(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	exited := []int{cmd.Process.Pid}
	if _, err := CPUTime(exited); err == nil {
		t.Error("CPUTime of an exited process: no error")
	}
	if _, err := ReadMemory(exited); err == nil {
		t.Error("ReadMemory of an exited process: no error")
	}
}
