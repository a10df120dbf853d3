package config

import "time"

// Overload configures the overload manager: monitors of the process and its machine, and the
// actions that they trigger. It is immutable.
type Overload struct {
	Interval time.Duration    // how often the monitors are read; default 250 ms
	Monitors []Monitor        // names are unique
	Actions  []OverloadAction // names are unique
}

// MonitorName is the name of a monitor.
type MonitorName string

// The monitors.
const (
	MonitorHeap        MonitorName = "fixed_heap"             // memory that the Go runtime manages, compared with Max
	MonitorMemory      MonitorName = "memory"                 // resident memory of the process
	MonitorCgroup      MonitorName = "cgroup_memory"          // memory of the control group
	MonitorDescriptors MonitorName = "file_descriptors"       // open file descriptors, compared with RLIMIT_NOFILE
	MonitorCPU         MonitorName = "cpu_utilization"        // CPU time
	MonitorConnections MonitorName = "downstream_connections" // open connections of all listeners, compared with Max, which is also enforced
)

// Monitor measures a resource. Its pressure is the used fraction of the limit.
type Monitor struct {
	Name MonitorName
	// Max is the limit in bytes, descriptors or connections. 0: the limit of the system; for
	// MonitorHeap and MonitorConnections, which have no such limit, Max is above 0.
	Max int64
	CPU CPUMode // mode of MonitorCPU
}

// CPUMode says which CPU time is compared with which limit.
type CPUMode string

// The modes.
const (
	CPUHost      CPUMode = "HOST"      // CPU time of the machine, compared with all of its CPUs
	CPUContainer CPUMode = "CONTAINER" // CPU time of the control group, compared with its quota
	CPUProcess   CPUMode = "PROCESS"   // CPU time of Weft, compared with the quota of its control group
)

// ActionName is the name of an overload action.
type ActionName string

// The actions. Each has a value from 0 to 1. An action that can only be on or off is on at 1.
const (
	ActionStopAccepting     ActionName = "stop_accepting_connections"  // new connections wait in the kernel backlog
	ActionRejectConnections ActionName = "reject_incoming_connections" // a fraction is closed immediately
	ActionStopRequests      ActionName = "stop_accepting_requests"     // a fraction is rejected
	ActionDisableKeepAlive  ActionName = "disable_http_keepalive"      // a fraction of the responses closes the connection
	ActionReduceTimeouts    ActionName = "reduce_timeouts"             // shortens the idle timeouts of downstream connections
	ActionShrinkIdle        ActionName = "shrink_idle"                 // closes idle connections, downstream and upstream
	ActionShrinkHeap        ActionName = "shrink_heap"                 // returns free memory to the system
)

// OverloadAction is an action and its triggers. Its value is the highest value of its triggers.
type OverloadAction struct {
	Name     ActionName
	Triggers []Trigger

	// MinTimeout and MinScale define the idle timeout that ActionReduceTimeouts sets at the value 1:
	// MinTimeout or, if that is 0, MinScale times the configured timeout.
	MinTimeout time.Duration
	MinScale   float64
}

// Trigger maps a pressure to the value of an action: 0 up to the pressure From, 1 from To on, and
// linear in between. If both are equal, the value is 0 or 1.
type Trigger struct {
	Monitor  MonitorName
	From, To float64 // 0 < From <= To <= 1
}

// AcceptRate limits the rate of connections that a listener accepts. The zero value means no limit.
type AcceptRate struct {
	PerSecond float64 // 0: no limit
	Burst     int     // maximum burst after a pause; at least 1
}
