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

// weftEnv is the environment variable with the path of Weft.
const weftEnv = "WEFT_INTEROP_WEFT"

// dirEnv and problemEnv return environment variables for a kit: the directory of its build, or the
// reason why there is no build.
func dirEnv(kit string) string     { return "WEFT_INTEROP_" + strings.ToUpper(kit) }
func problemEnv(kit string) string { return "WEFT_INTEROP_NO_" + strings.ToUpper(kit) }

// prepare builds the programs that the tests run, and sets environment variables for the process
// that runs the tests. It returns an error for defects of the sources. If the machine lacks a tool,
// prepare sets problemEnv to the reason, and requireKit skips the tests.
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
	if err := os.Setenv(weftEnv, weft); err != nil {
		return err
	}
	for _, k := range kit.All() {
		value, err := k.Get(".", tools)
		key := dirEnv(k.Name)
		var missing *kit.MissingError
		if errors.As(err, &missing) {
			key, value = problemEnv(k.Name), missing.Reason
		} else if err != nil {
			return err
		}
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	return nil
}

// requireKit skips the test if the peers of a kit are missing.
func requireKit(t *testing.T, kit string) {
	t.Helper()
	if problem := os.Getenv(problemEnv(kit)); problem != "" {
		t.Skip(problem)
	}
}

// kitDir returns the directory of a kit's peers.
func kitDir(kit string) string { return os.Getenv(dirEnv(kit)) }
