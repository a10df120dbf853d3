package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Check returns the error that Open would return for path, and creates nothing. Open
// creates the file and its folders: it is enough that the nearest folder that exists can
// be written.
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

// CheckFile returns an error if a file cannot be created at path, in folders that may be
// missing, or if the file that is there cannot be written.
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
	for folder := filepath.Dir(path); ; folder = filepath.Dir(folder) {
		stat, err := os.Stat(folder)
		switch {
		case err == nil && !stat.IsDir():
			return &fs.PathError{Op: "mkdir", Path: folder, Err: syscall.ENOTDIR}
		case err == nil:
			return access(folder)
		case !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder):
			return err
		}
	}
}

// writable is W_OK of access(2).
const writable = 2

func access(path string) error {
	if err := syscall.Access(path, writable); err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}
