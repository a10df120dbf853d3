// Package subject builds the Weft process that tests run, and collects its output.
package subject

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/weft-proxy/weft/internal/invariants"
)

// Weft builds Weft from the checkout in root as users do, with additional flags. path is the
// absolute path of the program. If the environment variable WEFT_BUILT is set and there are no
// flags, path becomes a link to the program that WEFT_BUILT names. So a script that runs the tests
// of many packages builds Weft once.
func Weft(root, path string, flags ...string) error {
	if err := dependOnSources(root); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // path still has the program of an earlier run
	}
	if built := os.Getenv("WEFT_BUILT"); built != "" && len(flags) == 0 {
		if _, err := os.Stat(built); err != nil { // also lets the cache of test results depend on the file
			return err
		}
		return os.Symlink(built, path)
	}
	return Build(root, "./cmd/weft", path, flags...)
}

// RaceFlags returns the flags that build Weft with the race detector, poisoned buffers and leak
// counts if the tests run with "go test -race". Otherwise it returns nil.
func RaceFlags() []string {
	if invariants.Enabled {
		return []string{"-race"}
	}
	return nil
}

// Build builds the package pkg of the module in dir. path is the absolute path of the program. The
// error contains the compiler's output.
func Build(dir, pkg, path string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, pkg)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// dependOnSources reads the metadata of Weft's sources, so that the cache of test results depends
// on them.
func dependOnSources(root string) error {
	for _, dir := range []string{"cmd", "pkg", "internal", "go.mod", "go.sum"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a temporary file of an editor
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
