// Command bench compares Weft with nginx, haproxy and Envoy in one interleaved run. It measures CPU time
// per request, latency, memory and the cost of a large configuration, with HTTP/1.1, HTTP/2, gRPC,
// translation between HTTP versions, TLS and RPC. haproxy forwards RPC as bytes.
// docs/performance.md explains the method and the figures.
//
// The program under test has a CPU to itself; an origin and a load generator, which are processes
// of this program, share another one. All traffic is on 127.0.0.0/8. The command stops every
// process that it starts.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/origin"
	"github.com/weft-proxy/weft/test/bench/peer"
)

func main() {
	var err error
	if r, ok := findRole(os.Args); ok {
		err = r(os.Args[2:])
	} else {
		err = bench(os.Args[1:])
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errTargetMissed):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// errTargetMissed ends a run with -strict in which a target was missed.
var errTargetMissed = errors.New("a target was missed")

// role is the main function of a child process of this program. arguments are the arguments of the
// role.
type role func(arguments []string) error

// findRole returns the role that the command line names, if any.
func findRole(args []string) (role, bool) {
	if len(args) < 2 {
		return nil, false
	}
	switch args[1] {
	case "load":
		return loadRole, true
	case "origin":
		return originRole, true
	case "relay":
		return relayRole, true
	}
	return nil, false
}

// loadRole runs the job that it reads from stdin and writes the result to stdout.
func loadRole([]string) error {
	var job load.Job
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return fmt.Errorf("load: read the job: %w", err)
	}
	result, err := load.Run(job)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// originRole serves on the given address until stdin is closed.
func originRole(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: bench origin ADDRESS")
	}
	address, err := netip.ParseAddrPort(arguments[0])
	if err != nil {
		return err
	}
	return origin.Serve(address, int(os.Stdin.Fd()))
}

func relayRole(arguments []string) error {
	if len(arguments) != 2 {
		return errors.New("usage: bench relay LISTEN ORIGIN")
	}
	listen, err := netip.ParseAddrPort(arguments[0])
	if err != nil {
		return err
	}
	originAddress, err := netip.ParseAddrPort(arguments[1])
	if err != nil {
		return err
	}
	return peer.RunRelay(listen, originAddress)
}

// bench runs the command.
func bench(arguments []string) error {
	o, err := parseOptions(arguments)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	start := time.Now()
	env, err := newEnvironment(ctx, o)
	if err != nil {
		return err
	}
	defer env.close()
	report, err := env.run(ctx)
	if err != nil {
		return err
	}
	report.Seconds = time.Since(start).Seconds()
	if err := report.write(o.out); err != nil {
		return err
	}
	fmt.Print(report.markdown())
	if o.strict && report.missedCount() > 0 {
		return fmt.Errorf("%w: %d in all", errTargetMissed, report.missedCount())
	}
	return nil
}
