package overload

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/internal/resource"
	"github.com/weft-proxy/weft/pkg/config"
)

// monitor is a running resource monitor. One goroutine owns it.
type monitor struct {
	config config.Monitor
	// read returns the usage and the limit; a limit of 0 means none.
	read func(now time.Time) (used, limit float64, err error)

	pressure    float64 // used as a fraction of limit; may exceed 1
	used, limit float64
	failing     bool // the last read failed
}

// newMonitor returns the monitor that m describes. connections returns the number of open
// downstream connections. It returns an error if this system or build does not support the monitor.
func newMonitor(m config.Monitor, system fs.FS, connections func() int64) (*monitor, error) {
	mon := &monitor{config: m}
	var err error
	switch m.Name {
	case config.MonitorHeap:
		mon.read = newUsageReader(func() (int64, error) { return resource.Heap(), nil }, constantLimit(m.Max))
	case config.MonitorConnections:
		mon.read = newUsageReader(func() (int64, error) { return connections(), nil }, constantLimit(m.Max))
	case config.MonitorDescriptors:
		mon.read = newDescriptorReader(newUsageReader(func() (int64, error) { return resource.Descriptors(system) },
			lowerLimit(m.Max, func() (int64, error) { return resource.DescriptorLimit(system) })))
	case config.MonitorMemory:
		mon.read = newUsageReader(func() (int64, error) { return resource.Memory(system) },
			lowerLimit(m.Max, func() (int64, error) { return memoryLimit(system) }))
	case config.MonitorCgroup:
		var g *resource.Cgroup
		if g, err = resource.MemoryCgroup(system); err == nil {
			mon.read = newUsageReader(g.Memory, lowerLimit(m.Max, g.MemoryLimit))
		}
	case config.MonitorCPU:
		mon.read, err = newCPUReader(m.CPU, system)
	}
	if err == nil && mon.read == nil {
		err = errors.New("it is not supported by this build")
	}
	if err != nil {
		return nil, fmt.Errorf("overload_manager: resource monitor %s: %w", m.Name, err)
	}
	return mon, nil
}

// newCPUReader returns the read function of a CPU monitor.
func newCPUReader(mode config.CPUMode, system fs.FS) (func(time.Time) (float64, float64, error), error) {
	var c *resource.CPU
	var err error
	switch mode {
	case config.CPUContainer:
		c, err = resource.CgroupCPU(system, runtime.NumCPU())
	case config.CPUProcess:
		c = resource.ProcessCPU(system, runtime.NumCPU())
	default:
		c = resource.MachineCPU(system)
	}
	if err != nil {
		return nil, err
	}
	return func(now time.Time) (float64, float64, error) {
		share, err := c.Read(now)
		return share, 1, err
	}, nil
}

// memoryLimit returns the memory limit of the control group or, without one, the memory of the
// machine.
func memoryLimit(system fs.FS) (int64, error) {
	if g, err := resource.MemoryCgroup(system); err == nil {
		if limit, err := g.MemoryLimit(); !errors.Is(err, resource.ErrNoLimit) {
			return limit, err
		}
	}
	return resource.MachineMemory(system)
}

func constantLimit(n int64) func() (int64, error) { return func() (int64, error) { return n, nil } }

// lowerLimit returns a function for the lower of two limits: the configured limit, unless it is 0,
// and the limit of the system.
func lowerLimit(configured int64, system func() (int64, error)) func() (int64, error) {
	return func() (int64, error) {
		limit, err := system()
		switch {
		case configured == 0:
			return limit, err
		case err != nil:
			return configured, nil //nolint:nilerr // the configured limit applies
		}
		return min(limit, configured), nil
	}
}

// newUsageReader returns a read function that combines readUsed and readLimit. Without a limit the
// pressure is 0.
func newUsageReader(readUsed, readLimit func() (int64, error)) func(time.Time) (float64, float64, error) {
	return func(time.Time) (float64, float64, error) {
		used, err := readUsed()
		if err != nil {
			return 0, 0, err
		}
		limit, err := readLimit()
		if errors.Is(err, resource.ErrNoLimit) {
			return float64(used), 0, nil
		}
		return float64(used), float64(limit), err
	}
}

// newDescriptorReader wraps the read function of descriptors, which itself needs a descriptor. If
// none is left, the returned function reports that all are in use.
func newDescriptorReader(read func(time.Time) (used, limit float64, err error)) func(time.Time) (float64, float64, error) {
	lastLimit := 1.0 // the last limit read; initially an arbitrary value
	return func(now time.Time) (float64, float64, error) {
		used, limit, err := read(now)
		switch {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return lastLimit, lastLimit, nil
		case err == nil && limit > 0:
			lastLimit = limit
		}
		return used, limit, err
	}
}

// update reads the monitor. On an error the previous values stay.
func (m *monitor) update(now time.Time) error {
	used, limit, err := m.read(now)
	if err != nil {
		return err
	}
	m.used, m.limit, m.pressure = used, limit, 0
	if limit > 0 {
		m.pressure = used / limit
	}
	return nil
}
