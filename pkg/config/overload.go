package config

import "time"

// Overload says what is watched of the process and its machine, and what is done
// when something runs short. Immutable.
type Overload struct {
	Interval time.Duration    // how often the monitors are read; default 250 ms
	Monitors []Monitor        // names are unique
	Actions  []OverloadAction // names are unique
}

// MonitorName says what is watched.
type MonitorName string

// What can be watched.
const (
	MonitorHeap        MonitorName = "fixed_heap"             // memory that Go manages, against Max
	MonitorMemory      MonitorName = "memory"                 // resident memory of the process
	MonitorCgroup      MonitorName = "cgroup_memory"          // memory of the control group
	MonitorDescriptors MonitorName = "file_descriptors"       // open ones, against RLIMIT_NOFILE
	MonitorCPU         MonitorName = "cpu_utilization"        // time of processors
	MonitorConnections MonitorName = "downstream_connections" // open ones of all listeners, against Max, which is also enforced
)

// Monitor is something that may run short. Its pressure is what is used as a share
// of what there is.
type Monitor struct {
	Name MonitorName
	// Max is what there is: bytes, descriptors or connections; 0: what the system
	// says, which MonitorHeap and MonitorConnections cannot ask.
	Max int64
	CPU CPUMode // of MonitorCPU
}

// CPUMode says whose time of processors is compared with what.
type CPUMode string

// The modes.
const (
	CPUHost      CPUMode = "HOST"      // of the machine, with all its processors
	CPUContainer CPUMode = "CONTAINER" // of the control group, with its quota
	CPUProcess   CPUMode = "PROCESS"   // of Weft alone, with the quota of its control group
)

// ActionName says what can be done.
type ActionName string

// What can be done. Each has a value from 0 to 1; those without a degree act at 1.
const (
	ActStopAccepting     ActionName = "stop_accepting_connections"  // connections wait in the kernel
	ActRejectConnections ActionName = "reject_incoming_connections" // a share is closed at once
	ActStopRequests      ActionName = "stop_accepting_requests"     // a share is refused
	ActDisableKeepAlive  ActionName = "disable_http_keepalive"      // a share of the answers ends its connection
	ActReduceTimeouts    ActionName = "reduce_timeouts"             // of idle connections of callers
	ActShrinkIdle        ActionName = "shrink_idle"                 // idle connections end, both sides
	ActShrinkHeap        ActionName = "shrink_heap"                 // memory that is free goes back to the system
)

// OverloadAction is what is done, and when. Its value is the highest of its triggers'.
type OverloadAction struct {
	Name     ActionName
	Triggers []Trigger

	// Of ActReduceTimeouts: what is left of the idle timeout at the value 1, as a
	// time or, if that is 0, as a share of it.
	LeastTimeout time.Duration
	LeastShare   float64
}

// Trigger gives an action a value: 0 up to the pressure From, 1 from To on, and
// between them in proportion. If both are the same it is all or nothing.
type Trigger struct {
	Monitor  MonitorName
	From, To float64 // 0 < From <= To <= 1
}

// AcceptRate limits how many connections a listener accepts. The zero value does not.
type AcceptRate struct {
	PerSecond float64 // 0: no limit
	Burst     int     // at once, after a pause; at least 1
}
