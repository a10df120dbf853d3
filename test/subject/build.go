// Package subject owns Weft as the process that tests are about: how it is built from the
// checkout, and what it writes.
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

// Weft builds Weft, of the checkout that root is the folder of, as users do but for more
// flags. path, which is absolute, becomes the program. Without flags it is a link to the
// program that the environment variable WEFT_BUILT names, if that is set: a script that runs
// the tests of many packages builds Weft once.
func Weft(root, path string, flags ...string) error {
	if err := dependOnSources(root); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // of an earlier run
	}
	if built := os.Getenv("WEFT_BUILT"); built != "" && len(flags) == 0 {
		if _, err := os.Stat(built); err != nil { // also for the cache of test results
			return err
		}
		return os.Symlink(built, path)
	}
	return Build(root, "./cmd/weft", path, flags...)
}

// Checked returns what makes Weft the checked one if the tests are, by "go test -race": with
// poisoned buffers and counts of what is outstanding.
func Checked() []string {
	if invariants.Enabled {
		return []string{"-race"}
	}
	return nil
}

// Build builds the package pkg of the module in dir. path, which is absolute, becomes the
// program. The error has what the compiler said.
func Build(dir, pkg, path string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, pkg)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// dependOnSources looks at Weft's sources, so that the cache of test results knows that the
// tests are about them.
func dependOnSources(root string) error {
	for _, dir := range []string{"cmd", "pkg", "internal", "go.mod", "go.sum"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // an editor's file that has gone
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
