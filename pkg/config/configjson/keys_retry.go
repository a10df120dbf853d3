package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// retryJSON is a route's retry_policy: MOSN's keys, with Envoy's as aliases.
type retryJSON struct {
	Node        document.Node     `key:"."`
	On          document.Node     `key:"retry_on" choice:"retry,list" doc:"What is tried again: true for 5xx, calls of gRPC that are unavailable (14), lost connections, and what the lists below name; or the words of [Retries](#retries), separated by commas." accept:"bool|string" example:"true"`
	TryTimeout  time.Duration     `key:"retry_timeout,per_try_timeout" doc:"For one try; 0s: the route's timeout alone." default:"0s" example:"\"1s\""`
	NumRetries  int               `key:"num_retries" doc:"Most retries of a request." unit:"retries" min:"0" max:"100" default:"1" example:"3"`
	StatusCodes []int             `key:"status_codes,retriable_status_codes" doc:"Answers that are retried too: their status in HTTP, or in HTTP's terms." min:"100" max:"599" example:"[429]"`
	RPCCodes    []int             `key:"rpc_status_codes" doc:"Answers of RPC that are retried too: the status in the protocol's own numbers." min:"1" max:"65535" example:"[100]"`
	Headers     []retryHeaderJSON `key:"retriable_headers" doc:"Answers that are retried too: those with one of these fields."`
	BackOff     backOffJSON       `key:"retry_back_off" doc:"How long a retry waits: any time up to a bound, which grows from one retry of a request to the next."`

	HostPredicate document.Node `key:"retry_host_predicate" doc:"Hosts that are not tried again." accept:"list" noeffect:"hosts that were tried are passed over while there is another" example:"[{\"name\": \"envoy.retry_host_predicates.previous_hosts\"}]"`
	HostAttempts  int           `key:"host_selection_retry_max_attempts" doc:"How often another host is looked for." noeffect:"a host that was not tried is found at once if there is one" example:"3"`
	Priority      document.Node `key:"retry_priority" doc:"Priorities that retries prefer." accept:"object" unbuilt:"retry_priority" example:"{\"name\": \"envoy.retry_priorities.previous_priorities\"}"`
	RateLimited   document.Node `key:"rate_limited_retry_back_off" doc:"Waits as answers ask for." accept:"object" unbuilt:"rate_limited_retry_back_off" example:"{\"max_interval\": \"1s\"}"`
}

type retryHeaderJSON struct {
	Name  string `key:"name" doc:"Name of the field." required:"true" example:"\"x-try-again\""`
	Value string `key:"value" doc:"What it must be; empty: anything." example:"\"yes\""`
}

type backOffJSON struct {
	Node document.Node `key:"."`
	Base time.Duration `key:"base_interval" doc:"The bound of the first retry; the second's is three times that, the third's seven times. 0s: no retry waits." max:"1h" default:"25ms" example:"\"100ms\""`
	Max  time.Duration `key:"max_interval" doc:"No bound is larger. 0s: ten times base_interval." max:"1h" default:"0s" example:"\"1s\""`
}
