package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// retryJSON is a route's retry_policy: MOSN's keys, with Envoy's as aliases.
type retryJSON struct {
	Node        document.Node     `key:"."`
	On          document.Node     `key:"retry_on" choice:"retry,list" doc:"Conditions for a retry: true for 5xx responses, gRPC status unavailable (14), lost connections and the lists below; or names from [Retries](#retries), separated by commas." accept:"bool|string" example:"true"`
	TryTimeout  time.Duration     `key:"retry_timeout,per_try_timeout" doc:"Timeout of one attempt. 0s: only the timeout of the route applies." default:"0s" example:"\"1s\""`
	NumRetries  int               `key:"num_retries" doc:"Maximum number of retries of a request." unit:"retries" min:"0" max:"100" default:"1" example:"3"`
	StatusCodes []int             `key:"status_codes,retriable_status_codes" doc:"Further responses to retry: HTTP statuses, or for RPC their HTTP equivalents." min:"100" max:"599" example:"[429]"`
	RPCCodes    []int             `key:"rpc_status_codes" doc:"Further RPC responses to retry: statuses in the numbers of the RPC protocol." min:"1" max:"65535" example:"[100]"`
	Headers     []retryHeaderJSON `key:"retriable_headers" doc:"Further responses to retry: those with one of these headers."`
	BackOff     backOffJSON       `key:"retry_back_off" doc:"Delay of retries: a random time up to a bound that grows with each retry of a request."`

	HostPredicate document.Node `key:"retry_host_predicate" doc:"Hosts that are not tried again." accept:"list" noeffect:"hosts that have been tried are skipped while another host exists" example:"[{\"name\": \"envoy.retry_host_predicates.previous_hosts\"}]"`
	HostAttempts  int           `key:"host_selection_retry_max_attempts" doc:"Maximum number of attempts to select another host." noeffect:"Weft finds an untried host immediately if there is one" example:"3"`
	Priority      document.Node `key:"retry_priority" doc:"Priorities that retries prefer." accept:"object" unbuilt:"retry_priority" example:"{\"name\": \"envoy.retry_priorities.previous_priorities\"}"`
	RateLimited   document.Node `key:"rate_limited_retry_back_off" doc:"Retry delays that responses request." accept:"object" unbuilt:"rate_limited_retry_back_off" example:"{\"max_interval\": \"1s\"}"`
}

type retryHeaderJSON struct {
	Name  string `key:"name" doc:"Name of the header." required:"true" example:"\"x-try-again\""`
	Value string `key:"value" doc:"Required value of the header. Empty: any value." example:"\"yes\""`
}

type backOffJSON struct {
	Node document.Node `key:"."`
	Base time.Duration `key:"base_interval" doc:"Bound of the first retry delay. The bound of the second retry is three times as long, that of the third seven times. 0s: no delay." max:"1h" default:"25ms" example:"\"100ms\""`
	Max  time.Duration `key:"max_interval" doc:"Maximum bound. 0s: ten times base_interval." max:"1h" default:"0s" example:"\"1s\""`
}
