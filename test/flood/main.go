// Command flood attacks one listener of a proxy with bursts that cost the attacker little, while an
// honest client uses another listener. For each attack and proxy it prints CPU time, memory,
// descriptors, and the latency of the honest client.
//
//	go run ./test/flood -weft bin/weft -weft bin/weft-before -duration 12s
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/bench/process"
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "flood:", err) // no other place to report the error
		os.Exit(1)
	}
}

func run() error {
	var wefts []string
	flag.Func("weft", "`path` of a weft binary; may be repeated", func(path string) error {
		wefts = append(wefts, path)
		return nil
	})
	filter := flag.String("attack", "", "run only attacks whose name contains this `text`")
	var l load
	flag.IntVar(&l.connections, "connections", 50, "concurrent attacking connections")
	flag.DurationVar(&l.interval, "every", 2*time.Second, "interval between two bursts of a connection")
	flag.DurationVar(&l.duration, "duration", 12*time.Second, "duration of each attack")
	flag.Parse()

	var programs []program
	for _, path := range wefts {
		programs = append(programs, weft("weft "+path, path))
	}
	programs = append(programs, otherProxies()...)
	dir, err := os.MkdirTemp("", "flood-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	env, err := newEnvironment(dir)
	if err != nil {
		return err
	}
	defer env.close()
	for _, a := range attacks() {
		if !strings.Contains(a.name, *filter) {
			continue
		}
		fmt.Println(a.name)
		for _, p := range programs {
			r, err := env.runAttack(p, a, l)
			switch {
			case errors.Is(err, errUnsupported):
				continue
			case err != nil:
				return err
			}
			fmt.Printf("  %-28s %v\n", p.name, r)
		}
	}
	return nil
}

// runAttack starts a proxy, attacks it, and stops it.
func (env *environment) runAttack(p program, a attack, l load) (result, error) {
	cpus, err := process.CPUs()
	if err != nil {
		return result{}, err
	}
	launcher := process.NewLauncher()
	defer launcher.Close()
	p.name = strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, p.name)
	t, err := env.start(launcher, cpus[len(cpus)-1], p, a)
	if err != nil {
		return result{}, err
	}
	defer t.stop()
	return measure(t, a, l)
}

// otherProxies returns the installed proxies other than Weft.
func otherProxies() (list []program) {
	for name, configure := range map[string]func(string) program{"haproxy": haproxy, "nginx": nginx} {
		path, err := exec.LookPath(name)
		if err != nil {
			path, err = exec.LookPath("/usr/sbin/" + name)
		}
		if err == nil {
			list = append(list, configure(path))
		}
	}
	return list
}
