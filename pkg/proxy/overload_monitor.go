package proxy

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

// monitor is a resource monitor as it runs. It belongs to one goroutine.
type monitor struct {
	config config.Monitor
	// read returns what is used and what there is. of 0: what is used is a share.
	read func(now time.Time) (used, of float64, err error)

	pressure float64 // from 0 to 1, or more
	used, of float64
	failing  bool // the last read failed
}

// newMonitor returns the monitor that m describes. connections counts those of callers
// that are open. An error: it can never be read here.
func newMonitor(m config.Monitor, system fs.FS, connections func() int64) (*monitor, error) {
	made := &monitor{config: m}
	var err error
	switch m.Name {
	case config.MonitorHeap:
		made.read = against(func() (int64, error) { return resource.Heap(), nil }, constant(m.Max))
	case config.MonitorConnections:
		made.read = against(func() (int64, error) { return connections(), nil }, constant(m.Max))
	case config.MonitorDescriptors:
		made.read = orNoneLeft(against(func() (int64, error) { return resource.Descriptors(system) },
			bounded(m.Max, func() (int64, error) { return resource.DescriptorLimit(system) })))
	case config.MonitorMemory:
		made.read = against(func() (int64, error) { return resource.Memory(system) },
			bounded(m.Max, func() (int64, error) { return memoryLimit(system) }))
	case config.MonitorCgroup:
		var g *resource.Group
		if g, err = resource.MemoryGroup(system); err == nil {
			made.read = against(g.Memory, bounded(m.Max, g.MemoryLimit))
		}
	case config.MonitorCPU:
		made.read, err = readCPU(m.CPU, system)
	}
	if err == nil && made.read == nil {
		err = errors.New("it is not built in")
	}
	if err != nil {
		return nil, fmt.Errorf("overload_manager: resource monitor %s: %w", m.Name, err)
	}
	return made, nil
}

// readCPU is the read of a monitor of processors.
func readCPU(mode config.CPUMode, system fs.FS) (func(time.Time) (float64, float64, error), error) {
	var c *resource.CPU
	var err error
	switch mode {
	case config.CPUContainer:
		c, err = resource.GroupCPU(system, runtime.NumCPU())
	case config.CPUProcess:
		c = resource.ProcessCPU(system, runtime.NumCPU())
	default:
		c = resource.HostCPU(system)
	}
	if err != nil {
		return nil, err
	}
	return func(now time.Time) (float64, float64, error) {
		share, err := c.Read(now)
		return share, 1, err
	}, nil
}

// memoryLimit is what the process's memory may be: what its control group may use, else
// what the machine has.
func memoryLimit(system fs.FS) (int64, error) {
	if g, err := resource.MemoryGroup(system); err == nil {
		if limit, err := g.MemoryLimit(); !errors.Is(err, resource.ErrNoLimit) {
			return limit, err
		}
	}
	return resource.MachineMemory(system)
}

func constant(n int64) func() (int64, error) { return func() (int64, error) { return n, nil } }

// bounded is the lesser of what is configured, unless that is 0, and what the system
// says.
func bounded(configured int64, system func() (int64, error)) func() (int64, error) {
	return func() (int64, error) {
		limit, err := system()
		switch {
		case configured == 0:
			return limit, err
		case err != nil: // what is configured is a limit anyhow
			return configured, nil //nolint:nilerr // as said
		}
		return min(limit, configured), nil
	}
}

// against reads what is used, and what there is. Where there is no limit nothing is
// short.
func against(used, limit func() (int64, error)) func(time.Time) (float64, float64, error) {
	return func(time.Time) (float64, float64, error) {
		n, err := used()
		if err != nil {
			return 0, 0, err
		}
		of, err := limit()
		if errors.Is(err, resource.ErrNoLimit) {
			return float64(n), 0, nil
		}
		return float64(n), float64(of), err
	}
}

// orNoneLeft is read, of descriptors, where reading takes one itself: if there is none
// left, all that there were are used.
func orNoneLeft(read func(time.Time) (used, of float64, err error)) func(time.Time) (float64, float64, error) {
	last := 1.0 // limit; as long as none is known any will do
	return func(now time.Time) (float64, float64, error) {
		used, of, err := read(now)
		switch {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return last, last, nil
		case err == nil && of > 0:
			last = of
		}
		return used, of, err
	}
}

// update reads the monitor. On an error it stays as it was.
func (m *monitor) update(now time.Time) error {
	used, of, err := m.read(now)
	if err != nil {
		return err
	}
	m.used, m.of, m.pressure = used, of, 0
	if of > 0 {
		m.pressure = used / of
	}
	return nil
}
