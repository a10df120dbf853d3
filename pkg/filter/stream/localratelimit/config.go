package localratelimit

import (
	"time"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
)

// Config is the filter's configuration, in the format of Envoy's local rate limit v3.
type Config struct {
	Prefix        string                  `key:"stat_prefix" doc:"Label of the metrics." example:"\"shop\""`
	Status        Status                  `key:"status" doc:"What HTTP callers are answered."`
	Bucket        *BucketConfig           `key:"token_bucket" doc:"What all requests share."`
	Enabled       *match.ShareConfig      `key:"filter_enabled" doc:"Share of requests that are counted; absent: all."`
	Enforced      *match.ShareConfig      `key:"filter_enforced" doc:"Share of the requests beyond a limit that are refused; absent: all."`
	RequestAdd    []filter.HeaderAddition `key:"request_headers_to_add_when_not_enforced" doc:"Fields added to requests that are beyond a limit and go on."`
	ResponseAdd   []filter.HeaderAddition `key:"response_headers_to_add" doc:"Fields added to answers to requests that are refused."`
	Limits        []RateLimitConfig       `key:"rate_limits" doc:"What is counted apart: each makes a descriptor of a request."`
	Descriptors   []Descriptor            `key:"descriptors" doc:"The buckets of the descriptors."`
	Always        bool                    `key:"always_consume_default_token_bucket" doc:"Requests that have a descriptor take of token_bucket, too; false: only the others do." default:"true" example:"false"`
	MaxDynamic    int                     `key:"max_dynamic_descriptors" doc:"How many buckets there may be of each descriptor with a value that is empty, and of each at all if connections have their own." min:"1" max:"1000000" default:"10000" example:"1000"`
	TrustedHops   *int                    `key:"xff_num_trusted_hops" doc:"How many addresses at the end of X-Forwarded-For are proxies' own: the one before them is remote_address. Absent: remote_address is the client that the listener finds, the connection's other end unless it has xff_num_trusted_hops." min:"0" max:"100" example:"1"`
	HeadersOption string                  `key:"enable_x_ratelimit_headers" doc:"DRAFT_VERSION_03: answers say with x-ratelimit-limit, -remaining and -reset (seconds) what is left. It allocates." enum:"OFF|DRAFT_VERSION_03" default:"OFF" example:"\"DRAFT_VERSION_03\""`
	PerConnection bool                    `key:"local_rate_limit_per_downstream_connection" doc:"Each connection of a caller has buckets of its own, token_bucket among them. There are as many as max_dynamic_descriptors says." default:"false" example:"true"`
	Exhausted     bool                    `key:"rate_limited_as_resource_exhausted" doc:"Callers of gRPC get RESOURCE_EXHAUSTED (8); else UNAVAILABLE (14), as from Envoy." default:"false" example:"true"`

	PerCluster map[string]any `key:"local_cluster_rate_limit" doc:"A limit that several Wefts share." unbuilt:"local_cluster_rate_limit" example:"{\"a\": 1}"`
	Stage      uint32         `key:"stage" doc:"The stage of the rate limits of routes." unbuilt:"stage" example:"1"`
	HostLimits string         `key:"vh_rate_limits" doc:"What becomes of the rate limits of virtual hosts." unbuilt:"vh_rate_limits" example:"\"OVERRIDE\""`
}

// Status is the HTTP status of rejections.
type Status struct {
	Code int `key:"code" doc:"The status." min:"400" max:"599" enum:"TooManyRequests=429|ServiceUnavailable=503" default:"429" example:"429"`
}

// BucketConfig configures a token bucket. Each request takes a token, and is over the limit if
// there is none. The bucket starts full.
type BucketConfig struct {
	Max      uint32        `key:"max_tokens" doc:"How many tokens it holds." required:"true" min:"1" example:"100"`
	Fill     uint32        `key:"tokens_per_fill" doc:"How many tokens come back in fill_interval, one after the other." min:"1" default:"1" example:"10"`
	Interval time.Duration `key:"fill_interval" doc:"The time that tokens_per_fill tokens take; at least 50ms." required:"true" example:"\"1s\""`
}

// RateLimitConfig derives a descriptor, a list of keys with values, from a request. If one of its
// actions has no value, the request has no such descriptor.
type RateLimitConfig struct {
	Actions []Action `key:"actions" doc:"What the entries are made of, in order: at most 8." required:"true"`

	Stage    uint32         `key:"stage" doc:"The stage." unbuilt:"stage" example:"1"`
	Disable  string         `key:"disable_key" doc:"What switches it off in Envoy's runtime." noeffect:"there is no runtime" example:"\"a\""`
	Override map[string]any `key:"limit" doc:"Another limit for some requests." unbuilt:"limit" example:"{\"dynamic_metadata\": {\"a\": 1}}"`
}

// Action makes one entry of a descriptor. Exactly one of its members is set.
type Action struct {
	Header *HeaderAction `key:"request_headers" doc:"The value of a field; of RPC calls also of an attachment, or service, method, version and group."`
	Remote *struct{}     `key:"remote_address" doc:"The address of the client; its key is remote_address."`
	Masked *MaskedAction `key:"masked_remote_address" doc:"The network of the client; its key is masked_remote_address."`
	Always *Generic      `key:"generic_key" doc:"A value that is always the same."`
	Match  *HeaderMatch  `key:"header_value_match" doc:"A value for requests with certain fields."`

	Source      map[string]any `key:"source_cluster" doc:"The cluster that Weft is in." unbuilt:"source_cluster" example:"{\"a\": 1}"`
	Destination map[string]any `key:"destination_cluster" doc:"The cluster that the route chose." unbuilt:"destination_cluster" example:"{\"a\": 1}"`
	Query       map[string]any `key:"query_parameters" doc:"An argument of the query." unbuilt:"query_parameters" example:"{\"a\": 1}"`
	QueryMatch  map[string]any `key:"query_parameter_value_match" doc:"A value for requests with certain arguments." unbuilt:"query_parameter_value_match" example:"{\"a\": 1}"`
	Metadata    map[string]any `key:"metadata" doc:"A value of the metadata." unbuilt:"metadata" example:"{\"a\": 1}"`
	Dynamic     map[string]any `key:"dynamic_metadata" doc:"A value of the metadata, in older files." unbuilt:"dynamic_metadata" example:"{\"a\": 1}"`
	Extension   map[string]any `key:"extension" doc:"Another extension of Envoy's." unbuilt:"extension" example:"{\"a\": 1}"`
}

// HeaderAction makes an entry of a header. It has no value for requests without the header.
type HeaderAction struct {
	Name string `key:"header_name" doc:"The field." required:"true" example:"\"x-tenant\""`
	Key  string `key:"descriptor_key" doc:"The key of the entry." required:"true" example:"\"tenant\""`
	Skip bool   `key:"skip_if_absent" doc:"Without the field, the descriptor has one entry less." unbuilt:"skip_if_absent" example:"true"`
}

// MaskedAction makes an entry of the client's network.
type MaskedAction struct {
	V4 int `key:"v4_prefix_mask_len" doc:"How many bits of an IPv4 address count." unit:"bits" min:"0" max:"32" default:"32" example:"24"`
	V6 int `key:"v6_prefix_mask_len" doc:"How many bits of an IPv6 address count." unit:"bits" min:"0" max:"128" default:"128" example:"64"`
}

// Generic makes an entry with a constant value.
type Generic struct {
	Value string `key:"descriptor_value" doc:"The value of the entry." required:"true" example:"\"all\""`
	Key   string `key:"descriptor_key" doc:"The key of the entry." default:"generic_key" example:"\"limit\""`
}

// HeaderMatch makes an entry for requests with matching headers.
type HeaderMatch struct {
	Value   string               `key:"descriptor_value" doc:"The value of the entry." required:"true" example:"\"writes\""`
	Key     string               `key:"descriptor_key" doc:"The key of the entry." default:"header_match" example:"\"kind\""`
	Expect  bool                 `key:"expect_match" doc:"false: it is made of requests that do not have all of the fields." default:"true" example:"false"`
	Headers []match.HeaderConfig `key:"headers" doc:"The fields, all of them." required:"true"`
}

// Descriptor configures the bucket of requests that have all of its entries, in their order.
type Descriptor struct {
	Entries []Entry      `key:"entries" doc:"The entries." required:"true"`
	Bucket  BucketConfig `key:"token_bucket" doc:"The bucket." required:"true"`
}

// Entry is a key with a value.
type Entry struct {
	Key   string `key:"key" doc:"The key." required:"true" example:"\"tenant\""`
	Value string `key:"value" doc:"The value; empty: any, and each has a bucket of its own." example:"\"blue\""`
}
