package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/weft-proxy/weft/test/bench/peer"
)

// findPrograms fills env.programs. It skips a missing nginx or haproxy with a message and returns
// an error if Weft does not build.
func (env *environment) findPrograms(ctx context.Context) error {
	if err := env.install(ctx); err != nil {
		return err
	}
	for _, name := range env.options.proxies {
		var p peer.Program
		switch name {
		case direct:
			continue
		case "relay":
			p = peer.Relay(env.executable)
		case "envoy":
			path, err := findEnvoy(ctx)
			if err != nil {
				env.skip("envoy: " + err.Error())
				continue
			}
			p = peer.Envoy(path)
		case "nginx", "haproxy":
			path, err := findProgram(name)
			if err != nil {
				env.skip(fmt.Sprintf("%s: not installed", name))
				continue
			}
			p = peer.NGINX(path)
			if name == "haproxy" {
				p = peer.HAProxy(path)
			}
		default:
			path, err := env.findOrBuildWeft(ctx, name)
			if err != nil {
				return err
			}
			p = peer.Weft(name, path)
		}
		env.programs = append(env.programs, p)
		env.report.Versions[name] = p.Version(ctx)
	}
	return nil
}

// findOrBuildWeft returns the path of the binary called name in the options. If there is none, it
// builds Weft.
func (env *environment) findOrBuildWeft(ctx context.Context, name string) (string, error) {
	for _, bin := range env.options.bins {
		if bin.name == name {
			return filepath.Abs(bin.path)
		}
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	env.logf("building weft")
	path := filepath.Join(env.dir, "weft")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/weft")
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weft: %w\n%s", err, text)
	}
	return path, nil
}

// moduleRoot returns the root of the module.
func moduleRoot(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the root of the module, in which bench must run: %w", err)
	}
	return string(bytes.TrimSpace(root)), nil
}

// findEnvoy returns the path of the Envoy that WEFT_ENVOY names, or that test/scripts/setup has
// installed.
func findEnvoy(ctx context.Context) (string, error) {
	path := os.Getenv("WEFT_ENVOY")
	if path == "" {
		root, err := moduleRoot(ctx)
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, ".tools", "envoy", "envoy", "_bin", "envoy")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("not installed; run test/scripts/setup, or set WEFT_ENVOY: %w", err)
	}
	return path, nil
}

// findProgram returns the path of a program, which may be outside the PATH in /usr/sbin.
func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// policyRCFile is the file with which Debian prevents a package from starting its service on
// installation: nginx would listen on every address.
const policyRCFile = "/usr/sbin/policy-rc.d"

// install installs missing nginx and haproxy if -install is set, this process is root and apt-get
// exists. A failure of apt-get is not an error: findPrograms skips the missing programs.
func (env *environment) install(ctx context.Context) error {
	var missing []string
	for _, name := range env.options.proxies {
		if name != "nginx" && name != "haproxy" {
			continue
		}
		if _, err := findProgram(name); err != nil {
			missing = append(missing, name)
		}
	}
	apt, err := exec.LookPath("apt-get")
	if len(missing) == 0 || err != nil || os.Geteuid() != 0 || !env.options.install {
		return nil
	}
	if _, err := os.Stat(policyRCFile); os.IsNotExist(err) {
		if err := os.WriteFile(policyRCFile, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
			return err
		}
		defer os.Remove(policyRCFile) //nolint:errcheck // root can remove the file
	}
	env.logf("installing %v", missing)
	for _, args := range [][]string{
		{"update", "-q"},
		append([]string{"install", "-q", "-y", "--no-install-recommends"}, missing...),
	} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := cmd.CombinedOutput(); err != nil {
			env.logf("apt-get %s: %v\n%s", args[0], err, text)
			return ctx.Err()
		}
	}
	return nil
}
