package resource

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Memory returns the resident memory of the process, in bytes.
func Memory(system fs.FS) (int64, error) {
	const name = "proc/self/statm" // proc(5): size, resident, …, in pages
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s: malformed content %q", name, data)
	}
	pages, err := parseNumber(name, fields[1])
	return pages * int64(os.Getpagesize()), err
}

// MachineMemory returns the total memory of the machine, in bytes.
func MachineMemory(system fs.FS) (int64, error) {
	const name = "proc/meminfo"
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, err
	}
	fields := lineFields(data, "MemTotal")
	if len(fields) < 1 {
		return 0, fmt.Errorf("%s has no MemTotal", name)
	}
	kilobytes, err := parseNumber(name, fields[0])
	return kilobytes << 10, err
}

// Descriptors returns the number of open file descriptors of the process.
func Descriptors(system fs.FS) (int64, error) {
	const name = "proc/self/fd"
	// Since Linux 6.2 the size of the directory is the number of descriptors; before, it is 0.
	if info, err := fs.Stat(system, name); err == nil && info.Size() > 0 {
		return info.Size(), nil
	}
	entries, err := fs.ReadDir(system, name)
	return int64(len(entries)), err
}

// DescriptorLimit returns the maximum number of open file descriptors of the process: the soft
// limit of RLIMIT_NOFILE. It returns ErrNoLimit if there is none.
func DescriptorLimit(system fs.FS) (int64, error) {
	const name, row = "proc/self/limits", "Max open files"
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, err
	}
	fields := lineFields(data, row)
	if len(fields) < 1 {
		return 0, fmt.Errorf("%s has no %q", name, row)
	}
	if fields[0] == "unlimited" {
		return 0, ErrNoLimit
	}
	return parseNumber(name, fields[0])
}

// processTime returns the processor time that the process has used, in hundredths of a second
// (Linux's USER_HZ).
func processTime(system fs.FS) (int64, error) {
	const name = "proc/self/stat" // proc(5): pid (comm) state …; utime and stime are fields 14 and 15
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const userIndex, kernelIndex = 14 - 3, 15 - 3
	if len(fields) <= kernelIndex {
		return 0, fmt.Errorf("%s: malformed content %q", name, data)
	}
	return sumNumbers(name, fields[userIndex:kernelIndex+1])
}

// machineTime returns the busy and the total time of the machine's processors, in hundredths of a
// second.
func machineTime(system fs.FS) (busy, total int64, err error) {
	const name = "proc/stat" // user nice system idle iowait irq softirq steal; user includes guest time
	const idleIndex, fieldCount = 3, 8
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, 0, err
	}
	fields := lineFields(data, "cpu")
	if len(fields) < idleIndex+2 {
		return 0, 0, fmt.Errorf("%s has no line with the totals of all processors", name)
	}
	fields = fields[:min(len(fields), fieldCount)]
	if total, err = sumNumbers(name, fields); err != nil {
		return 0, 0, err
	}
	busy, err = sumNumbers(name, slices.Concat(fields[:idleIndex], fields[idleIndex+2:]))
	return busy, total, err
}

func sumNumbers(name string, fields []string) (total int64, err error) {
	for _, text := range fields {
		n, err := parseNumber(name, text)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
