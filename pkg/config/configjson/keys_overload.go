package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// overloadJSON is overload_manager, with Envoy's structure.
type overloadJSON struct {
	Node     document.Node        `key:"."`
	Interval time.Duration        `key:"refresh_interval,refreshInterval" doc:"How often the monitors are read." min:"10ms" default:"250ms" example:"\"1s\""`
	Monitors []monitorJSON        `key:"resource_monitors,resourceMonitors" doc:"What is watched. A monitor's pressure is what is used as a share of what there is: see docs/overload.md."`
	Actions  []overloadActionJSON `key:"actions" doc:"What is done, and when: see docs/overload.md."`

	LoadShed document.Node `key:"loadshed_points,loadshedPoints" doc:"Places of another proxy where load is shed." accept:"list" unbuilt:"loadshed_points" example:"[{\"name\": \"envoy.load_shed_points.http1_server_abort_dispatch\"}]"`
	Buffers  document.Node `key:"buffer_factory_config,bufferFactoryConfig" doc:"Accounts of another proxy's buffers." accept:"object" unbuilt:"buffer_factory_config" example:"{\"minimum_account_to_track_power_of_two\": 20}"`
}

type monitorJSON struct {
	Node   document.Node     `key:"."`
	Name   string            `key:"name" doc:"Which: fixed_heap, memory, cgroup_memory, file_descriptors, cpu_utilization or downstream_connections; or as Envoy has it, \"envoy.resource_monitors.fixed_heap\"." required:"true" example:"\"memory\""`
	Config monitorConfigJSON `key:"typed_config,typedConfig,config" doc:"The monitor's settings."`
}

type monitorConfigJSON struct {
	Node           document.Node  `key:"."`
	Type           string         `key:"@type" doc:"Envoy's name of the settings; the monitor's name says it." example:"\"type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig\""`
	MaxHeap        int64          `key:"max_heap_size_bytes,maxHeapSizeBytes" doc:"fixed_heap: all that there is. Required there." unit:"bytes" min:"1048576" numeral:"true" example:"268435456"`
	MaxMemory      int64          `key:"max_memory_bytes,maxMemoryBytes" doc:"memory, cgroup_memory: all that there is, if the system's limit is not less. 0: the system's." unit:"bytes" min:"0" numeral:"true" default:"0" example:"268435456"`
	MaxDescriptors int64          `key:"max_file_descriptors,maxFileDescriptors" doc:"file_descriptors: all that there are, if RLIMIT_NOFILE is not less. 0: RLIMIT_NOFILE." unit:"descriptors" min:"0" numeral:"true" default:"0" example:"1000"`
	MaxConnections int64          `key:"max_active_downstream_connections,maxActiveDownstreamConnections" doc:"downstream_connections: all that there may be: more are closed at once. Required there." unit:"connections" min:"1" numeral:"true" example:"10000"`
	Mode           config.CPUMode `key:"mode" doc:"cpu_utilization: what is compared, smoothed over about 5 s. HOST: the time that the machine's processors work with all of it; CONTAINER: that of the control group with its quota (without one, with the processors that Weft may use); PROCESS: that of Weft with the same." enum:"HOST|CONTAINER|PROCESS" default:"HOST" example:"\"CONTAINER\""`
}

type overloadActionJSON struct {
	Node     document.Node    `key:"."`
	Name     string           `key:"name" doc:"Which: stop_accepting_requests, disable_http_keepalive, reduce_timeouts, reject_incoming_connections, stop_accepting_connections, shrink_idle or shrink_heap; or as Envoy has it, \"envoy.overload_actions.shrink_heap\"." required:"true" example:"\"stop_accepting_requests\""`
	Triggers []triggerJSON    `key:"triggers" doc:"When; the highest counts." required:"true"`
	Config   actionConfigJSON `key:"typed_config,typedConfig,config" doc:"The action's settings."`
}

type triggerJSON struct {
	Node      document.Node `key:"."`
	Name      string        `key:"name" doc:"The monitor that is gone by." required:"true" example:"\"memory\""`
	Threshold *struct {
		Value float64 `key:"value" doc:"Pressure from which on the action acts in full. It lets go once the pressure was 3 % below that for 1 s." min:"0" max:"1" required:"true" example:"0.95"`
	} `key:"threshold" doc:"All or nothing."`
	Scaled *struct {
		Scaling    float64 `key:"scaling_threshold,scalingThreshold" doc:"Pressure from which on the action begins." min:"0" max:"1" required:"true" example:"0.8"`
		Saturation float64 `key:"saturation_threshold,saturationThreshold" doc:"Pressure from which on it acts in full." min:"0" max:"1" required:"true" example:"0.9"`
	} `key:"scaled" doc:"In proportion, between two pressures."`
}

type actionConfigJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"@type" doc:"Envoy's name of the settings; the action's name says it." example:"\"type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig\""`
	Timers []timerJSON   `key:"timer_scale_factors,timerScaleFactors" doc:"reduce_timeouts: what is left of which timeout when the action acts in full; absent: a tenth of callers' idle timeouts."`
}

type timerJSON struct {
	Node       document.Node `key:"."`
	Timer      string        `key:"timer" doc:"Which: that of idle connections of callers, connection_idle_timeout." enum:"HTTP_DOWNSTREAM_CONNECTION_IDLE" required:"true" example:"\"HTTP_DOWNSTREAM_CONNECTION_IDLE\""`
	MinTimeout time.Duration `key:"min_timeout,minTimeout" doc:"What is left, as a time." example:"\"2s\""`
	MinScale   *struct {
		Value float64 `key:"value" doc:"What is left, of the whole." unit:"percent" min:"0" max:"100" required:"true" example:"20"`
	} `key:"min_scale,minScale" doc:"What is left, as a share."`
}

// acceptRateJSON is accept_rate of a listener.
type acceptRateJSON struct {
	Node      document.Node `key:"."`
	PerSecond float64       `key:"per_second" doc:"Connections accepted in a second; 0: no limit." unit:"connections" min:"0" max:"1000000" required:"true" example:"500"`
	Burst     int           `key:"burst" doc:"Connections accepted at once after a pause; absent: those of a second." unit:"connections" min:"0" max:"1000000" example:"1000"`
}
