package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// weftKey is where the process that runs the tests finds the path of Weft.
const weftKey = "WEFT_INTEROP_WEFT"

// kit is peers that are built, or installed, by other people's tools.
type kit struct {
	name     string   // of its sources' folder, and what it is called
	programs []string // that must be installed
	packages string   // where they are from
	build    func(into string) error
}

func kits() []kit {
	return []kit{
		{"java", []string{"java", "javac", "mvn"}, "Debian: default-jdk-headless, maven", runMaven},
		{"node", []string{"node", "npm"}, "Debian: nodejs, npm", runNPM},
		{"go", []string{"go"}, "go.dev", runGo},
		{"grpc", []string{"go"}, "go.dev", runGRPC},
	}
}

// Keys of what prepare found out about a kit: the folder of what was built, or why
// there is none.
func (k kit) dirKey() string     { return "WEFT_INTEROP_" + strings.ToUpper(k.name) }
func (k kit) problemKey() string { return "WEFT_INTEROP_NO_" + strings.ToUpper(k.name) }

// prepare builds what the tests run, and tells the process that runs them by its
// environment. An error is one of ours; what the machine cannot do becomes the
// reason of skips.
func prepare() error {
	tools, err := filepath.Abs(filepath.Join(root, ".tools", "interop"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return err
	}
	if err := dependOnSources(); err != nil {
		return err
	}
	weft := filepath.Join(tools, "weft")
	build := exec.Command("go", "build", "-o", weft, "./cmd/weft")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := os.Setenv(weftKey, weft); err != nil {
		return err
	}
	for _, k := range kits() {
		dir, err := k.get(tools)
		key, value := k.dirKey(), dir
		var missing *missingError
		if errors.As(err, &missing) {
			key, value = k.problemKey(), missing.what
		} else if err != nil {
			return err
		}
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	return nil
}

// dependOnSources looks at Weft's sources, so that the cache of test results
// knows that this test is about them.
func dependOnSources() error {
	for _, dir := range []string{"cmd", "pkg", "internal", "go.mod", "go.sum"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// missingError says what the machine lacks.
type missingError struct{ what string }

func (e *missingError) Error() string { return e.what }

// get returns the folder of what the kit was built into, which is named after a
// hash of its sources: it is built once.
func (k kit) get(tools string) (string, error) {
	sum, err := hashTree(k.name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(tools, k.name+"-"+sum)
	for _, program := range k.programs {
		if _, err := exec.LookPath(program); err != nil {
			return "", &missingError{fmt.Sprintf("no %s peers: %s is not installed (%s)", k.name, program, k.packages)}
		}
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	part, err := os.MkdirTemp(tools, "part-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(part) }() // it was renamed, or is of no use
	if err := k.build(part); err != nil {
		return "", err
	}
	olds, err := filepath.Glob(filepath.Join(tools, k.name+"-*"))
	if err != nil {
		return "", err
	}
	for _, old := range olds {
		if err := os.RemoveAll(old); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(part, dir)
}

// runMaven builds the peers into a folder. What Maven cannot fetch is missing;
// everything else that goes wrong is wrong with the sources.
func runMaven(into string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-q", "-Dstyle.color=never", "-Dinterop.out="+into, "package")
	cmd.Dir = "java"
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	for _, unreachable := range []string{"Could not transfer", "Could not resolve", "could not be resolved", "Could not find artifact", "Cannot access"} {
		if at := bytes.Index(out, []byte(unreachable)); at >= 0 {
			line, _, _ := strings.Cut(string(out[at:]), "\n")
			return &missingError{"no Java peers: Maven Central gives not what they need: " + line}
		}
	}
	if ctx.Err() != nil {
		return &missingError{"no Java peers: Maven did not end in time"}
	}
	return fmt.Errorf("mvn package: %w\n%s", err, out)
}

// hashTree is a hash of every file's path and content below a folder.
func hashTree(dir string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%s %d\n%s", path, len(content), content)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6]), err
}

// runNPM installs what the lock file names, none of whose scripts run. What npm
// cannot fetch is missing.
func runNPM(into string) error {
	if err := os.CopyFS(into, os.DirFS("node")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = into
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &missingError{"no node peers: npm did not end in time"}
	}
	for line := range strings.Lines(string(out)) {
		for _, unreachable := range []string{"ENOTFOUND", "EAI_AGAIN", "ECONN", "ETIMEDOUT", "E404", "E403", "E5"} {
			if strings.Contains(line, unreachable) {
				return &missingError{"no node peers: npm gives not what they need: " + strings.TrimSpace(line)}
			}
		}
	}
	return fmt.Errorf("npm ci: %w\n%s", err, out)
}

// runGo builds the module with dubbo-go. What the module proxy does not give is
// missing.
func runGo(into string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(into, "peer"), ".")
	cmd.Dir = "go"
	cmd.WaitDelay = time.Second
	return buildProblem(ctx, "dubbo-go", cmd)
}

// buildProblem runs "go build" for peers. What the module proxy does not give is
// missing; everything else that goes wrong is wrong with the sources.
func buildProblem(ctx context.Context, peers string, cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &missingError{"no " + peers + " peers: go build did not end in time"}
	}
	for line := range strings.Lines(string(out)) {
		for _, unreachable := range []string{"dial tcp", "lookup disabled", "i/o timeout", "TLS handshake", "reading https://"} {
			if strings.Contains(line, unreachable) {
				return &missingError{"no " + peers + " peers: the module proxy gives not what they need: " + strings.TrimSpace(line)}
			}
		}
	}
	return fmt.Errorf("go build: %w\n%s", err, out)
}

// need skips the test if there are no peers of a kit.
func need(t *testing.T, kit string) {
	t.Helper()
	for _, k := range kits() {
		if problem := os.Getenv(k.problemKey()); k.name == kit && problem != "" {
			t.Skip(problem)
		}
	}
}

// kitDir is the folder of a kit's peers.
func kitDir(name string) string { return os.Getenv(kit{name: name}.dirKey()) }
