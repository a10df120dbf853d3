package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/test/bench/process"
)

// disturbed is how much work of others on the CPUs of a measurement, in CPUs,
// makes it doubtful.
const disturbed = 0.1

// repeats is how often a measurement is repeated at most.
const repeats = 2

// calmest measures a subject, again if other processes had a part in it, and
// returns the sample that they disturbed least. The choice does not look at what
// was measured. What it waits and repeats is taken off b.patience.
func (b *bed) calmest(ctx context.Context, r row, s subject, rate float64) (best sample, err error) {
	for try := range 1 + repeats {
		if err := b.awaitCalm(ctx); err != nil {
			return sample{}, err
		}
		begin := time.Now()
		one, err := b.measure(ctx, r, s, rate)
		if err != nil {
			return sample{}, err
		}
		if try == 0 || one.Others < best.Others {
			best = one
		}
		if try > 0 {
			b.patience -= time.Since(begin)
		}
		if best.Others < disturbed || b.patience <= 0 {
			break
		}
	}
	return best, nil
}

// measure takes one sample.
func (b *bed) measure(ctx context.Context, r row, s subject, rate float64) (sample, error) {
	job := b.job(r, s.address, s.pids)
	job.Rate = rate
	if err := process.ResetPeak(s.pids); err != nil {
		return sample{}, err
	}
	measured, err := b.load(ctx, job)
	if err != nil {
		return sample{}, err
	}
	memory, err := process.ReadMemory(s.pids)
	return sample{measured, memory}, err
}

// awaitCalm waits, as long as the patience lasts, until the CPUs are idle.
func (b *bed) awaitCalm(ctx context.Context) error {
	const glance = 100 * time.Millisecond // ten ticks of the clock that is read
	cpus := []int{b.loadCPU, b.proxyCPU}
	for b.patience > 0 {
		begin := time.Now()
		from, err := process.BusyTime(cpus)
		if err != nil {
			return err
		}
		if err := wait(ctx, glance); err != nil {
			return err
		}
		to, err := process.BusyTime(cpus)
		if err != nil {
			return err
		}
		// A tick may fall on either side.
		if (to-from).Seconds()/time.Since(begin).Seconds() <= 2*disturbed {
			return nil
		}
		b.patience -= time.Since(begin)
	}
	return nil
}

// wait returns after the time, or with the context's error before it.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// calm returns the samples that nobody disturbed, or all if there is none.
func calm(samples []sample) []sample {
	var chosen []sample
	for _, s := range samples {
		if s.Others < disturbed {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return samples
	}
	return chosen
}

// calmRounds prints how many of the samples nobody disturbed.
func calmRounds(samples []sample) string {
	n := 0
	for _, s := range samples {
		if s.Others < disturbed {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(samples))
}
