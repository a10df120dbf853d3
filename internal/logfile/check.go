package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Check returns an error if the file, or its nearest existing directory, is not writable, so that
// Open would fail. It creates nothing.
func Check(path string) error {
	switch path {
	case "stdout", "/dev/stdout", "stderr", "/dev/stderr":
		return nil
	}
	if err := CheckFile(path); err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	return nil
}

// CheckFile returns an error if the existing file at path is not writable, or if a file could not
// be created there together with its missing directories.
func CheckFile(path string) error {
	stat, err := os.Stat(path)
	switch {
	case err == nil && stat.IsDir():
		return &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case err == nil:
		return access(path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		stat, err := os.Stat(dir)
		switch {
		case err == nil && !stat.IsDir():
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		case err == nil:
			return access(dir)
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return err
		}
	}
}

// accessWrite is W_OK of access(2).
const accessWrite = 2

func access(path string) error {
	if err := syscall.Access(path, accessWrite); err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}
