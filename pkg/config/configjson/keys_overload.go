package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// overloadJSON is overload_manager, with Envoy's structure.
type overloadJSON struct {
	Node     document.Node        `key:"."`
	Interval time.Duration        `key:"refresh_interval,refreshInterval" doc:"Interval of reading the monitors." min:"10ms" default:"250ms" example:"\"1s\""`
	Monitors []monitorJSON        `key:"resource_monitors,resourceMonitors" doc:"Monitored resources. The pressure of a monitor is the used fraction of its limit; see docs/overload.md."`
	Actions  []overloadActionJSON `key:"actions" doc:"Overload actions and their triggers; see docs/overload.md."`

	LoadShed document.Node `key:"loadshed_points,loadshedPoints" doc:"Envoy's load shed points." accept:"list" unbuilt:"loadshed_points" example:"[{\"name\": \"envoy.load_shed_points.http1_server_abort_dispatch\"}]"`
	Buffers  document.Node `key:"buffer_factory_config,bufferFactoryConfig" doc:"Envoy's buffer accounting." accept:"object" unbuilt:"buffer_factory_config" example:"{\"minimum_account_to_track_power_of_two\": 20}"`
}

type monitorJSON struct {
	Node   document.Node     `key:"."`
	Name   string            `key:"name" doc:"Name of the monitor: fixed_heap, memory, cgroup_memory, file_descriptors, cpu_utilization or downstream_connections; or in Envoy's form, \"envoy.resource_monitors.fixed_heap\"." required:"true" example:"\"memory\""`
	Config monitorConfigJSON `key:"typed_config,typedConfig,config" doc:"Settings of the monitor."`
}

type monitorConfigJSON struct {
	Node           document.Node  `key:"."`
	Type           string         `key:"@type" doc:"Envoy's type of the settings. Ignored: the name of the monitor determines it." example:"\"type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig\""`
	MaxHeap        int64          `key:"max_heap_size_bytes,maxHeapSizeBytes" doc:"fixed_heap: limit of the Go heap. Required for fixed_heap." unit:"bytes" min:"1048576" numeral:"true" example:"268435456"`
	MaxMemory      int64          `key:"max_memory_bytes,maxMemoryBytes" doc:"memory, cgroup_memory: limit of memory, if lower than the system's limit. 0: the system's limit." unit:"bytes" min:"0" numeral:"true" default:"0" example:"268435456"`
	MaxDescriptors int64          `key:"max_file_descriptors,maxFileDescriptors" doc:"file_descriptors: limit of open file descriptors, if lower than RLIMIT_NOFILE. 0: RLIMIT_NOFILE." unit:"descriptors" min:"0" numeral:"true" default:"0" example:"1000"`
	MaxConnections int64          `key:"max_active_downstream_connections,maxActiveDownstreamConnections" doc:"downstream_connections: maximum number of client connections; further connections are closed immediately. Required for downstream_connections." unit:"connections" min:"1" numeral:"true" example:"10000"`
	Mode           config.CPUMode `key:"mode" doc:"cpu_utilization: measured CPU time, smoothed over about 5 s. HOST: CPU time of the machine, of all CPUs. CONTAINER: CPU time of the control group, of its quota (without a quota, of the CPUs that Weft may use). PROCESS: CPU time of Weft, of the same limit." enum:"HOST|CONTAINER|PROCESS" default:"HOST" example:"\"CONTAINER\""`
}

type overloadActionJSON struct {
	Node     document.Node    `key:"."`
	Name     string           `key:"name" doc:"Name of the action: stop_accepting_requests, disable_http_keepalive, reduce_timeouts, reject_incoming_connections, stop_accepting_connections, shrink_idle or shrink_heap; or in Envoy's form, \"envoy.overload_actions.shrink_heap\"." required:"true" example:"\"stop_accepting_requests\""`
	Triggers []triggerJSON    `key:"triggers" doc:"Triggers of the action; the one with the highest value applies." required:"true"`
	Config   actionConfigJSON `key:"typed_config,typedConfig,config" doc:"Settings of the action."`
}

type triggerJSON struct {
	Node      document.Node `key:"."`
	Name      string        `key:"name" doc:"Name of the monitor." required:"true" example:"\"memory\""`
	Threshold *struct {
		Value float64 `key:"value" doc:"Pressure at which the action takes full effect. It stops after the pressure has been 3 % lower for 1 s." min:"0" max:"1" required:"true" example:"0.95"`
	} `key:"threshold" doc:"On/off trigger at one pressure."`
	Scaled *struct {
		Scaling    float64 `key:"scaling_threshold,scalingThreshold" doc:"Pressure at which the action begins." min:"0" max:"1" required:"true" example:"0.8"`
		Saturation float64 `key:"saturation_threshold,saturationThreshold" doc:"Pressure at which the action takes full effect." min:"0" max:"1" required:"true" example:"0.9"`
	} `key:"scaled" doc:"Proportional trigger between two pressures."`
}

type actionConfigJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"@type" doc:"Envoy's type of the settings. Ignored: the name of the action determines it." example:"\"type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig\""`
	Timers []timerJSON   `key:"timer_scale_factors,timerScaleFactors" doc:"reduce_timeouts: reduced values of timeouts when the action takes full effect. Absent: a tenth of the idle timeout of client connections."`
}

type timerJSON struct {
	Node       document.Node `key:"."`
	Timer      string        `key:"timer" doc:"Name of the timer: HTTP_DOWNSTREAM_CONNECTION_IDLE is connection_idle_timeout of client connections." enum:"HTTP_DOWNSTREAM_CONNECTION_IDLE" required:"true" example:"\"HTTP_DOWNSTREAM_CONNECTION_IDLE\""`
	MinTimeout time.Duration `key:"min_timeout,minTimeout" doc:"Reduced timeout, as a duration." example:"\"2s\""`
	MinScale   *struct {
		Value float64 `key:"value" doc:"Percentage of the configured timeout." unit:"percent" min:"0" max:"100" required:"true" example:"20"`
	} `key:"min_scale,minScale" doc:"Reduced timeout, as a percentage."`
}

// acceptRateJSON is accept_rate of a listener.
type acceptRateJSON struct {
	Node      document.Node `key:"."`
	PerSecond float64       `key:"per_second" doc:"Maximum rate of accepted connections per second. 0: no limit." unit:"connections" min:"0" max:"1000000" required:"true" example:"500"`
	Burst     int           `key:"burst" doc:"Maximum burst of accepted connections after a pause. Absent: the connections of one second." unit:"connections" min:"0" max:"1000000" example:"1000"`
}
