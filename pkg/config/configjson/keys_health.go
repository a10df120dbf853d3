package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

type healthCheckJSON struct {
	Protocol           string        `key:"protocol" doc:"What a check is: a connection (TCP), a request (Http1, Http2), a call of gRPC's health protocol (gRPC), or a heartbeat (dubbo, bolt, boltv2)." enum:"TCP|Http1|Http2|gRPC|dubbo|bolt|boltv2" default:"TCP" example:"\"Http1\""`
	Timeout            time.Duration `key:"timeout" doc:"For one check, connecting included. 0s: the default." default:"1s" example:"\"2s\""`
	Interval           time.Duration `key:"interval" doc:"From the end of a check to the next one. 0s: the default." default:"15s" example:"\"5s\""`
	IntervalJitter     time.Duration `key:"interval_jitter" doc:"Most that is added to an interval, at random." default:"5ms" example:"\"1s\""`
	InitialDelay       document.Node `key:"initial_delay_seconds" doc:"Before the first check of a host: a duration, or seconds. The first check decides, whatever the thresholds." accept:"string|number" example:"\"5s\""`
	HealthyThreshold   uint32        `key:"healthy_threshold" doc:"Good checks in a row that make a host healthy. 0: the default." unit:"checks" default:"1" example:"2"`
	UnhealthyThreshold uint32        `key:"unhealthy_threshold" doc:"Bad checks in a row that make it unhealthy: it gets nothing, unless all are. 0: the default." unit:"checks" default:"1" example:"3"`
	ServiceName        string        `key:"service_name" doc:"gRPC: the service that is asked after; absent: the server as a whole." example:"\"shop.Orders\""`
	Check              checkJSON     `key:"check_config" doc:"Settings by protocol."`
}

type checkJSON struct {
	HTTP httpCheckJSON `key:"http_check_config" doc:"The request of Http1 and Http2. gRPC knows port and domain of it."`
}

type httpCheckJSON struct {
	Port    uint16          `key:"port" doc:"Port, if not the host's." example:"8081"`
	Timeout time.Duration   `key:"timeout" doc:"For one check, in the place of health_check.timeout." example:"\"3s\""`
	Path    string          `key:"path" doc:"Path that is asked for, perhaps with a query." default:"/" example:"\"/healthz\""`
	Method  string          `key:"method" doc:"Method of the request." default:"GET" example:"\"HEAD\""`
	Scheme  string          `key:"scheme" doc:"Scheme of the request." noeffect:"checks speak TLS to a host if requests do" example:"\"http\""`
	Domain  string          `key:"domain" doc:"Host of the request; absent: the host's hostname, or its address." example:"\"shop\""`
	Codes   []codeRangeJSON `key:"codes" doc:"Statuses that are good; absent: 200."`
}

type codeRangeJSON struct {
	Node  document.Node `key:"."`
	Start int           `key:"Start" doc:"First status that is good." min:"100" max:"999" default:"200" example:"300"`
	End   int           `key:"End" doc:"Last status that is good; absent: Start." min:"100" max:"999" example:"299"`
}

type outlierJSON struct {
	Consecutive5xx     int  `key:"consecutive_5xx" doc:"Failures in a row: answers of 500 and more (of RPC by what their status means in HTTP), and what split_external_local_origin_errors does not take apart." unit:"failures" min:"1" default:"5" example:"3"`
	ConsecutiveGateway int  `key:"consecutive_gateway_failure" doc:"Answers of 502, 503 or 504 in a row." unit:"failures" min:"1" default:"5" example:"3"`
	ConsecutiveLocal   int  `key:"consecutive_local_origin_failure" doc:"Failures on this side in a row: connecting, resets, timeouts, answers that are none. With split_external_local_origin_errors." unit:"failures" min:"1" default:"5" example:"3"`
	Enforce5xx         int  `key:"enforcing_consecutive_5xx" doc:"Share of the detections by consecutive_5xx that eject." unit:"percent" min:"0" max:"100" default:"100" example:"50"`
	EnforceGateway     int  `key:"enforcing_consecutive_gateway_failure" doc:"Share of the detections by consecutive_gateway_failure that eject." unit:"percent" min:"0" max:"100" default:"0" example:"100"`
	EnforceLocal       int  `key:"enforcing_consecutive_local_origin_failure" doc:"Share of the detections by consecutive_local_origin_failure that eject." unit:"percent" min:"0" max:"100" default:"100" example:"50"`
	SplitLocal         bool `key:"split_external_local_origin_errors" doc:"Count failures on this side apart from bad answers; else they count as answers of 502 or 504." default:"false" example:"true"`

	Interval       time.Duration `key:"interval" doc:"How often rates are looked at, and hosts return whose time is over." min:"1ms" default:"10s" example:"\"5s\""`
	BaseTime       time.Duration `key:"base_ejection_time" doc:"How long a host is out, times its ejections in a row. Each interval that it gets through takes one from them." min:"1ms" default:"30s" example:"\"10s\""`
	MaxTime        time.Duration `key:"max_ejection_time" doc:"Longest ejection, if that is more than base_ejection_time." min:"1ms" default:"300s" example:"\"60s\""`
	TimeJitter     time.Duration `key:"max_ejection_time_jitter" doc:"Most that is added to an ejection, at random." default:"0s" example:"\"1s\""`
	MaxPercent     int           `key:"max_ejection_percent" doc:"Share of the hosts that may be out at once, rounded down: 10 of five hosts is none." unit:"percent" min:"0" max:"100" default:"10" example:"50"`
	AlwaysEjectOne bool          `key:"always_eject_one_host" doc:"One host may be out, whatever max_ejection_percent says." default:"false" example:"true"`
	CheckReturns   bool          `key:"successful_active_health_check_uneject_host" doc:"A good health_check brings a host back at once." default:"true" example:"false"`

	SuccessMinHosts     int `key:"success_rate_minimum_hosts" doc:"Hosts with success_rate_request_volume that success rates are compared among; with fewer there is no judgement." unit:"hosts" min:"1" default:"5" example:"3"`
	SuccessVolume       int `key:"success_rate_request_volume" doc:"Requests in an interval that a host is judged by." unit:"requests" min:"1" default:"100" example:"50"`
	SuccessStdevFactor  int `key:"success_rate_stdev_factor" doc:"Hosts are ejected whose success rate is below the mean by so many thousandths of the standard deviation." min:"0" default:"1900" example:"1500"`
	EnforceSuccess      int `key:"enforcing_success_rate" doc:"Share of the detections by success rate that eject." unit:"percent" min:"0" max:"100" default:"100" example:"0"`
	EnforceLocalSuccess int `key:"enforcing_local_origin_success_rate" doc:"The same for failures on this side. With split_external_local_origin_errors." unit:"percent" min:"0" max:"100" default:"100" example:"0"`

	FailureThreshold    int `key:"failure_percentage_threshold" doc:"Hosts are ejected whose share of failures is that, or more." unit:"percent" min:"0" max:"100" default:"85" example:"50"`
	FailureMinHosts     int `key:"failure_percentage_minimum_hosts" doc:"Hosts with failure_percentage_request_volume that there must be." unit:"hosts" min:"1" default:"5" example:"1"`
	FailureVolume       int `key:"failure_percentage_request_volume" doc:"Requests in an interval that a host is judged by." unit:"requests" min:"1" default:"50" example:"20"`
	EnforceFailure      int `key:"enforcing_failure_percentage" doc:"Share of the detections by failure percentage that eject." unit:"percent" min:"0" max:"100" default:"0" example:"100"`
	EnforceLocalFailure int `key:"enforcing_failure_percentage_local_origin" doc:"The same for failures on this side. With split_external_local_origin_errors." unit:"percent" min:"0" max:"100" default:"0" example:"100"`
}
