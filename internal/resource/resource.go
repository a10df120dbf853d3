// Package resource reads what the process, its control group and its machine use of
// memory, descriptors and processors, and what they may use, out of /proc and
// /sys/fs/cgroup.
//
//	Memory, Descriptors    of the process                  process.go
//	Group                  its control group, v1 or v2     group.go
//	Heap                   what Go's runtime manages       heap.go
//	CPU                    time of processors              cpu.go
//
// Everything is read from an fs.FS whose root is that of the system, so that trees of
// files stand for machines in tests. A read costs some system calls and a little
// garbage; none is for the way of a request.
package resource

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// ErrNoLimit says that what was asked for has no limit.
var ErrNoLimit = errors.New("resource: there is no limit")

// number reads a file that holds one number; ErrNoLimit if it holds "max".
func number(system fs.FS, name string) (int64, error) {
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, err
	}
	return parse(name, string(bytes.TrimSpace(data)))
}

func parse(name, text string) (int64, error) {
	if text == "max" {
		return 0, ErrNoLimit
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// field returns the words behind a name at the beginning of a line; nil if there is
// no such line.
func field(data []byte, name string) []string {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok && len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t' || rest[0] == ':') {
			var words []string
			for word := range bytes.FieldsSeq(bytes.TrimPrefix(rest, []byte(":"))) {
				words = append(words, string(word))
			}
			return words
		}
	}
	return nil
}
