// Package resource reads the memory, descriptor and processor usage and limits of the process, its
// control group and the machine from /proc and /sys/fs/cgroup.
//
//	Memory, Descriptors    of the process                  process.go
//	Cgroup                 its control group, v1 or v2     cgroup.go
//	Heap                   memory of the Go runtime        heap.go
//	CPU                    processor usage                 cpu.go
//
// All functions but Heap read an fs.FS whose root is the system's root, so that tests can describe
// a machine by files. A read costs system calls and allocations, so do not read on the request
// path.
package resource

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// ErrNoLimit reports that the resource has no limit.
var ErrNoLimit = errors.New("resource: there is no limit")

// readNumber reads a file that holds one number. It returns ErrNoLimit if the file holds "max".
func readNumber(system fs.FS, name string) (int64, error) {
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, err
	}
	return parseNumber(name, string(bytes.TrimSpace(data)))
}

func parseNumber(name, text string) (int64, error) {
	if text == "max" {
		return 0, ErrNoLimit
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// lineFields returns the words after name at the beginning of a line, or nil if there is no such
// line.
func lineFields(data []byte, name string) []string {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok && len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t' || rest[0] == ':') {
			var fields []string
			for field := range bytes.FieldsSeq(bytes.TrimPrefix(rest, []byte(":"))) {
				fields = append(fields, string(field))
			}
			return fields
		}
	}
	return nil
}
