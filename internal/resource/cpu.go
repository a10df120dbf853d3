package resource

import (
	"errors"
	"io/fs"
	"math"
	"time"
)

// smoothing is the time constant of the moving average: after this time a change shows to two
// thirds.
const smoothing = 5 * time.Second

// CPU measures processor usage, smoothed over a few seconds. It is not safe for concurrent use.
type CPU struct {
	// count returns the used and the available processor time, both in the same unit and since the
	// same arbitrary start.
	count func(now time.Time) (used, could float64, err error)

	begun       bool
	at          time.Time
	used, could float64
	share       float64
}

// HostCPU measures the busy time of the machine's processors as a fraction of their total time.
func HostCPU(system fs.FS) *CPU {
	return &CPU{count: func(time.Time) (float64, float64, error) {
		busy, all, err := machineTime(system)
		return float64(busy), float64(all), err
	}}
}

// GroupCPU measures the processor time of the control group as a fraction of what its quota, and at
// most the given number of processors, allows.
func GroupCPU(system fs.FS, processors int) (*CPU, error) {
	g, err := CPUGroup(system)
	if err != nil {
		return nil, err
	}
	return &CPU{count: allowed(g, processors, g.time)}, nil
}

// ProcessCPU measures the processor time of the process alone against the same limit as GroupCPU.
// Without control groups the limit is the number of processors.
func ProcessCPU(system fs.FS, processors int) *CPU {
	g, err := CPUGroup(system)
	if err != nil {
		g = nil
	}
	return &CPU{count: allowed(g, processors, func() (time.Duration, error) {
		n, err := processTime(system)
		return time.Duration(n) * (time.Second / 100), err
	})}
}

// allowed returns a count function that compares used with the processor time that g's quota and
// the number of processors allow. g may be nil: no quota.
func allowed(g *Group, processors int, used func() (time.Duration, error)) func(time.Time) (float64, float64, error) {
	var last time.Time
	var could float64
	return func(now time.Time) (float64, float64, error) {
		n := float64(processors)
		if g != nil {
			quota, err := g.Processors()
			if err != nil && !errors.Is(err, ErrNoLimit) {
				return 0, 0, err
			}
			if err == nil {
				n = min(n, quota)
			}
		}
		if !last.IsZero() {
			could += n * now.Sub(last).Seconds()
		}
		last = now
		d, err := used()
		return d.Seconds(), could, err
	}
}

// Read returns the busy fraction, from 0 to 1. The first call returns 0, because a measurement
// needs two.
func (c *CPU) Read(now time.Time) (float64, error) {
	used, could, err := c.count(now)
	if err != nil {
		return 0, err
	}
	if !c.begun {
		c.begun, c.at, c.used, c.could = true, now, used, could
		return 0, nil
	}
	if could <= c.could || !now.After(c.at) { // the processor clock has not advanced
		return c.share, nil
	}
	share := min(1, max(0, (used-c.used)/(could-c.could)))
	c.share += (share - c.share) * (1 - math.Exp(-now.Sub(c.at).Seconds()/smoothing.Seconds()))
	c.at, c.used, c.could = now, used, could
	return c.share, nil
}
