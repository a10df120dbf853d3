package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is an address range to which a file is mapped.
type mapping struct{ from, to uintptr }

// dropProgramPages makes the kernel drop the pages of the program's file from the process, and returns
// their size in bytes. Starting touches nearly all pages of the binary, and serving touches few of
// them. The kernel restores a page on access from the page cache, without a disk read, at
// the cost of a minor fault for each 64 kB.
func dropProgramPages() (int64, error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	table, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	found, resident, err := programMappings(table, program)
	for _, m := range found {
		// These mappings are read-only and unmodified, so no data is lost.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			err = errors.Join(err, os.NewSyscallError("madvise", errno))
		}
	}
	return resident, err
}

// programMappings returns, from the text of /proc/PID/smaps (proc(5)), the mappings of a file that
// are private, read-only and unmodified, and the number of resident bytes in them. A linker
// modifies pages when it relocates them.
func programMappings(smaps []byte, file string) (found []mapping, resident int64, err error) {
	var m mapping
	var matches bool
	var rss int64
	for line := range bytes.Lines(smaps) {
		words := strings.Fields(string(line))
		switch {
		case len(words) >= 5 && strings.Contains(words[0], "-"): // address perms offset dev inode path
			matches = len(words) >= 6 && strings.Join(words[5:], " ") == file && (words[1] == "r-xp" || words[1] == "r--p")
			if !matches {
				continue
			}
			if m, err = parseMapping(words[0]); err != nil {
				return nil, 0, err
			}
		case matches && len(words) >= 2 && words[0] == "Rss:":
			kb, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return nil, 0, fmt.Errorf("smaps: %w", err)
			}
			rss = kb << 10
		case matches && len(words) >= 2 && words[0] == "Anonymous:" && words[1] == "0":
			found = append(found, m)
			resident += rss
		}
	}
	return found, resident, nil
}

// parseMapping parses "from-to", in hexadecimal.
func parseMapping(text string) (mapping, error) {
	from, to, _ := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(from, 16, 64)
	b, err2 := strconv.ParseUint(to, 16, 64)
	if err := errors.Join(err1, err2); err != nil || a >= b {
		return mapping{}, fmt.Errorf("smaps: %q is not a valid address range", text)
	}
	return mapping{uintptr(a), uintptr(b)}, nil
}
