package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

// hedgeJSON is a route's hedge_policy, with Envoy's keys.
type hedgeJSON struct {
	Node         document.Node `key:"."`
	Initial      int           `key:"initial_requests" doc:"Requests that are sent at once, each to another host; no more than the cluster has." unit:"requests" min:"1" max:"10" default:"1" example:"2"`
	Chance       *chanceJSON   `key:"additional_request_chance" doc:"How often one more is sent at once; absent: never."`
	OnTryTimeout bool          `key:"hedge_on_per_try_timeout" doc:"true: a try that takes longer than retry_timeout stays, and another host is asked beside it, as far as retry_policy has retries left and retries what took too long. false: it ends." example:"true"`
}

type chanceJSON struct {
	Numerator   uint32 `key:"numerator" doc:"So many of denominator." example:"25"`
	Denominator string `key:"denominator" doc:"The whole." enum:"HUNDRED|TEN_THOUSAND|MILLION" default:"HUNDRED" example:"\"MILLION\""`
}
