package resource

import (
	"errors"
	"io/fs"
	"math"
	"time"
)

// smoothingTime is the time constant of the moving average: after this time the average contains
// two thirds of a change.
const smoothingTime = 5 * time.Second

// CPU measures processor usage, smoothed over a few seconds. It is not safe for concurrent use.
type CPU struct {
	// measure returns the used and the available processor time, in the same unit and since the
	// same arbitrary time.
	measure func(now time.Time) (used, available float64, err error)

	started                 bool
	lastTime                time.Time
	lastUsed, lastAvailable float64
	usage                   float64 // moving average of the used fraction
}

// MachineCPU measures the busy time of the machine's processors as a fraction of their total time.
func MachineCPU(system fs.FS) *CPU {
	return &CPU{measure: func(time.Time) (float64, float64, error) {
		busy, total, err := machineTime(system)
		return float64(busy), float64(total), err
	}}
}

// CgroupCPU measures the processor time of the control group as a fraction of the time that its
// quota and the given number of processors allow, whichever is less.
func CgroupCPU(system fs.FS, processors int) (*CPU, error) {
	g, err := CPUCgroup(system)
	if err != nil {
		return nil, err
	}
	return &CPU{measure: withQuota(g, processors, g.time)}, nil
}

// ProcessCPU measures the processor time of the process alone against the same limit as CgroupCPU.
// Without control groups the limit is the number of processors.
func ProcessCPU(system fs.FS, processors int) *CPU {
	g, err := CPUCgroup(system)
	if err != nil {
		g = nil
	}
	return &CPU{measure: withQuota(g, processors, func() (time.Duration, error) {
		n, err := processTime(system)
		return time.Duration(n) * (time.Second / 100), err
	})}
}

// withQuota returns a measure function. The available time is what the quota of g and the number of
// processors allow. g may be nil: no quota.
func withQuota(g *Cgroup, processors int, used func() (time.Duration, error)) func(time.Time) (float64, float64, error) {
	var last time.Time
	var available float64
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
			available += n * now.Sub(last).Seconds()
		}
		last = now
		d, err := used()
		return d.Seconds(), available, err
	}
}

// Read returns the moving average of the used fraction, from 0 to 1. The first call returns 0,
// because a fraction needs two measurements.
func (c *CPU) Read(now time.Time) (float64, error) {
	used, available, err := c.measure(now)
	if err != nil {
		return 0, err
	}
	if !c.started {
		c.started, c.lastTime, c.lastUsed, c.lastAvailable = true, now, used, available
		return 0, nil
	}
	if available <= c.lastAvailable || !now.After(c.lastTime) { // the processor clock has not advanced
		return c.usage, nil
	}
	fraction := min(1, max(0, (used-c.lastUsed)/(available-c.lastAvailable)))
	c.usage += (fraction - c.usage) * (1 - math.Exp(-now.Sub(c.lastTime).Seconds()/smoothingTime.Seconds()))
	c.lastTime, c.lastUsed, c.lastAvailable = now, used, available
	return c.usage, nil
}
