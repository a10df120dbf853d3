// Command testsum runs "go test -json" in phases, shows the failures and ends with one line: N
// passed, N failed, N skipped. It exits with 1 if a test, a phase or an earlier step failed, or if
// no test ran. Above that line it repeats each failure with the first lines of its output, so that
// the end of a log is enough to understand it.
//
//	testsum [-steps FILE] [-again N] -phase 'unit: -race ./pkg/...' -phase 'e2e: ./test/e2e/...'
//
// Write values of go test's flags with "=". If at most N tests of a phase failed, testsum runs each
// of them again (rerun.go). -then adds a phase that runs only the tests that the previous phase
// skipped (skipped.go), -with one that runs at the same time:
//
//	testsum -phase 'race: -race ./pkg/...' -then 'unit:' -with 'e2e: ./test/e2e/...'
//
// The steps file has one line for each earlier step of a script:
//
//	ok NAME
//	FAILED NAME
//	SKIPPED NAME: reason
//
// testsum repeats these lines at the end but does not count them as tests. Lines that begin with a
// space belong to the failed step above them and say why it failed.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"
)

// errFailed is the error of a run whose summary was printed, so that main prints nothing after it.
var errFailed = errors.New("failed")

// phase is one run of go test.
type phase struct {
	name string
	args []string // of go test, after -json
	then *phase   // runs the tests that this phase skipped; nil: none
	// withPrevious makes the phase run at the same time as the phase before it.
	withPrevious bool
}

// outcome is the result of a phase.
type outcome struct {
	phase    phase
	counts   counts
	packages int
	ran      map[topTest]bool
	skips    []skip
	failures []failure
	flaky    []flaky
	duration time.Duration
	err      error // of the go command, other than failed tests
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	stop()
	if err != nil {
		os.Exit(1)
	}
}

// run is main with its environment as arguments. It writes the result line last.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var phases []phase
	flags := flag.NewFlagSet("testsum", flag.ContinueOnError)
	stepsFile := flags.String("steps", "", "`file` with the results of previous steps")
	flags.Func("phase", "`name: arguments` of go test; repeatable", func(text string) error {
		p, err := parsePhase(text)
		phases = append(phases, p)
		return err
	})
	flags.Func("then", "`name: flags` of go test for the tests that the previous phase skips", func(text string) error {
		if len(phases) == 0 {
			return errors.New("-then requires a preceding -phase")
		}
		p, err := parsePhase(text)
		phases[len(phases)-1].then = &p
		return err
	})
	flags.Func("with", "`name: arguments` of go test, to run at the same time as the previous phase", func(text string) error {
		if len(phases) == 0 {
			return errors.New("-with requires a preceding -phase")
		}
		p, err := parsePhase(text)
		p.withPrevious = true
		phases = append(phases, p)
		return err
	})
	eventsFile := flags.String("events", "", "output `file` for all events of go test -json")
	maxRerun := flags.Int("again", 0, "rerun the failed tests of a phase if there are at most this `many`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var steps []string
	if *stepsFile != "" {
		text, err := os.ReadFile(*stepsFile)
		if err != nil {
			return err
		}
		steps = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	r := &runner{out: out, maxRerun: *maxRerun}
	if *eventsFile != "" {
		f, err := os.Create(*eventsFile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		r.events = f
	}
	var outcomes []outcome
	for len(phases) > 0 {
		n := 1
		for n < len(phases) && phases[n].withPrevious {
			n++
		}
		outcomes = append(outcomes, r.runTogether(ctx, phases[:n])...)
		phases = phases[n:]
	}
	if r.eventsErr != nil {
		steps = append(steps, "SKIPPED events: "+r.eventsErr.Error())
	}
	return summarize(steps, outcomes, out)
}

func parsePhase(text string) (phase, error) {
	name, rest, found := strings.Cut(text, ":")
	if !found {
		return phase{}, errors.New("expected NAME: ARGUMENTS")
	}
	return phase{name: name, args: strings.Fields(rest)}, nil
}

// runner runs phases.
type runner struct {
	maxRerun int // maximum number of failed tests of a phase to run again

	mu        sync.Mutex
	out       io.Writer // guarded by mu
	events    io.Writer // guarded by mu; receives the events of go test -json; nil: discarded
	eventsErr error     // guarded by mu; first error of a write to events; no further event is written
}

// runTogether runs phases at the same time. Then it runs, one after the other, failed tests again
// where that is possible, and the phases for skipped tests.
func (r *runner) runTogether(ctx context.Context, phases []phase) (outcomes []outcome) {
	firstRuns := make([]outcome, len(phases))
	var running sync.WaitGroup
	for i, p := range phases {
		running.Go(func() { firstRuns[i] = r.runOnce(ctx, p) })
	}
	running.Wait()
	for i := range firstRuns {
		o := firstRuns[i]
		r.rerunFailed(ctx, &o)
		if o.phase.then == nil || len(o.skips) == 0 {
			outcomes = append(outcomes, o)
			continue
		}
		secondRun := r.runOnce(ctx, o.skippedPhase())
		r.rerunFailed(ctx, &secondRun)
		o.replaceSkips(&secondRun)
		outcomes = append(outcomes, o, secondRun)
	}
	return outcomes
}

// runOnce runs go test once.
func (r *runner) runOnce(ctx context.Context, p phase) outcome {
	var text bytes.Buffer
	_, _ = fmt.Fprintf(&text, "\n== %s: go test %s\n", p.name, strings.Join(p.args, " "))
	begin := time.Now()
	t := newEventParser(&text)
	err := r.stream(ctx, p.args, t, &text)
	t.finish()
	r.print(&text)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && t.counts.failed > 0 {
		err = nil // the failed tests explain it
	}
	return outcome{phase: p, counts: t.counts, packages: t.packages, ran: t.ran, skips: t.skips, failures: t.failures, duration: time.Since(begin), err: err}
}

// print writes text, which belongs together, and empties it.
func (r *runner) print(text *bytes.Buffer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = text.WriteTo(r.out)
}

// stream passes the events of go test to t, which writes to text, and writes them to r.events.
// After each event it prints text.
func (r *runner) stream(ctx context.Context, args []string, t *eventParser, text *bytes.Buffer) error {
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	var stderr bytes.Buffer // separate, so that stdout and stderr do not mix within a line
	command.Stderr = &stderr
	events, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	reader := bufio.NewReader(events) // lines may have any length
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			r.writeEvent(line)
			t.handleLine([]byte(strings.TrimSuffix(string(line), "\n")))
			r.print(text)
		}
		if err != nil {
			break // EOF, or an error that Wait reports too
		}
	}
	err = command.Wait()
	t.printf("%s", stderr.String())
	return err
}

// writeEvent writes one line of go test -json. After an error it writes no more, and the tests
// continue.
func (r *runner) writeEvent(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events != nil && r.eventsErr == nil {
		_, r.eventsErr = r.events.Write(line)
	}
}

// summarize writes the results, most important last.
func summarize(steps []string, outcomes []outcome, out io.Writer) error {
	var total counts
	var failedNames []string
	var failures []failure
	printLine := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

	printLine("\n== summary")
	for _, o := range outcomes {
		total.add(o.counts)
		printLine("%-12s %s (%d packages, %.0f s)", o.phase.name, o.counts, o.packages, o.duration.Seconds())
		if o.counts.failed > 0 || o.err != nil {
			failedNames = append(failedNames, o.phase.name)
		}
		if o.err != nil {
			printLine("%-12s go test: %v", o.phase.name, o.err)
		}
		for _, f := range o.failures {
			f.name = o.phase.name + ": " + f.name
			failures = append(failures, f)
		}
	}
	stepsFailed := 0
	for _, step := range steps {
		if name, failed := strings.CutPrefix(step, "FAILED "); failed {
			failedNames = append(failedNames, name)
			failures = slices.Insert(failures, stepsFailed, failure{name: name})
			stepsFailed++
		}
		if strings.HasPrefix(step, " ") && stepsFailed > 0 {
			f := &failures[stepsFailed-1]
			f.lines = append(f.lines, shorten(step))
			continue
		}
		if step != "" && !strings.HasPrefix(step, "SKIPPED ") {
			printLine("%s", step)
		}
	}
	for _, o := range outcomes {
		for _, s := range o.skips {
			printLine("SKIPPED %s: %s %s: %s", o.phase.name, s.pkg, s.test, s.reason)
		}
	}
	for _, step := range steps {
		if strings.HasPrefix(step, "SKIPPED ") {
			printLine("%s", step)
		}
	}
	for _, o := range outcomes {
		writeFlaky(out, o.flaky)
	}
	if len(failedNames) == 0 && total == (counts{}) {
		failedNames = append(failedNames, "no test ran")
	}
	if len(failedNames) == 0 {
		printLine("%s", total)
		return nil
	}
	writeFailures(out, failures)
	reasons := strings.Join(failedNames, ", ")
	printLine("FAILED: %s", reasons)
	printLine("%s", total)
	return fmt.Errorf("%w: %s", errFailed, reasons)
}
