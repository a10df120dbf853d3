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

// What prepare has built, for the process that runs the tests: paths, and the
// reason why there are no Java peers.
const (
	weftKey    = "WEFT_INTEROP_WEFT"
	javaKey    = "WEFT_INTEROP_JAVA"
	problemKey = "WEFT_INTEROP_NO_JAVA"
)

// prepare builds what the tests run. An error is one of ours; what the machine
// cannot do becomes the reason of skips.
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
	java, err := buildJava(tools)
	var missing *missingError
	if errors.As(err, &missing) {
		return os.Setenv(problemKey, missing.what)
	}
	if err != nil {
		return err
	}
	return os.Setenv(javaKey, java)
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

// buildJava returns the folder of the built Java peers, which is named after a
// hash of their sources: it is built once.
func buildJava(tools string) (string, error) {
	sum, err := hashTree("java")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(tools, "java-"+sum)
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", &missingError{"no Java peers: " + program + " is not installed (Debian: default-jdk-headless, maven)"}
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
	if err := runMaven(part); err != nil {
		return "", err
	}
	olds, err := filepath.Glob(filepath.Join(tools, "java-*"))
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

// needJava skips the test if there are no Java peers.
func needJava(t *testing.T) {
	t.Helper()
	if problem := os.Getenv(problemKey); problem != "" {
		t.Skip(problem)
	}
}
