// Command scale measures many Dubbo services with a real ZooKeeper: the time until Weft has
// published and subscribed to them, its memory, and the latency of one change and of one API call.
//
//	go run ./test/dubbo/scale -bin bin/weft -published 1000 -subscribed 2000 -providers 20
//
// It runs ZooKeeper from Debian's package on loopback, with a temporary data directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// sizes holds the parameters of a measurement.
type sizes struct {
	published, subscribed int // services
	providers             int // of each subscribed service
	changes               int // number of measured provider changes
	calls                 int // number of measured API calls of each kind
}

func main() {
	bin := flag.String("bin", "bin/weft", "path of the weft binary")
	profiles := flag.String("profiles", "", "directory for profiles: CPU of the first 4 s of each start, of the changes and of the calls, and the idle heap")
	var s sizes
	flag.IntVar(&s.published, "published", 1000, "published services")
	flag.IntVar(&s.subscribed, "subscribed", 2000, "subscribed services")
	flag.IntVar(&s.providers, "providers", 20, "providers per subscribed service")
	flag.IntVar(&s.changes, "changes", 200, "provider changes to measure")
	flag.IntVar(&s.calls, "calls", 200, "API calls of each kind to measure")
	flag.Parse()
	if err := checkInstalled(); err != nil {
		fmt.Fprintln(os.Stderr, "SKIPPED many Dubbo services: ZooKeeper is not available:", err)
		return
	}
	if err := measure(*bin, *profiles, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(bin, profiles string, s sizes) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	r, err := server.populate(ctx, s)
	if err != nil {
		return err
	}
	defer r.conn.Close()
	w, err := newWeft(bin, server.address, profiles)
	if err != nil {
		return err
	}
	defer w.stop()
	if err := w.start(ctx); err != nil {
		return err
	}
	baseline := w.resident()

	start := time.Now()
	profileDone := w.profile(ctx, "start.cpu", "profile?seconds=4")
	if err := w.publishAndSubscribe(ctx, s); err != nil {
		return err
	}
	if err := w.awaitConverged(ctx, s); err != nil {
		return err
	}
	fmt.Printf("ready %.2f s after the first of %d calls, 64 at a time: %d services published, %d subscribed with %d providers each; %.2f s of CPU\n",
		time.Since(start).Seconds(), s.published+s.subscribed, s.published, s.subscribed, s.providers, w.cpu().Seconds())
	w.printIdleMemory(ctx, baseline)
	<-profileDone
	<-w.profile(ctx, "start.heap", "heap?gc=1")
	profileDone = w.profile(ctx, "change.cpu", "profile?seconds=4")
	if err := r.change(ctx, w, s); err != nil {
		return err
	}
	<-profileDone
	profileDone = w.profile(ctx, "calls.cpu", "profile?seconds=4")
	if err := compare(ctx, r, w, s); err != nil {
		return err
	}
	<-profileDone

	w.stop()
	start = time.Now()
	if err := w.start(ctx); err != nil {
		return err
	}
	profileDone = w.profile(ctx, "again.cpu", "profile?seconds=4")
	if err := w.awaitConverged(ctx, s); err != nil {
		return err
	}
	fmt.Printf("restarted with the state file: ready %.2f s after the start, %.2f s of CPU\n", time.Since(start).Seconds(), w.cpu().Seconds())
	w.printIdleMemory(ctx, baseline)
	<-profileDone
	<-w.profile(ctx, "again.heap", "heap?gc=1")
	return nil
}

// compare measures API calls, and for comparison the corresponding operations on ZooKeeper without
// Weft.
func compare(ctx context.Context, r *registry, w *weft, s sizes) error {
	var pub, sub, create, read times
	for i := range s.calls {
		name := fmt.Sprintf("com.example.more.Number%d", i)
		for _, step := range []struct {
			durations *times
			call      func() error
		}{
			{&create, func() error { return r.create(name, "10.9.9.9:20880") }},
			{&pub, func() error { return w.callAPI(ctx, "/pub", name) }},
			{&read, func() error { return r.read(name) }},
			{&sub, func() error { return w.callAPI(ctx, "/sub", name) }},
		} {
			start := time.Now()
			if err := step.call(); err != nil {
				return err
			}
			*step.durations = append(*step.durations, time.Since(start))
		}
	}
	fmt.Printf("POST /pub of one more service takes %v; creating two znodes directly takes %v\n", pub, create)
	fmt.Printf("POST /sub of one more service takes %v; reading its znodes directly takes %v\n", sub, read)
	return nil
}

// times holds durations of one operation.
type times []time.Duration

// String returns the median and the 99th percentile.
func (t times) String() string {
	sorted := slices.Sorted(slices.Values(t))
	quantile := func(q float64) time.Duration {
		return sorted[int(q*float64(len(sorted)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%v (p99 %v)", quantile(0.5), quantile(0.99))
}

// runConcurrently calls do n times, at most 64 at a time, and returns the first error.
func runConcurrently(n int, do func(i int) error) error {
	next, errs := make(chan int), make(chan error, n)
	var wg sync.WaitGroup
	for range min(64, max(1, n)) {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					errs <- err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	close(errs)
	return <-errs
}
