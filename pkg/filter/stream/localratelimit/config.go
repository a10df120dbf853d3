package localratelimit

import (
	"time"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
)

// Config is the filter's configuration, in the format of Envoy's local rate limit v3.
type Config struct {
	Prefix               string                       `key:"stat_prefix" doc:"Value of the metric label stat_prefix." example:"\"shop\""`
	Status               Status                       `key:"status" doc:"Response status for HTTP clients."`
	Bucket               *BucketConfig                `key:"token_bucket" doc:"The bucket that does not depend on descriptors."`
	Enabled              *match.RuntimeFractionConfig `key:"filter_enabled" doc:"Fraction of requests that the filter counts; absent: all."`
	Enforced             *match.RuntimeFractionConfig `key:"filter_enforced" doc:"Fraction of the requests beyond a limit to reject; absent: all."`
	RequestAdd           []filter.HeaderAddition      `key:"request_headers_to_add_when_not_enforced" doc:"Headers to add to requests that exceed a limit but are not rejected."`
	ResponseAdd          []filter.HeaderAddition      `key:"response_headers_to_add" doc:"Headers to add to the responses to rejected requests."`
	Limits               []RateLimitConfig            `key:"rate_limits" doc:"What to limit separately: each element builds a descriptor from the properties of a request."`
	Descriptors          []Descriptor                 `key:"descriptors" doc:"The buckets of the descriptors."`
	AlwaysConsumeDefault bool                         `key:"always_consume_default_token_bucket" doc:"true: requests with a descriptor also take a token from token_bucket; false: only requests without one do." default:"true" example:"false"`
	MaxDynamic           int                          `key:"max_dynamic_descriptors" doc:"Maximum number of buckets for each descriptor with an empty value, or for every descriptor if connections have their own buckets." min:"1" max:"1000000" default:"10000" example:"1000"`
	TrustedHops          *int                         `key:"xff_num_trusted_hops" doc:"Number of trusted proxies at the end of X-Forwarded-For: the address before theirs is remote_address. Absent: the client address that the listener determines, which is the remote address of the connection unless extend_config of the proxy sets xff_num_trusted_hops." min:"0" max:"100" example:"1"`
	HeadersOption        string                       `key:"enable_x_ratelimit_headers" doc:"DRAFT_VERSION_03 adds x-ratelimit-limit, -remaining and -reset (seconds) to responses. It allocates memory." enum:"OFF|DRAFT_VERSION_03" default:"OFF" example:"\"DRAFT_VERSION_03\""`
	Reset                string                       `key:"ratelimit_reset" doc:"Value of x-ratelimit-reset: the seconds until the bucket is full, or until it has a token, which is 0 if it has one." enum:"full|next_token" default:"full" example:"\"next_token\""`
	PerConnection        bool                         `key:"local_rate_limit_per_downstream_connection" doc:"Each downstream connection has its own buckets, including token_bucket; max_dynamic_descriptors limits their number." default:"false" example:"true"`
	ResourceExhausted    bool                         `key:"rate_limited_as_resource_exhausted" doc:"gRPC clients get RESOURCE_EXHAUSTED (8); otherwise UNAVAILABLE (14), as with Envoy." default:"false" example:"true"`

	PerCluster map[string]any `key:"local_cluster_rate_limit" doc:"A limit that several Weft instances share." unsupported:"local_cluster_rate_limit" example:"{\"a\": 1}"`
	Stage      uint32         `key:"stage" doc:"Stage of the rate limits of routes." unsupported:"stage" example:"1"`
	HostLimits string         `key:"vh_rate_limits" doc:"How to apply the rate limits of virtual hosts." unsupported:"vh_rate_limits" example:"\"OVERRIDE\""`
}

// Status is the HTTP status of rejections.
type Status struct {
	Code int `key:"code" doc:"HTTP status." min:"400" max:"599" enum:"TooManyRequests=429|ServiceUnavailable=503" default:"429" example:"429"`
}

// BucketConfig configures a token bucket. Each request takes a token; without a token it exceeds
// the limit. The bucket starts full.
type BucketConfig struct {
	Max      uint32        `key:"max_tokens" doc:"Capacity of the bucket." required:"true" min:"1" example:"100"`
	Fill     uint32        `key:"tokens_per_fill" doc:"Number of tokens added in fill_interval, one at a time." min:"1" default:"1" example:"10"`
	Interval time.Duration `key:"fill_interval" doc:"Time in which tokens_per_fill tokens are added; at least 50ms." required:"true" example:"\"1s\""`
}

// RateLimitConfig derives a descriptor, a list of keys with values, from a request. If one of its
// actions has no value, the request has no such descriptor.
type RateLimitConfig struct {
	Actions []Action `key:"actions" doc:"Actions that make the entries of the descriptor, in order: at most 8." required:"true"`

	Stage    uint32         `key:"stage" doc:"The stage." unsupported:"stage" example:"1"`
	Disable  string         `key:"disable_key" doc:"Key that disables the limit in Envoy's runtime." ignored:"Weft has no runtime" example:"\"a\""`
	Override map[string]any `key:"limit" doc:"A different limit for some requests." unsupported:"limit" example:"{\"dynamic_metadata\": {\"a\": 1}}"`
}

// Action makes one entry of a descriptor. Exactly one of its members is set.
type Action struct {
	Header *HeaderAction `key:"request_headers" doc:"The value of a header. For RPC requests: the value of an attachment, or the service, method, version or group of the call."`
	Remote *struct{}     `key:"remote_address" doc:"The client address; the key of the entry is remote_address."`
	Masked *MaskedAction `key:"masked_remote_address" doc:"The network of the client address; the key of the entry is masked_remote_address."`
	Always *Generic      `key:"generic_key" doc:"A constant value."`
	Match  *HeaderMatch  `key:"header_value_match" doc:"A constant value for requests that match header conditions."`

	Source      map[string]any `key:"source_cluster" doc:"The cluster that Weft belongs to." unsupported:"source_cluster" example:"{\"a\": 1}"`
	Destination map[string]any `key:"destination_cluster" doc:"The cluster of the route." unsupported:"destination_cluster" example:"{\"a\": 1}"`
	Query       map[string]any `key:"query_parameters" doc:"A query parameter." unsupported:"query_parameters" example:"{\"a\": 1}"`
	QueryMatch  map[string]any `key:"query_parameter_value_match" doc:"A constant value for requests that match conditions on query parameters." unsupported:"query_parameter_value_match" example:"{\"a\": 1}"`
	Metadata    map[string]any `key:"metadata" doc:"A value of the metadata." unsupported:"metadata" example:"{\"a\": 1}"`
	Dynamic     map[string]any `key:"dynamic_metadata" doc:"A value of the metadata, in older configuration files." unsupported:"dynamic_metadata" example:"{\"a\": 1}"`
	Extension   map[string]any `key:"extension" doc:"An extension of Envoy." unsupported:"extension" example:"{\"a\": 1}"`
}

// HeaderAction makes an entry from a header. It has no value for requests without the header.
type HeaderAction struct {
	Name string `key:"header_name" doc:"Header name." required:"true" example:"\"x-tenant\""`
	Key  string `key:"descriptor_key" doc:"The key of the entry." required:"true" example:"\"tenant\""`
	Skip bool   `key:"skip_if_absent" doc:"Omits the entry if the header is absent." unsupported:"skip_if_absent" example:"true"`
}

// MaskedAction makes an entry from the client's network.
type MaskedAction struct {
	V4 int `key:"v4_prefix_mask_len" doc:"Number of leading bits of an IPv4 address to use." unit:"bits" min:"0" max:"32" default:"32" example:"24"`
	V6 int `key:"v6_prefix_mask_len" doc:"Number of leading bits of an IPv6 address to use." unit:"bits" min:"0" max:"128" default:"128" example:"64"`
}

// Generic makes an entry with a constant value.
type Generic struct {
	Value string `key:"descriptor_value" doc:"The value of the entry." required:"true" example:"\"all\""`
	Key   string `key:"descriptor_key" doc:"The key of the entry." default:"generic_key" example:"\"limit\""`
}

// HeaderMatch makes an entry for requests with matching headers.
type HeaderMatch struct {
	Value   string                      `key:"descriptor_value" doc:"The value of the entry." required:"true" example:"\"writes\""`
	Key     string                      `key:"descriptor_key" doc:"The key of the entry." default:"header_match" example:"\"kind\""`
	Expect  bool                        `key:"expect_match" doc:"true: for requests that match all conditions; false: for requests that do not." default:"true" example:"false"`
	Headers []match.HeaderMatcherConfig `key:"headers" doc:"The header conditions; all must match." required:"true"`
}

// Descriptor configures the bucket of requests that have all of its entries, in their order.
type Descriptor struct {
	Entries []Entry      `key:"entries" doc:"The entries." required:"true"`
	Bucket  BucketConfig `key:"token_bucket" doc:"The bucket." required:"true"`
}

// Entry is a key with a value.
type Entry struct {
	Key   string `key:"key" doc:"The key." required:"true" example:"\"tenant\""`
	Value string `key:"value" doc:"The value; empty: any value, each with its own bucket." example:"\"blue\""`
}
