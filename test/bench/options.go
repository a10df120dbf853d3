package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// options holds the flags.
type options struct {
	rows       []string
	proxies    []string
	bins       []build
	rounds     int
	seconds    float64
	warmup     float64
	waitBudget time.Duration // total time for waiting and repeating because of other processes
	half       bool
	syscalls   bool
	profile    string // file for a CPU profile of Weft; empty: none
	idle       int    // connections of the idle rows
	out        string // output directory
	strict     bool
	install    bool
	limit      time.Duration
}

// build is an existing executable of Weft.
type build struct{ name, path string }

// direct is the name of the subject without a proxy.
const direct = "direct"

func parseOptions(arguments []string) (options, error) {
	var o options
	var rows, proxies, bins string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&rows, "rows", "", "comma list of `rows`: "+strings.Join(rowNames(), ", ")+" (default: all but post-64, grpc-16x1 and those of boltv2)")
	flags.StringVar(&proxies, "proxies", "", "comma list of `programs`: weft, nginx, haproxy, envoy, relay (Go, bytes only), direct (no proxy), or names of -bin (default: all)")
	flags.StringVar(&bins, "bin", "", "comma list of NAME=PATH: builds of Weft to measure instead of building one")
	flags.IntVar(&o.rounds, "rounds", 5, "number of rounds; each round measures every program once per row")
	flags.Float64Var(&o.seconds, "seconds", 2, "duration of one measurement in seconds")
	flags.Float64Var(&o.warmup, "warmup", 0.3, "duration of the load before a measurement in seconds")
	flags.DurationVar(&o.waitBudget, "patience", 3*time.Minute, "total time to wait for idle CPUs and to repeat disturbed measurements")
	flags.BoolVar(&o.half, "half", true, "also measure latency at a fixed rate: half of the throughput of the slowest proxy")
	flags.BoolVar(&o.syscalls, "syscalls", false, "count system calls per request, by perf or strace")
	flags.StringVar(&o.profile, "profile", "", "write a CPU profile of Weft under the first row's load to the `file`")
	flags.IntVar(&o.idle, "idle", 10000, "connections of the rows idle, rpc-idle and h2-idle; a tenth of the streams of h2-streams")
	flags.StringVar(&o.out, "o", "dist/bench", "`directory` of report.json and report.md")
	flags.BoolVar(&o.strict, "strict", false, "exit with status 2 if a target is missed")
	flags.BoolVar(&o.install, "install", true, "install nginx and haproxy by apt if they are missing and this is root")
	flags.DurationVar(&o.limit, "limit", time.Hour, "timeout of the run")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "Usage: go run ./test/bench [flags]\n\n"+
			"  go run ./test/bench -rows 1k-64 -rounds 3 -seconds 2 -proxies weft,nginx\n"+
			"  go run ./test/bench -rows 1k-64 -bin old=/tmp/old,new=bin/weft -proxies old,new,nginx")
		flags.PrintDefaults()
	}
	if err := flags.Parse(arguments); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("argument %q, want flags only", flags.Arg(0))
	}
	if err := o.setBins(bins); err != nil {
		return options{}, err
	}
	if err := o.setRows(rows); err != nil {
		return options{}, err
	}
	if err := o.setProxies(proxies); err != nil {
		return options{}, err
	}
	return o, o.check()
}

func (o *options) check() error {
	switch {
	case o.rounds < 1 || o.rounds > 1000:
		return fmt.Errorf("-rounds %d, want 1 to 1000", o.rounds)
	case o.seconds < 0.05 || o.seconds > 600:
		return fmt.Errorf("-seconds %v, want 0.05 to 600", o.seconds)
	case o.warmup < 0 || o.warmup > 600:
		return fmt.Errorf("-warmup %v, want 0 to 600", o.warmup)
	case o.waitBudget < 0:
		return fmt.Errorf("-patience %v, want 0 or more", o.waitBudget)
	case o.idle < 1 || o.idle > 60000:
		return fmt.Errorf("-idle %d, want 1 to 60000", o.idle)
	case o.profile != "" && len(o.wefts()) == 0:
		return errors.New("-profile requires weft in -proxies")
	}
	return nil
}

func (o *options) setBins(list string) error {
	for item := range splitList(list) {
		name, path, found := strings.Cut(item, "=")
		if !found || name == "" || path == "" || slices.Contains([]string{"nginx", "haproxy", "envoy", "relay", direct}, name) {
			return fmt.Errorf("-bin %q, want NAME=PATH with a unique name", item)
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("-bin %s: %w", name, err)
		}
		o.bins = append(o.bins, build{name, path})
	}
	return nil
}

func (o *options) setRows(list string) error {
	if list == "" {
		extra := func(name string) bool {
			return slices.ContainsFunc(rows(), func(r row) bool { return r.name == name && r.optional })
		}
		o.rows = slices.DeleteFunc(rowNames(), extra)
		return nil
	}
	for name := range splitList(list) {
		if !slices.Contains(rowNames(), name) {
			return fmt.Errorf("-rows %q, want some of %s", name, strings.Join(rowNames(), ", "))
		}
		o.rows = append(o.rows, name)
	}
	return nil
}

func (o *options) setProxies(list string) error {
	names := []string{"nginx", "haproxy", "envoy", "relay", direct}
	if len(o.bins) == 0 {
		names = slices.Insert(names, 0, "weft")
	}
	for i, b := range o.bins {
		names = slices.Insert(names, i, b.name)
	}
	if list == "" {
		o.proxies = names
		return nil
	}
	for name := range splitList(list) {
		if name == "weft" && len(o.bins) > 0 && !slices.Contains(names, name) {
			names = append(names, name) // built in addition to those of -bin
		}
		if !slices.Contains(names, name) {
			return fmt.Errorf("-proxies %q, want some of %s", name, strings.Join(names, ", "))
		}
		o.proxies = append(o.proxies, name)
	}
	return nil
}

// isWeft reports whether a program is a build of Weft.
func (o *options) isWeft(name string) bool {
	return name == "weft" || slices.ContainsFunc(o.bins, func(b build) bool { return b.name == name })
}

// wefts returns the names of the builds of Weft among the programs.
func (o *options) wefts() []string {
	var names []string
	for _, name := range o.proxies {
		if o.isWeft(name) {
			names = append(names, name)
		}
	}
	return names
}

// splitList yields the nonempty parts of a comma-separated list.
func splitList(list string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item != "" && !yield(item) {
				return
			}
		}
	}
}
