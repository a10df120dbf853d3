package resource

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"testing"
	"testing/fstest"
	"time"
)

// fileTree returns the file system of a machine with the given files.
func fileTree(files map[string]string) fs.FS {
	system := fstest.MapFS{}
	for name, text := range files {
		system[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return system
}

// machines returns test machines by description.
func machines() map[string]fs.FS {
	return map[string]fs.FS{
		"v2, own limits": fileTree(map[string]string{
			"proc/self/cgroup":                              "0::/system.slice/weft.service\n",
			"sys/fs/cgroup/cgroup.controllers":              "cpu memory\n",
			"sys/fs/cgroup/system.slice/cgroup.controllers": "cpu memory\n",
			"sys/fs/cgroup/system.slice/memory.max":         "max\n",
			"sys/fs/cgroup/system.slice/cpu.max":            "max 100000\n",

			"sys/fs/cgroup/system.slice/weft.service/cgroup.controllers": "cpu memory\n",
			"sys/fs/cgroup/system.slice/weft.service/memory.max":         "67108864\n",
			"sys/fs/cgroup/system.slice/weft.service/memory.current":     "50331648\n",
			"sys/fs/cgroup/system.slice/weft.service/memory.stat":        "anon 1\nfile 5\ninactive_file 16777216\nactive_file 2\n",
			"sys/fs/cgroup/system.slice/weft.service/cpu.max":            "150000 100000\n",
			"sys/fs/cgroup/system.slice/weft.service/cpu.stat":           "usage_usec 2500000\nuser_usec 2000000\n",
		}),
		"v2, lower limit of the parent": fileTree(map[string]string{
			"proc/self/cgroup":                         "0::/pod/app\n",
			"sys/fs/cgroup/cgroup.controllers":         "cpu memory\n",
			"sys/fs/cgroup/pod/cgroup.controllers":     "cpu memory\n",
			"sys/fs/cgroup/pod/memory.max":             "33554432\n",
			"sys/fs/cgroup/pod/cpu.max":                "50000 100000\n",
			"sys/fs/cgroup/pod/app/cgroup.controllers": "cpu memory\n",
			"sys/fs/cgroup/pod/app/memory.max":         "67108864\n",
			"sys/fs/cgroup/pod/app/memory.current":     "1048576\n",
			"sys/fs/cgroup/pod/app/memory.stat":        "anon 1\n",
			"sys/fs/cgroup/pod/app/cpu.max":            "max 100000\n",
			"sys/fs/cgroup/pod/app/cpu.stat":           "usage_usec 1000000\n",
		}),
		"v2, no own controllers": fileTree(map[string]string{
			"proc/self/cgroup":                           "0::/pod/plain\n",
			"sys/fs/cgroup/cgroup.controllers":           "cpu memory\n",
			"sys/fs/cgroup/pod/cgroup.controllers":       "cpu memory\n",
			"sys/fs/cgroup/pod/memory.max":               "33554432\n",
			"sys/fs/cgroup/pod/memory.current":           "2097152\n",
			"sys/fs/cgroup/pod/memory.stat":              "anon 1\n",
			"sys/fs/cgroup/pod/cpu.max":                  "50000 100000\n",
			"sys/fs/cgroup/pod/cpu.stat":                 "usage_usec 2000000\n",
			"sys/fs/cgroup/pod/plain/cgroup.controllers": "",
			"sys/fs/cgroup/pod/plain/cpu.stat":           "usage_usec 1000000\n",
		}),
		"v2, group mounted as the root": fileTree(map[string]string{
			"proc/self/cgroup":                 "0::/docker/0123456789abcdef\n",
			"sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
			"sys/fs/cgroup/memory.max":         "134217728\n",
			"sys/fs/cgroup/memory.current":     "4096\n",
			"sys/fs/cgroup/memory.stat":        "inactive_file 8192\n",
			"sys/fs/cgroup/cpu.max":            "200000 100000\n",
			"sys/fs/cgroup/cpu.stat":           "usage_usec 0\n",
		}),
		"v2, no limits": fileTree(map[string]string{
			"proc/self/cgroup":                     "0::/app\n",
			"sys/fs/cgroup/cgroup.controllers":     "cpu memory\n",
			"sys/fs/cgroup/app/cgroup.controllers": "cpu memory\n",
			"sys/fs/cgroup/app/memory.max":         "max\n",
			"sys/fs/cgroup/app/memory.current":     "4096\n",
			"sys/fs/cgroup/app/memory.stat":        "",
			"sys/fs/cgroup/app/cpu.max":            "max 100000\n",
			"sys/fs/cgroup/app/cpu.stat":           "usage_usec 7\n",
		}),
		"v1": fileTree(map[string]string{
			"proc/self/cgroup": "12:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n0::/docker/ab\n",
			"sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes":  "100663296\n",
			"sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes":  "67108864\n",
			"sys/fs/cgroup/memory/docker/ab/memory.stat":            "cache 1\ntotal_inactive_file 33554432\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":            "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":            "1\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us":  "25000\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/ab/cpuacct.usage":     "3000000000\n",
		}),
		"v1, no limits, separate hierarchies": fileTree(map[string]string{
			"proc/self/cgroup":                           "3:cpuacct:/\n2:cpu:/\n1:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "4096\n",
			"sys/fs/cgroup/memory/memory.stat":           "total_inactive_file 0\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":        "100000\n",
			"sys/fs/cgroup/cpuacct/cpuacct.usage":        "1000\n",
		}),
	}
}

func TestCgroups(t *testing.T) {
	const none = -1 // no limit
	for name, want := range map[string]struct {
		used, limit int64
		processors  float64
		time        time.Duration
	}{
		"v2, own limits":                      {32 << 20, 64 << 20, 1.5, 2500 * time.Millisecond},
		"v2, lower limit of the parent":       {1 << 20, 32 << 20, 0.5, time.Second},
		"v2, no own controllers":              {2 << 20, 32 << 20, 0.5, time.Second},
		"v2, group mounted as the root":       {0, 128 << 20, 2, 0},
		"v2, no limits":                       {4096, none, none, 7 * time.Microsecond},
		"v1":                                  {32 << 20, 96 << 20, 0.25, 3 * time.Second},
		"v1, no limits, separate hierarchies": {4096, none, none, time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			system := machines()[name]
			memory, err := MemoryCgroup(system)
			if err != nil {
				t.Fatal(err)
			}
			cpu, err := CPUCgroup(system)
			if err != nil {
				t.Fatal(err)
			}
			if used, err := memory.Memory(); used != want.used || err != nil {
				t.Errorf("Memory = %d, %v; want %d", used, err, want.used)
			}
			limit, err := memory.MemoryLimit()
			if errors.Is(err, ErrNoLimit) {
				limit, err = none, nil
			}
			if limit != want.limit || err != nil {
				t.Errorf("MemoryLimit = %d, %v; want %d", limit, err, want.limit)
			}
			processors, err := cpu.Processors()
			if errors.Is(err, ErrNoLimit) {
				processors, err = none, nil
			}
			if processors != want.processors || err != nil {
				t.Errorf("Processors = %v, %v; want %v", processors, err, want.processors)
			}
			if cpuTime, err := cpu.time(); cpuTime != want.time || err != nil {
				t.Errorf("time = %v, %v; want %v", cpuTime, err, want.time)
			}
		})
	}
}

func TestNoCgroup(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no file":            {},
		"no controller":      {"proc/self/cgroup": "2:cpuset:/\n"},
		"no mount":           {"proc/self/cgroup": "0::/a\n"},
		"v1 without a mount": {"proc/self/cgroup": "4:memory:/a\n"},
		"root of v2, without memory accounting": {
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory\n", "sys/fs/cgroup/cpu.stat": "usage_usec 1\n",
		},
	} {
		if g, err := MemoryCgroup(fileTree(files)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v, want ErrNotExist", name, g, err)
		}
	}
	if _, err := MemoryCgroup(fileTree(map[string]string{"proc/self/cgroup": "nonsense\n"})); err == nil {
		t.Error("MemoryCgroup accepts a line without colons")
	}
}

func TestReadErrors(t *testing.T) {
	malformed := map[string]string{
		"proc/self/statm": "12\n", "proc/meminfo": "MemFree: 1 kB\n", "proc/self/limits": "Max cpu time unlimited\n",
		"proc/self/stat": "1 (weft) S 1\n", "proc/stat": "intr 5\n",
		"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
		"sys/fs/cgroup/memory.max": "lots\n", "sys/fs/cgroup/cpu.max": "100000\n", "sys/fs/cgroup/cpu.stat": "user_usec 1\n",
	}
	for name, system := range map[string]fs.FS{"absent": fileTree(nil), "malformed": fileTree(malformed)} {
		group := &Cgroup{system: system, v2: true, dirs: []string{"sys/fs/cgroup"}}
		for function, read := range map[string]func() error{
			"Memory":          func() error { _, err := Memory(system); return err },
			"MachineMemory":   func() error { _, err := MachineMemory(system); return err },
			"Descriptors":     func() error { _, err := Descriptors(system); return err },
			"DescriptorLimit": func() error { _, err := DescriptorLimit(system); return err },
			"processTime":     func() error { _, err := processTime(system); return err },
			"machineTime":     func() error { _, _, err := machineTime(system); return err },
			"group's memory":  func() error { _, err := group.Memory(); return err },
			"group's time":    func() error { _, err := group.time(); return err },
			"MemoryLimit":     func() error { _, err := group.MemoryLimit(); return err },
			"Processors":      func() error { _, err := group.Processors(); return err },
		} {
			if err := read(); err == nil {
				t.Errorf("%s, %s: no error", name, function)
			}
		}
	}
}

func TestProcess(t *testing.T) {
	system := fileTree(map[string]string{
		"proc/self/statm": "1000 250 100 1 0 50 0\n",
		"proc/meminfo":    "MemTotal:        2048 kB\nMemFree: 1 kB\n",
		"proc/self/fd/0":  "", "proc/self/fd/1": "", "proc/self/fd/17": "",
		"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 4096                 files\n",
		"proc/self/stat":   "7 (we ft) (x) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 5 0 100 1 2\n",
		"proc/stat":        "cpu  100 20 30 800 40 5 5 0 7 0\ncpu0 1 2 3 4\nintr 5\n",
	})
	if n, err := Memory(system); n != 250*int64(os.Getpagesize()) || err != nil {
		t.Errorf("Memory = %d, %v; want %d", n, err, 250*int64(os.Getpagesize()))
	}
	if n, err := MachineMemory(system); n != 2<<20 || err != nil {
		t.Errorf("MachineMemory = %d, %v; want %d", n, err, 2<<20)
	}
	if n, err := Descriptors(system); n != 3 || err != nil {
		t.Errorf("Descriptors = %d, %v; want 3", n, err)
	}
	if n, err := DescriptorLimit(system); n != 1024 || err != nil {
		t.Errorf("DescriptorLimit = %d, %v; want 1024", n, err)
	}
	if n, err := processTime(system); n != 200 || err != nil {
		t.Errorf("processTime = %d, %v, want 200", n, err)
	}
	if busy, total, err := machineTime(system); busy != 160 || total != 1000 || err != nil {
		t.Errorf("machineTime = %d, %d, %v; want 160, 1000", busy, total, err)
	}
	unlimited := fileTree(map[string]string{"proc/self/limits": "Max open files            unlimited            unlimited            files\n"})
	if _, err := DescriptorLimit(unlimited); !errors.Is(err, ErrNoLimit) {
		t.Errorf("DescriptorLimit without a limit: %v, want ErrNoLimit", err)
	}
}

// TestThisMachine reads the real files and verifies that the values are plausible.
func TestThisMachine(t *testing.T) {
	system := os.DirFS("/")
	memory, err := Memory(system)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := MachineMemory(system)
	if err != nil || memory < 1<<20 || memory >= machine {
		t.Errorf("Memory = %d of %d bytes, %v; want at least 1 MiB and less than the machine has", memory, machine, err)
	}
	openFiles, err := Descriptors(system)
	if err != nil || openFiles < 3 {
		t.Errorf("Descriptors = %d, %v; want at least 3", openFiles, err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if withFile, err := Descriptors(system); withFile != openFiles+1 || err != nil {
		t.Errorf("Descriptors with one more file = %d, %v; before %d; want one more", withFile, err, openFiles)
	}
	if limit, err := DescriptorLimit(system); err != nil || limit < openFiles {
		t.Errorf("DescriptorLimit = %d, %v; want at least %d", limit, err, openFiles)
	}
	if n, err := processTime(system); err != nil || n < 0 {
		t.Errorf("processTime = %d, %v; want at least 0", n, err)
	}
	if busy, total, err := machineTime(system); err != nil || busy <= 0 || busy >= total {
		t.Errorf("machineTime = %d, %d, %v; want busy above 0 and below total", busy, total, err)
	}
	if heap := Heap(); heap <= 0 || heap > machine {
		t.Errorf("Heap = %d, want above 0 and at most the memory of the machine, %d", heap, machine)
	}
}

func TestHeap(t *testing.T) {
	before := Heap()
	b := make([]byte, 64<<20)
	for i := range b {
		b[i] = 1
	}
	if grown := Heap() - before; grown < 60<<20 || grown > 100<<20 {
		t.Errorf("Heap grows by %d bytes for 64 MiB, want 60 to 100 MiB", grown)
	}
	if b[7] != 1 {
		t.Error("the buffer was not written")
	}
}

func TestCPUIsSmoothed(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	used, available := 0.0, 0.0
	c := &CPU{measure: func(time.Time) (float64, float64, error) { return used, available, nil }}
	read := func() float64 {
		fraction, err := c.Read(now)
		if err != nil {
			t.Fatal(err)
		}
		return fraction
	}
	advance := func(seconds int, fraction float64) (last float64) {
		for range seconds {
			now = now.Add(time.Second)
			available += 4
			used += 4 * fraction
			last = read()
		}
		return last
	}
	if got := read(); got != 0 {
		t.Errorf("first Read = %v, want 0", got)
	}
	if got := advance(5, 1); math.Abs(got-(1-1/math.E)) > 0.001 {
		t.Errorf("after 5 s of full use: %v, want 1-1/e", got)
	}
	if got := advance(30, 1); got < 0.99 || got > 1 {
		t.Errorf("after 35 s of full use: %v, want about 1", got)
	}
	if unchanged := read(); unchanged < 0.99 {
		t.Errorf("Read at an unchanged time = %v, want the previous value", unchanged)
	}
	if got := advance(30, 0.25); math.Abs(got-0.25) > 0.01 {
		t.Errorf("after 30 s at a quarter: %v, want 0.25", got)
	}
	used += 1000 // the processor clock is ahead
	if got := advance(1, 0); got > 1 {
		t.Errorf("Read = %v, want at most 1", got)
	}
}

func TestCPUQuota(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	files := fstest.MapFS{
		"proc/self/cgroup":                 {Data: []byte("0::/\n")},
		"proc/self/stat":                   {Data: []byte("7 (weft) S 1 7 7 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 5 0 100 1 2\n")},
		"proc/stat":                        {Data: []byte("cpu  0 0 0 0 0 0 0 0 0 0\n")},
		"sys/fs/cgroup/cgroup.controllers": {Data: []byte("cpu\n")},
		"sys/fs/cgroup/cpu.max":            {Data: []byte("50000 100000\n")},
		"sys/fs/cgroup/cpu.stat":           {Data: []byte("usage_usec 0\n")},
	}
	group, err := CgroupCPU(files, 8)
	if err != nil {
		t.Fatal(err)
	}
	cpus := map[string]*CPU{"group": group, "process": ProcessCPU(files, 8), "machine": MachineCPU(files)}
	for name, c := range cpus {
		if fraction, err := c.Read(start); fraction != 0 || err != nil {
			t.Errorf("%s: first Read = %v, %v; want 0", name, fraction, err)
		}
	}
	// In 100 s with a quota of half a processor, the group used 50 s of processor time and the
	// process 25 s. The machine's eight processors were busy for 80 of 800 s.
	files["sys/fs/cgroup/cpu.stat"].Data = []byte("usage_usec 50000000\n")
	files["proc/self/stat"].Data = []byte("7 (weft) S 1 7 7 0 -1 4194304 100 0 0 0 2000 500 0 0 20 0 5 0 100 1 2\n")
	files["proc/stat"].Data = []byte("cpu  5000 0 3000 70000 2000 0 0 0 0 0\n")
	for name, want := range map[string]float64{"group": 1, "process": 0.5, "machine": 0.1} {
		fraction, err := cpus[name].Read(start.Add(100 * time.Second))
		if math.Abs(fraction-want) > 0.001 || err != nil {
			t.Errorf("%s: %v, %v, want %v", name, fraction, err, want)
		}
	}
	if _, err := CgroupCPU(fileTree(nil), 8); err == nil {
		t.Error("CgroupCPU succeeds on a machine without control groups")
	}
}
