package rbac

import (
	"errors"
	"fmt"

	"github.com/weft-proxy/weft/pkg/filter/match"
)

// Config is the filter's configuration, in the format of Envoy's RBAC v3.
type Config struct {
	Rules          *Rules `key:"rules" doc:"Rules to enforce; absent: none."`
	Shadow         *Rules `key:"shadow_rules" doc:"Rules to count as if they were enforced."`
	Prefix         string `key:"rules_stat_prefix" doc:"Value of the metric label stat_prefix for rules." example:"\"shop\""`
	ShadowMetadata bool   `key:"shadow_rules_metadata" doc:"Stores the decision of shadow_rules in the metadata of the request, in the namespace envoy.filters.http.rbac: shadow_engine_result is allowed or denied, and shadow_effective_policy_id is the name of the policy that matched. Both keys begin with shadow_rules_stat_prefix. It allocates memory." default:"false" example:"true"`
	ShadowPrefix   string `key:"shadow_rules_stat_prefix" doc:"Value of the metric label stat_prefix for shadow_rules." example:"\"shop_next\""`

	TrustedHops *int `key:"xff_num_trusted_hops" doc:"Number of trusted proxies at the end of X-Forwarded-For: the address before theirs is remote_ip. Absent: the client address that the listener determines, which is the remote address of the connection unless extend_config of the proxy sets xff_num_trusted_hops." min:"0" max:"100" example:"1"`
	PathsAsSent bool `key:"ambiguous_paths_as_sent" doc:"true: rules compare the path or RPC method as the client sent it, even if an application may read it differently; false: if a rule compares the path or method, the filter rejects requests in which it is ambiguous." default:"false" example:"true"`

	Matcher       map[string]any `key:"matcher" doc:"Envoy's matching tree, instead of rules." unsupported:"matcher" example:"{\"matcher_list\": {}}"`
	ShadowMatcher map[string]any `key:"shadow_matcher" doc:"Envoy's matching tree, instead of shadow_rules." unsupported:"shadow_matcher" example:"{\"matcher_list\": {}}"`
	PerRule       bool           `key:"track_per_rule_stats" doc:"Counts requests per policy." unsupported:"track_per_rule_stats" example:"true"`
}

// ProtoJSON makes the lowerCamelCase spelling of all keys acceptable, as in MOSN's files.
func (*Config) ProtoJSON() {}

// Rules are policies, and the action for requests that match one of them.
type Rules struct {
	Action   string            `key:"action" doc:"ALLOW accepts what a policy matches, and rejects everything else. DENY rejects what a policy matches. LOG accepts everything, and stores in the metadata whether a policy matches." enum:"ALLOW|DENY|LOG" default:"ALLOW" example:"\"DENY\""`
	Policies map[string]Policy `key:"policies" doc:"Policies; each key is the name of one."`
}

// Policy matches a request if one of its permissions and one of its principals match.
type Policy struct {
	Permissions []Permission `key:"permissions" doc:"Conditions on the request, of which one must match." required:"true"`
	Principals  []Principal  `key:"principals" doc:"Conditions on the client, of which one must match." required:"true"`

	Condition        map[string]any `key:"condition" doc:"A CEL expression that must also be true." unsupported:"condition" example:"{\"const_expr\": {}}"`
	CheckedCondition map[string]any `key:"checked_condition" doc:"A type-checked CEL expression." unsupported:"checked_condition" example:"{\"expr\": {}}"`
}

// Permission is a condition on a request or on the destination of its connection. Exactly one of
// its members is set.
type Permission struct {
	And       *Permissions               `key:"and_rules" doc:"All of these must match."`
	Or        *Permissions               `key:"or_rules" doc:"One of these must match."`
	Not       *Permission                `key:"not_rule" doc:"This must not match."`
	Any       bool                       `key:"any" doc:"Matches every request." default:"false" example:"true"`
	Header    *match.HeaderMatcherConfig `key:"header" doc:"A header of the request."`
	Path      *Path                      `key:"url_path" doc:"The path, without the query; for RPC requests /interface/method."`
	IP        *match.CIDRRangeConfig     `key:"destination_ip" doc:"The destination address of the connection."`
	Port      *uint16                    `key:"destination_port" doc:"The destination port of the connection." example:"8080"`
	PortRange *PortRange                 `key:"destination_port_range" doc:"A range of destination ports of the connection."`
	Metadata  *MetadataMatcher           `key:"metadata" doc:"Metadata that other filters added to the request."`
	Server    *match.StringMatcherConfig `key:"requested_server_name" doc:"The server name that the client requested in TLS (SNI); empty without TLS."`

	Matcher  map[string]any `key:"matcher" doc:"A matcher of an Envoy extension." unsupported:"matcher" example:"{\"name\": \"m\"}"`
	Template map[string]any `key:"uri_template" doc:"A URI template that the path must match." unsupported:"uri_template" example:"{\"name\": \"t\"}"`
	Sourced  map[string]any `key:"sourced_metadata" doc:"Metadata from a given source." unsupported:"sourced_metadata" example:"{\"metadata_matcher\": {}}"`
}

// Permissions is a list of permissions.
type Permissions struct {
	Rules []Permission `key:"rules" doc:"The permissions." required:"true"`
}

// Principal is a condition on the client of a request. Exactly one of its members is set.
type Principal struct {
	And           *Principals                `key:"and_ids" doc:"All of these must match."`
	Or            *Principals                `key:"or_ids" doc:"One of these must match."`
	Not           *Principal                 `key:"not_id" doc:"This must not match."`
	Any           bool                       `key:"any" doc:"Matches every client." default:"false" example:"true"`
	Authenticated *Authenticated             `key:"authenticated" doc:"A client with a verified certificate."`
	SourceIP      *match.CIDRRangeConfig     `key:"source_ip" doc:"The source address of the connection, or the one in its PROXY protocol header."`
	DirectIP      *match.CIDRRangeConfig     `key:"direct_remote_ip" doc:"The direct remote address of the connection, regardless of a PROXY protocol header."`
	RemoteIP      *match.CIDRRangeConfig     `key:"remote_ip" doc:"The client address, as determined by xff_num_trusted_hops."`
	Header        *match.HeaderMatcherConfig `key:"header" doc:"A header of the request."`
	Path          *Path                      `key:"url_path" doc:"The path, without the query; for RPC requests /interface/method."`
	Metadata      *MetadataMatcher           `key:"metadata" doc:"Metadata that other filters added to the request."`

	State   map[string]any `key:"filter_state" doc:"A condition on Envoy's filter state." unsupported:"filter_state" example:"{\"key\": \"k\"}"`
	Sourced map[string]any `key:"sourced_metadata" doc:"Metadata from a given source." unsupported:"sourced_metadata" example:"{\"metadata_matcher\": {}}"`
}

// Principals is a list of principals.
type Principals struct {
	IDs []Principal `key:"ids" doc:"The principals." required:"true"`
}

// Authenticated is a condition on the verified certificate of the client.
type Authenticated struct {
	Name *match.StringMatcherConfig `key:"principal_name" doc:"A name in the certificate: the URI, else the DNS name, else the subject. Absent: any."`
}

// Path is a condition on a path.
type Path struct {
	Path match.StringMatcherConfig `key:"path" doc:"Condition on the path." required:"true"`
}

// PortRange is a range of ports from Start up to, but not including, End.
type PortRange struct {
	Start uint16 `key:"start" doc:"The first port." example:"8000"`
	End   uint32 `key:"end" doc:"The first port after the range." max:"65536" example:"9000"`
}

// MetadataMatcher is a condition on a metadata value that another filter set.
type MetadataMatcher struct {
	Namespace string       `key:"filter" doc:"The namespace, usually the name of the filter." required:"true" example:"\"mosn.lb\""`
	Path      []Segment    `key:"path" doc:"Path to the value: its key, or several keys from the outermost object inward." required:"true"`
	Value     ValueMatcher `key:"value" doc:"Condition on the value." required:"true"`
	Invert    bool         `key:"invert" doc:"Inverts the condition." default:"false" example:"true"`
}

// Segment is one key in the path of a metadata value.
type Segment struct {
	Key string `key:"key" doc:"The key." required:"true" example:"\"version\""`
}

// ValueMatcher is a condition on a metadata value. Exactly one of its members is set.
type ValueMatcher struct {
	String  *match.StringMatcherConfig `key:"string_match" doc:"The value must be a single text that matches this."`
	Bool    *bool                      `key:"bool_match" doc:"The value must equal this." example:"true"`
	Present *bool                      `key:"present_match" doc:"true: the value must be present; false: it must be absent." example:"true"`
	List    *ListMatcher               `key:"list_match" doc:"The value must be a list."`
	Or      *OrMatcher                 `key:"or_match" doc:"The value must be a single text that matches one of these."`

	Null   map[string]any `key:"null_match" doc:"The value must be null." unsupported:"null_match" example:"{}"`
	Double map[string]any `key:"double_match" doc:"The value must be a number in a range." unsupported:"double_match" example:"{\"exact\": 1}"`
}

// ListMatcher is a condition on a list.
type ListMatcher struct {
	OneOf ElementMatcher `key:"one_of" doc:"One of the elements must match this." required:"true"`
}

// ElementMatcher is a condition on an element of a list. Exactly one of its members is set.
type ElementMatcher struct {
	String *match.StringMatcherConfig `key:"string_match" doc:"The element must be a text that matches this."`
	Or     *OrMatcher                 `key:"or_match" doc:"The element must be a text that matches one of these."`
}

// OrMatcher is a list of conditions on a text. One of them must match.
type OrMatcher struct {
	Values []StringValueMatcher `key:"value_matchers" doc:"The conditions." required:"true"`
}

// StringValueMatcher is a condition on a text.
type StringValueMatcher struct {
	String match.StringMatcherConfig `key:"string_match" doc:"The text must match this." required:"true"`
}

// compile returns the matchers of m.
func (m *OrMatcher) compile() ([]match.StringMatcher, error) {
	if len(m.Values) == 0 {
		return nil, errors.New("or_match has no value_matchers")
	}
	matchers := make([]match.StringMatcher, len(m.Values))
	for i := range m.Values {
		var err error
		if matchers[i], err = m.Values[i].String.Compile(); err != nil {
			return nil, fmt.Errorf("or_match.value_matchers[%d]: %w", i, err)
		}
	}
	return matchers, nil
}
