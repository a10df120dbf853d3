// Package kit builds the peers of test/interop, test/dubbo and test/nacos with the tools of their
// languages. The peers run third-party libraries. The name of a build's directory contains a hash
// of the sources, so tests with the same sources share a build.
package kit

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
	"syscall"
	"time"
)

// Kit is a set of peers that third-party tools build or install.
type Kit struct {
	Name     string   // of the directory of its sources
	programs []string // that must be installed
	packages string   // packages that contain the programs
	build    func(from, into string) error
}

// Java returns the peers in Java. A build has a directory for each module, with the jar of the
// module and, in lib, its dependencies.
func Java() Kit {
	return Kit{"java", []string{"java", "javac", "mvn"}, "Debian: default-jdk-headless, maven", runMaven}
}

// All returns all kits.
func All() []Kit {
	return []Kit{
		Java(),
		{"node", []string{"node", "npm"}, "Debian: nodejs, npm", runNPM},
		{"go", []string{"go"}, "go.dev", runGo},
		{"grpc", []string{"go"}, "go.dev", runGRPC},
	}
}

// MissingError reports that a kit cannot be built because a tool or a download is missing, or
// because the build timed out. The tests that need the kit are skipped.
type MissingError struct{ Reason string }

// Error returns the reason.
func (e *MissingError) Error() string { return e.Reason }

// Get builds the kit if necessary and returns the directory of the build. This directory is in
// tools, which must exist. sources is the parent of the directory Name: test/interop or test/nacos.
// Concurrent calls wait for each other. A *MissingError is not a defect of the sources.
func (k Kit) Get(sources, tools string) (string, error) {
	src := filepath.Join(sources, k.Name)
	sum, err := hashTree(src)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(tools, k.Name+"-"+sum)
	for _, program := range k.programs {
		if _, err := exec.LookPath(program); err != nil {
			return "", &MissingError{fmt.Sprintf("no %s peers: %s is not installed (%s)", k.Name, program, k.packages)}
		}
	}
	unlock, err := lock(filepath.Join(tools, k.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	partial, err := os.MkdirTemp(tools, "part-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(partial) }() // renamed, or incomplete
	if err := k.build(src, partial); err != nil {
		return "", err
	}
	oldDirs, err := filepath.Glob(filepath.Join(tools, k.Name+"-*"))
	if err != nil {
		return "", err
	}
	for _, old := range oldDirs {
		if err := os.RemoveAll(old); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(partial, dir)
}

// lock waits until no other process has locked the file, and locks it.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // the close unlocks the file
}

// runMaven builds the peers into a directory. It returns a *MissingError if Maven cannot fetch
// a package or takes too long. Any other error is a defect of the sources.
func runMaven(src, dst string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-q", "-Dstyle.color=never", "-Dinterop.out="+dst, "package")
	cmd.Dir = src
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	for _, pattern := range []string{"Could not transfer", "Could not resolve", "could not be resolved", "Could not find artifact", "Cannot access"} {
		if i := bytes.Index(out, []byte(pattern)); i >= 0 {
			line, _, _ := strings.Cut(string(out[i:]), "\n")
			return &MissingError{"no Java peers: cannot fetch from Maven Central: " + line}
		}
	}
	if ctx.Err() != nil {
		return &MissingError{"no Java peers: Maven timed out"}
	}
	return fmt.Errorf("mvn package: %w\n%s", err, out)
}

// hashTree returns a hash of the content and the relative path of every file below dir.
func hashTree(dir string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%s %d\n%s", name, len(body), body)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6]), err
}

// runNPM installs the packages in the lock file, and does not run their scripts. It returns a
// *MissingError if npm cannot fetch a package or takes too long.
func runNPM(src, dst string) error {
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dst
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &MissingError{"no node peers: npm timed out"}
	}
	for line := range strings.Lines(string(out)) {
		for _, pattern := range []string{"ENOTFOUND", "EAI_AGAIN", "ECONN", "ETIMEDOUT", "E404", "E403", "E5"} {
			if strings.Contains(line, pattern) {
				return &MissingError{"no node peers: cannot fetch from the npm registry: " + strings.TrimSpace(line)}
			}
		}
	}
	return fmt.Errorf("npm ci: %w\n%s", err, out)
}

// runGo builds the module with dubbo-go. Its errors are those of runGoBuild.
func runGo(src, dst string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dst, "peer"), ".")
	cmd.Dir = src
	cmd.WaitDelay = time.Second
	return runGoBuild(ctx, "dubbo-go", cmd)
}

// runGRPC builds grpc-go's unmodified interop client and server, and the health client. Its errors
// are those of runGoBuild.
func runGRPC(src, dst string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dst+"/",
		"google.golang.org/grpc/interop/client", "google.golang.org/grpc/interop/server", "./health")
	cmd.Dir = src
	cmd.WaitDelay = time.Second
	return runGoBuild(ctx, "gRPC", cmd)
}

// runGoBuild runs "go build" for peers. It returns a *MissingError if the module proxy does not
// deliver a module or the build takes too long. Any other error is a defect of the sources.
func runGoBuild(ctx context.Context, peers string, cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &MissingError{"no " + peers + " peers: go build timed out"}
	}
	for line := range strings.Lines(string(out)) {
		for _, pattern := range []string{"dial tcp", "lookup disabled", "i/o timeout", "TLS handshake", "reading https://"} {
			if strings.Contains(line, pattern) {
				return &MissingError{"no " + peers + " peers: cannot fetch from the module proxy: " + strings.TrimSpace(line)}
			}
		}
	}
	return fmt.Errorf("go build: %w\n%s", err, out)
}
