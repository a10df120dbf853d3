package rbac

import (
	"errors"
	"fmt"

	"github.com/weft-proxy/weft/pkg/filter/match"
)

// Config is the filter's configuration, in the format of Envoy's RBAC v3.
type Config struct {
	Rules        *Rules `key:"rules" doc:"What is enforced; absent: nothing."`
	Shadow       *Rules `key:"shadow_rules" doc:"What is counted only, as if it were enforced."`
	Prefix       string `key:"rules_stat_prefix" doc:"Label of the metrics of rules." example:"\"shop\""`
	ShadowPrefix string `key:"shadow_rules_stat_prefix" doc:"Label of the metrics of shadow_rules." example:"\"shop_next\""`

	TrustedHops *int `key:"xff_num_trusted_hops" doc:"How many addresses at the end of X-Forwarded-For are proxies' own: the one before them is remote_ip. Absent: remote_ip is the client that the listener finds, the connection's other end unless it has xff_num_trusted_hops." min:"0" max:"100" example:"1"`
	PathsAsSent bool `key:"ambiguous_paths_as_sent" doc:"Rules compare a path that an application may read differently, or a call of RPC that may be another than it seems, as it was sent; false: those that look at it refuse it." default:"false" example:"true"`

	Matcher       map[string]any `key:"matcher" doc:"Envoy's matching tree in the place of rules." unbuilt:"matcher" example:"{\"matcher_list\": {}}"`
	ShadowMatcher map[string]any `key:"shadow_matcher" doc:"Envoy's matching tree in the place of shadow_rules." unbuilt:"shadow_matcher" example:"{\"matcher_list\": {}}"`
	PerRule       bool           `key:"track_per_rule_stats" doc:"Counts by policy." unbuilt:"track_per_rule_stats" example:"true"`
}

// Rules are policies, and the action for requests that match one of them.
type Rules struct {
	Action   string            `key:"action" doc:"ALLOW lets in what a policy fits, and nothing else. DENY refuses what a policy fits. LOG lets all in, and says in the metadata whether a policy fits." enum:"ALLOW|DENY|LOG" default:"ALLOW" example:"\"DENY\""`
	Policies map[string]Policy `key:"policies" doc:"The policies by name."`
}

// Policy matches a request if one of its permissions and one of its principals match.
type Policy struct {
	Permissions []Permission `key:"permissions" doc:"What is done. One of them must fit." required:"true"`
	Principals  []Principal  `key:"principals" doc:"By whom. One of them must fit." required:"true"`

	Condition        map[string]any `key:"condition" doc:"An expression in CEL that must hold too." unbuilt:"condition" example:"{\"const_expr\": {}}"`
	CheckedCondition map[string]any `key:"checked_condition" doc:"An expression in CEL that was checked." unbuilt:"checked_condition" example:"{\"expr\": {}}"`
}

// Permission is a condition on the action of a request. Exactly one of its members is set.
type Permission struct {
	And       *Permissions        `key:"and_rules" doc:"All of these fit."`
	Or        *Permissions        `key:"or_rules" doc:"One of these fits."`
	Not       *Permission         `key:"not_rule" doc:"This does not fit."`
	Any       bool                `key:"any" doc:"Whatever it is." default:"false" example:"true"`
	Header    *match.HeaderConfig `key:"header" doc:"A field of the request."`
	Path      *Path               `key:"url_path" doc:"The path, without the query; of RPC calls /interface/method."`
	IP        *match.RangeConfig  `key:"destination_ip" doc:"The address that the connection was made to."`
	Port      *uint16             `key:"destination_port" doc:"The port that the connection was made to." example:"8080"`
	PortRange *PortRange          `key:"destination_port_range" doc:"Ports that the connection was made to."`
	Metadata  *Metadata           `key:"metadata" doc:"What other filters found out about the request."`
	Server    *match.TextConfig   `key:"requested_server_name" doc:"The name that the caller asked for in TLS; without TLS it is empty."`

	Matcher  map[string]any `key:"matcher" doc:"A condition of another extension of Envoy's." unbuilt:"matcher" example:"{\"name\": \"m\"}"`
	Template map[string]any `key:"uri_template" doc:"A template that the path fits." unbuilt:"uri_template" example:"{\"name\": \"t\"}"`
	Sourced  map[string]any `key:"sourced_metadata" doc:"Metadata with where it is from." unbuilt:"sourced_metadata" example:"{\"metadata_matcher\": {}}"`
}

// Permissions is a list of permissions.
type Permissions struct {
	Rules []Permission `key:"rules" doc:"The permissions." required:"true"`
}

// Principal is a condition on the client of a request. Exactly one of its members is set.
type Principal struct {
	And           *Principals         `key:"and_ids" doc:"All of these fit."`
	Or            *Principals         `key:"or_ids" doc:"One of these fits."`
	Not           *Principal          `key:"not_id" doc:"This does not fit."`
	Any           bool                `key:"any" doc:"Whoever it is." default:"false" example:"true"`
	Authenticated *Authenticated      `key:"authenticated" doc:"A caller that showed a certificate which was verified."`
	SourceIP      *match.RangeConfig  `key:"source_ip" doc:"Whom the connection is from: its other end, or whom that speaks for by a PROXY protocol header."`
	DirectIP      *match.RangeConfig  `key:"direct_remote_ip" doc:"The address of the connection's other end, whoever that speaks for."`
	RemoteIP      *match.RangeConfig  `key:"remote_ip" doc:"The address of the client, as xff_num_trusted_hops has it."`
	Header        *match.HeaderConfig `key:"header" doc:"A field of the request."`
	Path          *Path               `key:"url_path" doc:"The path, without the query; of RPC calls /interface/method."`
	Metadata      *Metadata           `key:"metadata" doc:"What other filters found out about the request."`

	State   map[string]any `key:"filter_state" doc:"A condition on Envoy's filter state." unbuilt:"filter_state" example:"{\"key\": \"k\"}"`
	Sourced map[string]any `key:"sourced_metadata" doc:"Metadata with where it is from." unbuilt:"sourced_metadata" example:"{\"metadata_matcher\": {}}"`
}

// Principals is a list of principals.
type Principals struct {
	IDs []Principal `key:"ids" doc:"The principals." required:"true"`
}

// Authenticated is a condition on the verified certificate of the client.
type Authenticated struct {
	Name *match.TextConfig `key:"principal_name" doc:"A name in the certificate: a URI, else a DNS name, else the subject. Absent: any."`
}

// Path is a condition on a path.
type Path struct {
	Path match.TextConfig `key:"path" doc:"What it must be." required:"true"`
}

// PortRange is a range of ports from Start up to, but not including, End.
type PortRange struct {
	Start uint16 `key:"start" doc:"The first port." example:"8000"`
	End   uint32 `key:"end" doc:"The port after the last one." max:"65536" example:"9000"`
}

// Metadata is a condition on a metadata value that another filter set.
type Metadata struct {
	Namespace string    `key:"filter" doc:"The namespace, as a rule the name of the filter." required:"true" example:"\"mosn.lb\""`
	Path      []Segment `key:"path" doc:"The way to the value: its key, or several from the outside in." required:"true"`
	Value     Value     `key:"value" doc:"What the value must be." required:"true"`
	Invert    bool      `key:"invert" doc:"The condition must not hold." default:"false" example:"true"`
}

// Segment is one key in the path of a metadata value.
type Segment struct {
	Key string `key:"key" doc:"The key." required:"true" example:"\"version\""`
}

// Value is a condition on a metadata value. Exactly one of its members is set.
type Value struct {
	String  *match.TextConfig `key:"string_match" doc:"It is a single text that fits this."`
	Bool    *bool             `key:"bool_match" doc:"It is this." example:"true"`
	Present *bool             `key:"present_match" doc:"It is there; false: it is not." example:"true"`
	List    *Elements         `key:"list_match" doc:"It is a list."`
	Or      *Texts            `key:"or_match" doc:"It is a single text that fits one of these."`

	Null   map[string]any `key:"null_match" doc:"It is null." unbuilt:"null_match" example:"{}"`
	Double map[string]any `key:"double_match" doc:"It is a number in a range." unbuilt:"double_match" example:"{\"exact\": 1}"`
}

// Elements is a condition on a list.
type Elements struct {
	OneOf Element `key:"one_of" doc:"One of its elements fits this." required:"true"`
}

// Element is a condition on an element of a list. Exactly one of its members is set.
type Element struct {
	String *match.TextConfig `key:"string_match" doc:"It is a text that fits this."`
	Or     *Texts            `key:"or_match" doc:"It is a text that fits one of these."`
}

// Texts are conditions on a text. One of them must match.
type Texts struct {
	Values []TextValue `key:"value_matchers" doc:"The conditions." required:"true"`
}

// TextValue is a condition on a text.
type TextValue struct {
	String match.TextConfig `key:"string_match" doc:"It fits this." required:"true"`
}

// compile returns the matchers of t.
func (t *Texts) compile() ([]match.StringMatcher, error) {
	if len(t.Values) == 0 {
		return nil, errors.New("or_match has no value_matchers")
	}
	all := make([]match.StringMatcher, len(t.Values))
	for i := range t.Values {
		var err error
		if all[i], err = t.Values[i].String.Compile(); err != nil {
			return nil, fmt.Errorf("or_match.value_matchers[%d]: %w", i, err)
		}
	}
	return all, nil
}
