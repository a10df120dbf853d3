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

// dropProgramPages makes the kernel drop the pages of the program's file from the process, and
// returns their size in bytes. The start uses nearly all pages of the binary; serving uses few of
// them. On access, the kernel maps a page again. If the page is still in the page cache, this costs
// a minor fault for each 64 kB, and no disk read.
func dropProgramPages() (int64, error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	table, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	mappings, resident, err := programMappings(table, program)
	for _, m := range mappings {
		// These mappings are read-only and unmodified, so no data is lost.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			err = errors.Join(err, os.NewSyscallError("madvise", errno))
		}
	}
	return resident, err
}

// programMappings parses the text of /proc/PID/smaps (proc(5)). It returns the mappings of file
// that are private, read-only and unmodified, and the number of resident bytes in them. A linker
// modifies pages when it relocates them.
func programMappings(smaps []byte, file string) (mappings []mapping, resident int64, err error) {
	var m mapping
	var matches bool
	var rss int64
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"): // address perms offset dev inode path
			matches = len(fields) >= 6 && strings.Join(fields[5:], " ") == file && (fields[1] == "r-xp" || fields[1] == "r--p")
			if !matches {
				continue
			}
			if m, err = parseMapping(fields[0]); err != nil {
				return nil, 0, err
			}
		case matches && len(fields) >= 2 && fields[0] == "Rss:":
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return nil, 0, fmt.Errorf("smaps: %w", err)
			}
			rss = kb << 10
		case matches && len(fields) >= 2 && fields[0] == "Anonymous:" && fields[1] == "0":
			mappings = append(mappings, m)
			resident += rss
		}
	}
	return mappings, resident, nil
}

// parseMapping parses "from-to", in hexadecimal.
func parseMapping(text string) (mapping, error) {
	from, to, _ := strings.Cut(text, "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if err := errors.Join(err1, err2); err != nil || start >= end {
		return mapping{}, fmt.Errorf("smaps: %q is not a valid address range", text)
	}
	return mapping{uintptr(start), uintptr(end)}, nil
}
