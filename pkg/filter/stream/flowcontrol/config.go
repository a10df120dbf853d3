package flowcontrol

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter/match"
)

// Config is the filter's configuration. It has the keys of MOSN's filter, with Sentinel rules.
type Config struct {
	Name    string `key:"app_name" doc:"Value of the metric label stat_prefix." example:"\"shop\""`
	Switch  *bool  `key:"global_switch" doc:"Enables the rules. In MOSN, an absent value means false; here it is required if there are rules." example:"true"`
	Monitor bool   `key:"monitor" doc:"Only counts requests that exceed a rule, and lets them pass." default:"false" example:"true"`
	KeyType string `key:"limit_key_type" doc:"What identifies a resource: PATH is the path without the query, ARG is the query, URI is both as the client sent them. URL is the same as URI." enum:"PATH|ARG|URI|URL" default:"PATH" example:"\"PATH\""`
	Action  Action `key:"action" doc:"Response to requests that exceed a rule."`
	Rules   []Rule `key:"rules" doc:"The rules; a request must pass all rules for its resource: first those without regex, then those with regex, each in this order."`

	LogPath   string           `key:"log_path" doc:"Directory for Sentinel logs." ignored:"Weft writes no Sentinel logs; use the metrics" example:"\"/tmp/sentinel\""`
	Direction string           `key:"direction" doc:"Traffic direction." ignored:"rules apply to their listener" example:"\"inbound\""`
	Callback  string           `key:"callback_name" doc:"Name of a Go callback." unsupported:"callback_name" example:"\"default\""`
	Dynamic   []map[string]any `key:"dynamic_data_resources" doc:"Dynamic sources of rules, for example Nacos." unsupported:"dynamic_data_resources" example:"[{\"resource_type\": \"nacos\"}]"`
}

// Action is the response to a rejected request.
type Action struct {
	Status int    `key:"status" doc:"HTTP status of the response; 0: 509." min:"0" max:"599" default:"509" example:"429"`
	Body   string `key:"body" doc:"Response body; RPC clients get the first 256 bytes in the error text." default:"current request is limited" example:"\"blocked\""`
}

// Rule limits the requests to a resource.
type Rule struct {
	ID        string  `key:"id" doc:"Value of the metric label rule; empty: the resource." example:"\"items\""`
	Resource  string  `key:"resource" doc:"The resource, of the kind that limit_key_type selects." required:"true" example:"\"/items\""`
	Regex     bool    `key:"regex" doc:"true: resource is a regular expression in RE2 syntax. All resources of which a part matches share the limit." default:"false" example:"true"`
	Grade     int     `key:"grade" doc:"What to count: with qps, requests per statIntervalInMs; with concurrency, requests whose response headers have not arrived." enum:"concurrency=0|qps=1" min:"0" max:"1" default:"1" example:"1"`
	Threshold float64 `key:"threshold,count" doc:"Maximum number of requests." required:"true" min:"0" example:"100"`
	Interval  uint32  `key:"statIntervalInMs" doc:"Length of the counting interval; 0: one second." unit:"milliseconds" max:"600000" default:"0" example:"1000"`

	Behavior    int    `key:"controlBehavior" doc:"What to do with excess requests. Reject rejects them; Throttling spaces all requests evenly, statIntervalInMs divided by the threshold apart." enum:"Reject=0|Throttling=1" min:"0" max:"1" default:"0" example:"\"Throttling\""`
	MaxQueueing uint32 `key:"maxQueueingTimeMs" doc:"Maximum wait of a throttled request; a request that would have to wait longer is rejected." unit:"milliseconds" max:"600000" default:"0" example:"500"`

	Strategy   int    `key:"tokenCalculateStrategy" doc:"Direct: the threshold is constant. WarmUp: the threshold is lower after an idle period and rises with use. MemoryAdaptive is not supported yet." enum:"Direct=0|WarmUp=1|MemoryAdaptive=2" min:"0" max:"2" default:"0" example:"\"WarmUp\""`
	WarmUp     uint32 `key:"warmUpPeriodSec" doc:"Time until the threshold reaches its full value." unit:"seconds" max:"86400" default:"0" example:"10"`
	ColdFactor uint32 `key:"warmUpColdFactor" doc:"Divisor of the threshold when the warm-up starts: with 3 it starts at a third; 0: 3." max:"1000" default:"0" example:"3"`

	LimitApp    string `key:"limitApp" doc:"Client application that the rule applies to; \"default\" or empty: all. Other values are not supported yet." example:"\"default\""`
	Relation    int    `key:"relationStrategy,strategy" doc:"Which resource to count: 0 is the resource of the rule. Other values are not supported yet." default:"0" min:"0" example:"0"`
	RefResource string `key:"refResource" doc:"The other resource to count." unsupported:"refResource" example:"\"/other\""`
	LowUsage    int64  `key:"lowMemUsageThreshold" doc:"Threshold at low memory usage." unsupported:"lowMemUsageThreshold" example:"100"`
	HighUsage   int64  `key:"highMemUsageThreshold" doc:"Threshold at high memory usage." unsupported:"highMemUsageThreshold" example:"10"`
	LowWater    int64  `key:"memLowWaterMarkBytes" doc:"Upper bound of low memory usage." unsupported:"memLowWaterMarkBytes" example:"1024"`
	HighWater   int64  `key:"memHighWaterMarkBytes" doc:"Lower bound of high memory usage." unsupported:"memHighWaterMarkBytes" example:"2048"`
}

const defaultStatus = 509 // as in MOSN: bandwidth limit exceeded

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if _, err := c.compile(); err != nil {
		return &document.KeyError{Key: "rules", Err: err}
	}
	if s := c.Action.Status; s != 0 && s < 200 {
		return &document.KeyError{Key: "action", Err: fmt.Errorf("status is %d: must be at least 200", s)}
	}
	if len(c.Rules) > 0 && c.Switch == nil {
		return &document.KeyError{Key: "rules", Err: fmt.Errorf("found %d rules, but global_switch is not set: set it to true or false", len(c.Rules))}
	}
	return nil
}

const maxRules = 10_000

// plan is a compiled Config. It is immutable.
type plan struct {
	rules       []limit
	labels      []string         // by index of the rule
	byResource  map[string][]int // indexes of the rules without regex, by resource
	expressions []expression
}

type expression struct {
	pattern *regexp.Regexp
	rule    int
}

func (c *Config) compile() (*plan, error) {
	if len(c.Rules) > maxRules {
		return nil, fmt.Errorf("found %d rules: at most %d are allowed", len(c.Rules), maxRules)
	}
	p := &plan{byResource: make(map[string][]int)}
	for i := range c.Rules {
		r := &c.Rules[i]
		l, err := r.compile()
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		p.rules = append(p.rules, l)
		label := r.ID
		if label == "" {
			label = r.Resource
		}
		p.labels = append(p.labels, label)
		if !r.Regex {
			p.byResource[r.Resource] = append(p.byResource[r.Resource], i)
			continue
		}
		pattern, err := match.CompileUnanchored(r.Resource)
		if err != nil {
			return nil, fmt.Errorf("[%d]: resource: %w", i, err)
		}
		p.expressions = append(p.expressions, expression{pattern, i})
	}
	return p, nil
}

// Numeric values of enumerated keys.
const (
	gradeConcurrency       = 0
	behaviorThrottling     = 1
	strategyWarmUp         = 1
	strategyMemoryAdaptive = 2
	relationOwnResource    = 0
)

func (r *Rule) compile() (limit, error) {
	l := limit{
		threshold:   r.Threshold,
		interval:    time.Duration(r.Interval) * time.Millisecond,
		maxQueueing: time.Duration(r.MaxQueueing) * time.Millisecond,
		warmUp:      time.Duration(r.WarmUp) * time.Second,
		coldFactor:  float64(r.ColdFactor),
	}
	if l.interval == 0 {
		l.interval = time.Second
	}
	if l.coldFactor == 0 {
		l.coldFactor = 3
	}
	warmsUp := r.Strategy == strategyWarmUp
	switch {
	case r.Grade == gradeConcurrency:
		l.kind = kindConcurrency
	case r.Behavior == behaviorThrottling:
		l.kind = kindThrottling
	}
	switch {
	case r.Resource == "":
		return limit{}, errors.New("resource is empty")
	case r.LimitApp != "" && r.LimitApp != "default":
		return limit{}, fmt.Errorf("limitApp %q is not supported yet: rules apply to the requests of all clients", r.LimitApp)
	case r.Relation != relationOwnResource:
		return limit{}, fmt.Errorf("relationStrategy %d is not supported yet: rules count their own resource", r.Relation)
	case r.Strategy == strategyMemoryAdaptive:
		return limit{}, errors.New("tokenCalculateStrategy MemoryAdaptive is not supported yet: use overload_manager to shed load by memory usage, or adaptive_concurrency by request times")
	case l.interval < minInterval:
		return limit{}, fmt.Errorf("statIntervalInMs is %d: must be at least %d", r.Interval, minInterval.Milliseconds())
	case l.kind == kindConcurrency && (warmsUp || r.Behavior == behaviorThrottling):
		return limit{}, errors.New("grade 0 limits requests in flight: it does not support Throttling and WarmUp")
	case l.kind == kindConcurrency && l.threshold != float64(int64(l.threshold)):
		return limit{}, fmt.Errorf("grade 0 limits requests in flight: threshold %v is not an integer", l.threshold)
	case warmsUp && l.warmUp == 0:
		return limit{}, errors.New("WarmUp requires warmUpPeriodSec")
	case warmsUp && l.coldFactor <= 1:
		return limit{}, errors.New("warmUpColdFactor is 1: must be at least 2")
	case warmsUp && l.threshold == 0:
		return limit{}, errors.New("WarmUp requires a threshold greater than 0")
	case l.kind != kindThrottling && r.MaxQueueing > 0:
		return limit{}, errors.New("maxQueueingTimeMs requires controlBehavior Throttling")
	case !warmsUp && (r.WarmUp > 0 || r.ColdFactor > 0):
		return limit{}, errors.New("warmUpPeriodSec and warmUpColdFactor require tokenCalculateStrategy WarmUp")
	}
	if !warmsUp {
		l.warmUp = 0
	}
	return l, nil
}
