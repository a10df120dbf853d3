package interop

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/interop/kit"
	"github.com/weft-proxy/weft/test/subject"
)

// weftKey is the environment variable with the path of Weft.
const weftKey = "WEFT_INTEROP_WEFT"

// dirKey and problemKey return environment variables for a kit: the directory of what prepare
// built, or why there is none.
func dirKey(kit string) string     { return "WEFT_INTEROP_" + strings.ToUpper(kit) }
func problemKey(kit string) string { return "WEFT_INTEROP_NO_" + strings.ToUpper(kit) }

// prepare builds what the tests run, and sets environment variables for the process that runs them.
// It returns an error for defects of the sources. What the machine lacks becomes the reason of
// skips.
func prepare() error {
	tools, err := filepath.Abs(filepath.Join(root, ".tools", "interop"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return err
	}
	weft := filepath.Join(tools, "weft")
	if err := subject.Weft(root, weft); err != nil {
		return err
	}
	if err := os.Setenv(weftKey, weft); err != nil {
		return err
	}
	for _, k := range kit.All() {
		value, err := k.Get(".", tools)
		key := dirKey(k.Name)
		var missing *kit.MissingError
		if errors.As(err, &missing) {
			key, value = problemKey(k.Name), missing.What
		} else if err != nil {
			return err
		}
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	return nil
}

// need skips the test if the peers of a kit are missing.
func need(t *testing.T, kit string) {
	t.Helper()
	if problem := os.Getenv(problemKey(kit)); problem != "" {
		t.Skip(problem)
	}
}

// kitDir returns the directory of a kit's peers.
func kitDir(kit string) string { return os.Getenv(dirKey(kit)) }
