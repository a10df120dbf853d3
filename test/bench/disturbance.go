package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/test/bench/process"
)

// disturbanceThreshold is the CPU time per second, in CPUs, that other processes may use on the
// CPUs of a measurement. A measurement with this value or more is disturbed.
const disturbanceThreshold = 0.1

// maxRepeats is the maximum number of times that a measurement is repeated.
const maxRepeats = 2

// measureUndisturbed measures a subject, repeats the measurement if other processes used its CPUs,
// and returns the sample with the least such use. The choice does not depend on the measured
// values. Waiting and repeating reduce env.waitBudget.
func (env *environment) measureUndisturbed(ctx context.Context, r row, s systemUnderTest, rate float64) (best sample, err error) {
	for attempt := range 1 + maxRepeats {
		if err := env.awaitIdleCPUs(ctx); err != nil {
			return sample{}, err
		}
		start := time.Now()
		current, err := env.measure(ctx, r, s, rate)
		if err != nil {
			return sample{}, err
		}
		if attempt == 0 || current.Others < best.Others {
			best = current
		}
		if attempt > 0 {
			env.waitBudget -= time.Since(start)
		}
		if best.Others < disturbanceThreshold || env.waitBudget <= 0 {
			break
		}
	}
	return best, nil
}

func (env *environment) measure(ctx context.Context, r row, s systemUnderTest, rate float64) (sample, error) {
	job := env.job(r, s.address, s.pids)
	job.Rate = rate
	if err := process.ResetPeak(s.pids); err != nil {
		return sample{}, err
	}
	measured, err := env.load(ctx, job)
	if err != nil {
		return sample{}, err
	}
	memory, err := process.ReadMemory(s.pids)
	return sample{measured, memory}, err
}

// awaitIdleCPUs waits until the CPUs are idle or env.waitBudget is used up.
func (env *environment) awaitIdleCPUs(ctx context.Context) error {
	const interval = 100 * time.Millisecond // ten ticks of /proc/stat
	cpus := []int{env.loadCPU, env.proxyCPU}
	for env.waitBudget > 0 {
		start := time.Now()
		before, err := process.BusyTime(cpus)
		if err != nil {
			return err
		}
		if err := sleepContext(ctx, interval); err != nil {
			return err
		}
		after, err := process.BusyTime(cpus)
		if err != nil {
			return err
		}
		// The resolution is one tick, so the threshold is doubled.
		if (after-before).Seconds()/time.Since(start).Seconds() <= 2*disturbanceThreshold {
			return nil
		}
		env.waitBudget -= time.Since(start)
	}
	return nil
}

// sleepContext returns nil after d, or the context's error if the context ends first.
func sleepContext(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// undisturbed returns the samples without disturbance, or all samples if every one was disturbed.
func undisturbed(samples []sample) []sample {
	var selected []sample
	for _, s := range samples {
		if s.Others < disturbanceThreshold {
			selected = append(selected, s)
		}
	}
	if len(selected) == 0 {
		return samples
	}
	return selected
}

// undisturbedRounds formats how many of the samples were not disturbed.
func undisturbedRounds(samples []sample) string {
	n := 0
	for _, s := range samples {
		if s.Others < disturbanceThreshold {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(samples))
}
