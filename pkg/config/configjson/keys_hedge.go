package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

// hedgeJSON is a route's hedge_policy, with Envoy's keys.
type hedgeJSON struct {
	Node         document.Node `key:"."`
	Initial      int           `key:"initial_requests" doc:"Number of requests sent immediately, each to a different host; at most the number of hosts of the cluster." unit:"requests" min:"1" max:"10" default:"1" example:"2"`
	Chance       *chanceJSON   `key:"additional_request_chance" doc:"Fraction of requests for which one more request is sent immediately. Absent: none."`
	OnTryTimeout bool          `key:"hedge_on_per_try_timeout" doc:"true: an attempt that exceeds retry_timeout continues, and another host is tried concurrently, if retry_policy retries timeouts and has retries left. false: the attempt ends." example:"true"`
}

type chanceJSON struct {
	Numerator   uint32 `key:"numerator" doc:"Numerator of the fraction." example:"25"`
	Denominator string `key:"denominator" doc:"Denominator of the fraction." enum:"HUNDRED|TEN_THOUSAND|MILLION" default:"HUNDRED" example:"\"MILLION\""`
}
