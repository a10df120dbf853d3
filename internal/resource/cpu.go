package resource

import (
	"errors"
	"io/fs"
	"math"
	"time"
)

// smoothing is how much of the past is in the use of processors: a change shows to
// two thirds after that time.
const smoothing = 5 * time.Second

// CPU tells how busy processors are, smoothed over a few seconds. It belongs to one
// goroutine.
type CPU struct {
	// count returns what has been used so far, and what could have been, both in the
	// same unit since any time.
	count func(now time.Time) (used, could float64, err error)

	begun       bool
	at          time.Time
	used, could float64
	share       float64
}

// HostCPU compares the time that the machine's processors worked with all of it.
func HostCPU(system fs.FS) *CPU {
	return &CPU{count: func(time.Time) (float64, float64, error) {
		busy, all, err := machineTime(system)
		return float64(busy), float64(all), err
	}}
}

// GroupCPU compares the time of processors that the control group had with what its
// quota allows; without a quota, with that of so many processors.
func GroupCPU(system fs.FS, processors int) (*CPU, error) {
	g, err := CPUGroup(system)
	if err != nil {
		return nil, err
	}
	return &CPU{count: allowed(g, processors, g.time)}, nil
}

// ProcessCPU is GroupCPU for the time that the process had alone. Where there are no
// control groups it has so many processors.
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

// allowed compares what used counts with what g's quota allows; g nil: none.
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

// Read returns the share that is busy, from 0 to 1; 0 at first, for it takes two reads
// to tell.
func (c *CPU) Read(now time.Time) (float64, error) {
	used, could, err := c.count(now)
	if err != nil {
		return 0, err
	}
	if !c.begun {
		c.begun, c.at, c.used, c.could = true, now, used, could
		return 0, nil
	}
	if could <= c.could || !now.After(c.at) { // the clock of the processors has not ticked yet
		return c.share, nil
	}
	share := min(1, max(0, (used-c.used)/(could-c.could)))
	c.share += (share - c.share) * (1 - math.Exp(-now.Sub(c.at).Seconds()/smoothing.Seconds()))
	c.at, c.used, c.could = now, used, could
	return c.share, nil
}
