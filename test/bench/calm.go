package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/test/bench/process"
)

// disturbed is how many CPUs' worth of work other processes may do on the CPUs of a measurement
// before the measurement is doubtful.
const disturbed = 0.1

// repeats is the maximum number of times that a measurement is repeated.
const repeats = 2

// calmest measures a subject, repeats the measurement if other processes used its CPUs, and returns
// the sample with the least such use. The choice does not depend on the measured values. Waiting
// and repeating reduce b.patience.
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

// awaitCalm waits until the CPUs are idle or b.patience is used up.
func (b *bed) awaitCalm(ctx context.Context) error {
	const glance = 100 * time.Millisecond // ten ticks of /proc/stat
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
		// The resolution is one tick, so the threshold is doubled.
		if (to-from).Seconds()/time.Since(begin).Seconds() <= 2*disturbed {
			return nil
		}
		b.patience -= time.Since(begin)
	}
	return nil
}

// wait returns nil after d, or the context's error if it ends first.
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

// calm returns the samples without disturbance, or all samples if every one was disturbed.
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

// calmRounds formats how many of the samples were not disturbed.
func calmRounds(samples []sample) string {
	n := 0
	for _, s := range samples {
		if s.Others < disturbed {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(samples))
}
