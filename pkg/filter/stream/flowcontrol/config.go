package flowcontrol

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter/match"
)

// Config is the filter's configuration: that of MOSN's filter, with Sentinel rules.
type Config struct {
	Name    string `key:"app_name" doc:"Label stat_prefix of the metrics." example:"\"shop\""`
	Switch  *bool  `key:"global_switch" doc:"Whether anything is limited. MOSN takes it for false if it is absent; here it must be said if there are rules." example:"true"`
	Monitor bool   `key:"monitor" doc:"What is beyond a rule is counted, and goes on." default:"false" example:"true"`
	Key     string `key:"limit_key_type" doc:"What resources are: the path of a request without its query, the query, or both as they were sent; URL is URI." enum:"PATH|ARG|URI|URL" default:"PATH" example:"\"PATH\""`
	Action  Action `key:"action" doc:"What callers are answered whose requests are beyond a rule."`
	Rules   []Rule `key:"rules" doc:"The rules; a request is held to all that are of its resource, in their order."`

	LogPath   string           `key:"log_path" doc:"Where Sentinel writes its logs." noeffect:"there are none: see the metrics" example:"\"/tmp/sentinel\""`
	Direction string           `key:"direction" doc:"Which way the traffic goes." noeffect:"rules are those of their listener" example:"\"inbound\""`
	Callback  string           `key:"callback_name" doc:"Go code that was built in." unbuilt:"callback_name" example:"\"default\""`
	Dynamic   []map[string]any `key:"dynamic_data_resources" doc:"Where other rules come from, as Nacos." unbuilt:"dynamic_data_resources" example:"[{\"resource_type\": \"nacos\"}]"`
}

// Action is the response to a rejected request.
type Action struct {
	Status int    `key:"status" doc:"Status for callers of HTTP; 0: 509." min:"0" max:"599" default:"509" example:"429"`
	Body   string `key:"body" doc:"Content; callers of RPC get the first 256 bytes in the text of their error." default:"current request is limited" example:"\"blocked\""`
}

// Rule limits the requests to a resource.
type Rule struct {
	ID        string  `key:"id" doc:"Label rule of the metrics; empty: the resource." example:"\"items\""`
	Resource  string  `key:"resource" doc:"What it is for, as limit_key_type says." required:"true" example:"\"/items\""`
	Regex     bool    `key:"regex" doc:"The resource is an expression in RE2's syntax; it is for all that have a part that fits, together." default:"false" example:"true"`
	Grade     int     `key:"grade" doc:"What is counted: requests in statIntervalInMs, or at once until the head of their answer." enum:"concurrency=0|qps=1" min:"0" max:"1" default:"1" example:"1"`
	Threshold float64 `key:"threshold,count" doc:"How many are let through." required:"true" min:"0" example:"100"`
	Interval  uint32  `key:"statIntervalInMs" doc:"The time in which they are counted; 0: a second." unit:"milliseconds" max:"600000" default:"0" example:"1000"`

	Behavior int    `key:"controlBehavior" doc:"What becomes of others: they are refused, or all go on one after the other, statIntervalInMs divided by the threshold apart." enum:"Reject=0|Throttling=1" min:"0" max:"1" default:"0" example:"\"Throttling\""`
	Queueing uint32 `key:"maxQueueingTimeMs" doc:"How long one may wait for its turn: who would have to wait longer is refused." unit:"milliseconds" max:"600000" default:"0" example:"500"`

	Strategy   int    `key:"tokenCalculateStrategy" doc:"Direct: the threshold as it is. WarmUp: after a rest it is less, and grows while it is used. MemoryAdaptive is not supported yet." enum:"Direct=0|WarmUp=1|MemoryAdaptive=2" min:"0" max:"2" default:"0" example:"\"WarmUp\""`
	WarmUp     uint32 `key:"warmUpPeriodSec" doc:"How long it grows until it is all of the threshold." unit:"seconds" max:"86400" default:"0" example:"10"`
	ColdFactor uint32 `key:"warmUpColdFactor" doc:"Which part of the threshold it is at first: a third for 3; 0: 3." max:"1000" default:"0" example:"3"`

	Caller      string `key:"limitApp" doc:"Whose requests it is for; \"default\" or nothing: everybody's. Others are not supported yet." example:"\"default\""`
	Relation    int    `key:"relationStrategy,strategy" doc:"Which resource is counted: 0, its own. Others are not supported yet." default:"0" min:"0" example:"0"`
	RefResource string `key:"refResource" doc:"The other resource that is counted." unbuilt:"refResource" example:"\"/other\""`
	LowUsage    int64  `key:"lowMemUsageThreshold" doc:"The threshold while little memory is used." unbuilt:"lowMemUsageThreshold" example:"100"`
	HighUsage   int64  `key:"highMemUsageThreshold" doc:"The threshold while much is." unbuilt:"highMemUsageThreshold" example:"10"`
	LowWater    int64  `key:"memLowWaterMarkBytes" doc:"What little is." unbuilt:"memLowWaterMarkBytes" example:"1024"`
	HighWater   int64  `key:"memHighWaterMarkBytes" doc:"What much is." unbuilt:"memHighWaterMarkBytes" example:"2048"`
}

const defaultStatus = 509 // as in MOSN: bandwidth limit exceeded

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if _, err := c.compile(); err != nil {
		return &document.KeyError{Key: "rules", Err: err}
	}
	if s := c.Action.Status; s != 0 && s < 200 {
		return &document.KeyError{Key: "action", Err: fmt.Errorf("status is %d: that of an answer is at least 200", s)}
	}
	if len(c.Rules) > 0 && c.Switch == nil {
		return &document.KeyError{Key: "rules", Err: fmt.Errorf("there are %d and global_switch is not set: without it nothing is limited; say true, or false", len(c.Rules))}
	}
	return nil
}

// mostRules is the maximum number of rules.
const mostRules = 10_000

// plan is a compiled Config. It is immutable.
type plan struct {
	rules       []limit
	labels      []string         // by index of the rule
	byResource  map[string][]int // indexes of the rules without regex, by resource
	expressions []expression
}

type expression struct {
	fits *regexp.Regexp
	rule int
}

func (c *Config) compile() (*plan, error) {
	if len(c.Rules) > mostRules {
		return nil, fmt.Errorf("there are %d: at most %d are allowed", len(c.Rules), mostRules)
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
		fits, err := match.Part(r.Resource)
		if err != nil {
			return nil, fmt.Errorf("[%d]: resource: %w", i, err)
		}
		p.expressions = append(p.expressions, expression{fits, i})
	}
	return p, nil
}

// Numeric values of enumerated keys.
const (
	concurrency    = 0
	throttling     = 1
	warmingUp      = 1
	memoryAdaptive = 2
	ownResource    = 0
)

func (r *Rule) compile() (limit, error) {
	l := limit{
		threshold: r.Threshold,
		interval:  time.Duration(r.Interval) * time.Millisecond,
		queueing:  time.Duration(r.Queueing) * time.Millisecond,
		warmUp:    time.Duration(r.WarmUp) * time.Second,
		cold:      float64(r.ColdFactor),
	}
	if l.interval == 0 {
		l.interval = time.Second
	}
	if l.cold == 0 {
		l.cold = 3
	}
	isWarming := r.Strategy == warmingUp
	switch {
	case r.Grade == concurrency:
		l.kind = kindConcurrency
	case r.Behavior == throttling:
		l.kind = kindThrottling
	}
	switch {
	case r.Resource == "":
		return limit{}, errors.New("resource is empty")
	case r.Caller != "" && r.Caller != "default":
		return limit{}, fmt.Errorf("limitApp %q is not supported yet: rules are for everybody's requests", r.Caller)
	case r.Relation != ownResource:
		return limit{}, fmt.Errorf("relationStrategy %d is not supported yet: rules count their own resource", r.Relation)
	case r.Strategy == memoryAdaptive:
		return limit{}, errors.New("tokenCalculateStrategy MemoryAdaptive is not supported yet: overload_manager sheds by memory, adaptive_concurrency by what requests take")
	case l.interval < shortest:
		return limit{}, fmt.Errorf("statIntervalInMs is %d: at least %d", r.Interval, shortest.Milliseconds())
	case l.kind == kindConcurrency && (isWarming || r.Behavior == throttling):
		return limit{}, errors.New("grade 0 counts what is under way: neither Throttling nor WarmUp is for that")
	case l.kind == kindConcurrency && l.threshold != float64(int64(l.threshold)):
		return limit{}, fmt.Errorf("grade 0 counts what is under way, and %v is no number of that", l.threshold)
	case isWarming && l.warmUp == 0:
		return limit{}, errors.New("warmUpPeriodSec is not set")
	case isWarming && l.cold <= 1:
		return limit{}, errors.New("warmUpColdFactor is 1: at least 2")
	case isWarming && l.threshold == 0:
		return limit{}, errors.New("a threshold of 0 does not warm up")
	case l.kind != kindThrottling && r.Queueing > 0:
		return limit{}, errors.New("maxQueueingTimeMs is of Throttling: what is refused does not wait")
	case !isWarming && (r.WarmUp > 0 || r.ColdFactor > 0):
		return limit{}, errors.New("warmUpPeriodSec and warmUpColdFactor are of WarmUp, and tokenCalculateStrategy is Direct")
	}
	if !isWarming {
		l.warmUp = 0
	}
	return l, nil
}
