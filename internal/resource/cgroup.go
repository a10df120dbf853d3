package resource

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cgroupMount is the usual mount point of control groups.
const cgroupMount = "sys/fs/cgroup"

// The controllers.
const (
	memoryController = "memory"
	cpuController    = "cpu"
)

// Cgroup is the control group of the process for one controller: memory or cpu. The limits of the
// parent groups apply too. Immutable.
type Cgroup struct {
	system     fs.FS
	v2         bool
	dirs       []string // the innermost group that has the controller, then its visible parents
	cpuacctDir string   // v1: the directory of cpuacct.usage
}

// MemoryCgroup returns the control group that accounts for the memory of the process.
func MemoryCgroup(system fs.FS) (*Cgroup, error) { return findCgroup(system, memoryController) }

// CPUCgroup returns the control group that accounts for the processor time of the process.
func CPUCgroup(system fs.FS) (*Cgroup, error) { return findCgroup(system, cpuController) }

// findCgroup reads /proc/self/cgroup (cgroups(7)). Its lines are "ID:CONTROLLERS:PATH"; the v2 line
// has no controllers. On a machine with both versions, a controller that v1 has belongs to v1.
func findCgroup(system fs.FS, controller string) (*Cgroup, error) {
	const name = "proc/self/cgroup"
	data, err := fs.ReadFile(system, name)
	if err != nil {
		return nil, err
	}
	unified := ""
	for line := range bytes.Lines(data) {
		fields := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: malformed line %q", name, line)
		}
		if fields[1] == "" {
			unified = fields[2]
			continue
		}
		if slices.Contains(strings.Split(fields[1], ","), controller) {
			return cgroupV1(system, controller, fields[1], fields[2])
		}
	}
	if unified == "" {
		return nil, fmt.Errorf("%s lists no cgroup with the controller %s: %w", name, controller, fs.ErrNotExist)
	}
	for _, root := range []string{cgroupMount, cgroupMount + "/unified"} {
		dirs := cgroupDirs(system, root, unified, "cgroup.controllers")
		for len(dirs) > 0 && !accountsFor(system, dirs[0], controller) {
			dirs = dirs[1:]
		}
		if len(dirs) > 0 {
			return &Cgroup{system: system, v2: true, dirs: dirs}, nil
		}
	}
	return nil, fmt.Errorf("%s: no cgroup with the controller %s: %w", cgroupMount, controller, fs.ErrNotExist)
}

// accountsFor reports whether the v2 group in dir accounts for the controller's resource. The
// parents account for a group without the controller; the root group has no memory accounting.
func accountsFor(system fs.FS, dir, controller string) bool {
	file := "memory.current"
	if controller == cpuController {
		file = "cpu.stat"
	}
	_, err := fs.Stat(system, path.Join(dir, file))
	return err == nil
}

// cgroupV1 returns a v1 group. controllers names the controllers that share the hierarchy,
// separated by commas: the mount point is named after all of them or after one.
func cgroupV1(system fs.FS, controller, controllers, groupPath string) (*Cgroup, error) {
	file, root := "memory.usage_in_bytes", ""
	if controller == cpuController {
		file = "cpu.cfs_quota_us"
	}
	g := &Cgroup{system: system}
	for _, root = range []string{cgroupMount + "/" + controllers, cgroupMount + "/" + controller} {
		if g.dirs = cgroupDirs(system, root, groupPath, file); len(g.dirs) > 0 {
			break
		}
	}
	if len(g.dirs) == 0 {
		return nil, fmt.Errorf("%s/%s: %w", cgroupMount, controller, fs.ErrNotExist)
	}
	if controller == cpuController {
		for _, root := range []string{root, cgroupMount + "/cpuacct"} {
			if acctDirs := cgroupDirs(system, root, groupPath, "cpuacct.usage"); len(acctDirs) > 0 {
				g.cpuacctDir = acctDirs[0]
				break
			}
		}
	}
	return g, nil
}

// cgroupDirs returns the directories from the group at groupPath up to root that contain file,
// innermost first. In a container, groupPath may be a path on the machine of which the mount
// contains only the end.
func cgroupDirs(system fs.FS, root, groupPath, file string) (dirs []string) {
	for groupPath = path.Clean("/" + groupPath); ; groupPath = path.Dir(groupPath) {
		dir := path.Join(root, groupPath)
		if _, err := fs.Stat(system, path.Join(dir, file)); err == nil {
			dirs = append(dirs, dir)
		}
		if groupPath == "/" {
			return dirs
		}
	}
}

// Memory returns the memory usage of the group in bytes, without inactive_file, the part of the
// page cache that the kernel reclaims first.
func (g *Cgroup) Memory() (int64, error) {
	file, cache := "memory.current", "inactive_file"
	if !g.v2 {
		file, cache = "memory.usage_in_bytes", "total_inactive_file"
	}
	used, err := readNumber(g.system, g.dirs[0]+"/"+file)
	if err != nil {
		return 0, err
	}
	stat, err := fs.ReadFile(g.system, g.dirs[0]+"/memory.stat")
	if err != nil {
		return 0, err
	}
	if fields := lineFields(stat, cache); len(fields) > 0 {
		inactive, err := parseNumber("memory.stat", fields[0])
		if err != nil {
			return 0, err
		}
		used = max(0, used-inactive)
	}
	return used, nil
}

// unlimitedV1 is the value from which a v1 limit means no limit: without a limit, v1 reports almost
// 2^63 bytes.
const unlimitedV1 = 1 << 62

// MemoryLimit returns the lowest memory limit of the group and its ancestors, in bytes. It returns
// ErrNoLimit if none of them has a limit.
func (g *Cgroup) MemoryLimit() (int64, error) {
	file := "memory.max"
	if !g.v2 {
		file = "memory.limit_in_bytes"
	}
	lowestLimit := int64(0)
	for _, dir := range g.dirs {
		limit, err := readNumber(g.system, dir+"/"+file)
		if errors.Is(err, ErrNoLimit) || errors.Is(err, fs.ErrNotExist) || limit >= unlimitedV1 { // the root of v2 has no such file
			continue
		}
		if err != nil {
			return 0, err
		}
		if lowestLimit == 0 || limit < lowestLimit {
			lowestLimit = limit
		}
	}
	if lowestLimit == 0 {
		return 0, ErrNoLimit
	}
	return lowestLimit, nil
}

// time returns the processor time that the group's processes have used.
func (g *Cgroup) time() (time.Duration, error) {
	if !g.v2 {
		n, err := readNumber(g.system, g.cpuacctDir+"/cpuacct.usage") // nanoseconds
		return time.Duration(n), err
	}
	data, err := fs.ReadFile(g.system, g.dirs[0]+"/cpu.stat")
	if err != nil {
		return 0, err
	}
	fields := lineFields(data, "usage_usec")
	if len(fields) < 1 {
		return 0, fmt.Errorf("%s/cpu.stat has no usage_usec", g.dirs[0])
	}
	n, err := parseNumber("cpu.stat", fields[0])
	return time.Duration(n) * time.Microsecond, err
}

// Processors returns how many processors the group may keep busy: the lowest quota of the group and
// its ancestors. It returns ErrNoLimit if none of them has a quota.
func (g *Cgroup) Processors() (float64, error) {
	lowestQuota := 0.0
	for _, dir := range g.dirs {
		n, err := g.quota(dir)
		if errors.Is(err, ErrNoLimit) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if lowestQuota == 0 || n < lowestQuota {
			lowestQuota = n
		}
	}
	if lowestQuota == 0 {
		return 0, ErrNoLimit
	}
	return lowestQuota, nil
}

// quota returns the quota of one group, in processors.
func (g *Cgroup) quota(dir string) (float64, error) {
	if !g.v2 {
		quota, err := readNumber(g.system, dir+"/cpu.cfs_quota_us")
		if err != nil {
			return 0, err
		}
		period, err := readNumber(g.system, dir+"/cpu.cfs_period_us")
		if err == nil && (quota <= 0 || period <= 0) {
			err = ErrNoLimit
		}
		return float64(quota) / float64(period), err
	}
	data, err := fs.ReadFile(g.system, dir+"/cpu.max") // "max 100000": quota and period, in microseconds
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return 0, fmt.Errorf("%s/cpu.max: malformed content %q", dir, data)
	}
	if fields[0] == "max" {
		return 0, ErrNoLimit
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err := errors.Join(err1, err2); err != nil || quota <= 0 || period <= 0 {
		return 0, fmt.Errorf("%s/cpu.max: malformed content %q", dir, data)
	}
	return quota / period, nil
}
