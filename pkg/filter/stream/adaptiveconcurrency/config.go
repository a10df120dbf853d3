package adaptiveconcurrency

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter/match"
)

// Config is the filter's configuration: Envoy's adaptive concurrency v3, followed by keys of Weft.
type Config struct {
	Prefix   string    `key:"stat_prefix" doc:"Value of the metric label stat_prefix." example:"\"shop\""`
	Enabled  Switch    `key:"enabled" doc:"Whether the filter limits requests."`
	Gradient *Gradient `key:"gradient_controller_config" doc:"How to compute the limit; absent: no limit."`
	Status   Status    `key:"concurrency_limit_exceeded_status" doc:"Response status for HTTP clients."`

	Per       string    `key:"per" doc:"What has its own limit: each route, each method of RPC and gRPC (other requests use the limit of their route), or only the filter." enum:"route|method|filter" default:"route" example:"\"method\""`
	MaxLimits int       `key:"max_limits" doc:"Maximum number of limits; routes or methods beyond it share one limit." min:"1" max:"5000" default:"500" example:"100"`
	Priority  *Priority `key:"priority" doc:"Which requests to reject first."`
}

// Switch is a boolean in the form of Envoy's runtime feature flags.
type Switch struct {
	Default bool   `key:"default_value" doc:"Enables the filter." default:"true" example:"false"`
	Key     string `key:"runtime_key" doc:"Name in Envoy's runtime." ignored:"Weft has no runtime; default_value is used" example:"\"adaptive_concurrency.enabled\""`
}

// Gradient configures how the filter computes the limit.
type Gradient struct {
	Percentile Percent `key:"sample_aggregate_percentile" doc:"Percentile of the request times to use; absent: 50, the median."`
	Limit      Limit   `key:"concurrency_limit_params" doc:"Bounds and update interval of the limit."`
	MinRTT     MinRTT  `key:"min_rtt_calc_params" doc:"Measurement of the minimum round-trip time: the request time at low load."`
}

// Percent is a percentage.
type Percent struct {
	Value *float64 `key:"value" doc:"The percentage." unit:"percent" min:"0" max:"100" example:"50"`
}

// valueOr returns the value, or defaultValue if it is not set.
func (p Percent) valueOr(defaultValue float64) float64 {
	if p.Value == nil {
		return defaultValue
	}
	return *p.Value
}

// Limit configures the bounds of a limit and how often it is updated.
type Limit struct {
	Max    int64         `key:"max_concurrency_limit" doc:"Maximum value of the limit." min:"1" max:"1000000" default:"1000" example:"500"`
	Update time.Duration `key:"concurrency_update_interval" doc:"How often to update the limit; less often if requests take longer than half of this interval." min:"1ms" default:"100ms" example:"\"100ms\""`
}

// MinRTT configures how the filter measures the time of a request at the minimum limit.
type MinRTT struct {
	Interval       time.Duration  `key:"interval" doc:"Time between measurements. During a measurement, the limit is min_concurrency. It lasts at most a tenth of the interval, except that the first one continues until a few requests have been measured." min:"100ms" default:"60s" example:"\"60s\""`
	Requests       int64          `key:"request_count" doc:"Number of requests to measure." min:"1" max:"100000" default:"50" example:"50"`
	Jitter         Percent        `key:"jitter" doc:"Maximum random increase of the interval, as a percentage, so that instances do not measure at the same time; absent: 15."`
	MinConcurrency int64          `key:"min_concurrency" doc:"Minimum value of the limit, also used during a measurement." min:"1" max:"1000000" default:"3" example:"3"`
	Buffer         Percent        `key:"buffer" doc:"By how much, as a percentage, requests may exceed the minimum round-trip time before the limit decreases; absent: 25."`
	Fixed          *time.Duration `key:"fixed_value" doc:"Fixed minimum round-trip time; disables measurements." min:"1us" example:"\"5ms\""`
}

// Status is an HTTP status.
type Status struct {
	Code int `key:"code" doc:"HTTP status; a value below 400 means 503." min:"0" max:"599" enum:"TooManyRequests=429|ServiceUnavailable=503" default:"503" example:"429"`
}

// Priority configures how the filter finds the level of a request.
type Priority struct {
	Header  string  `key:"header,attachment" doc:"Header with the level of a request: an HTTP header, gRPC metadata, a Dubbo attachment or a Bolt header." required:"true" example:"\"x-priority\""`
	Levels  []Level `key:"levels" doc:"The levels." required:"true"`
	Default string  `key:"default" doc:"Value of the level for requests without the header or with an unknown value." required:"true" example:"\"normal\""`
}

// Level is a level of importance.
type Level struct {
	Value string `key:"value" doc:"Value of the header." required:"true" example:"\"batch\""`
	Share int64  `key:"share" doc:"How much of the limit may be in use, by requests of all levels, when a request of this level is accepted; one request is always accepted." unit:"percent" required:"true" min:"1" max:"100" example:"50"`
}

const defaultStatus = 503

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if c.Gradient != nil {
		if p := c.Gradient.params(); p.minLimit > p.maxLimit {
			return &document.KeyError{Key: "gradient_controller_config", Err: fmt.Errorf("min_concurrency %d exceeds max_concurrency_limit %d", p.minLimit, p.maxLimit)}
		}
	}
	if _, err := c.Priority.compile(); err != nil {
		return &document.KeyError{Key: "priority", Err: err}
	}
	return nil
}

func (c *Config) status() int {
	if c.Status.Code < 400 { // as in Envoy
		return defaultStatus
	}
	return c.Status.Code
}

func (g *Gradient) params() params {
	p := params{
		percentile:     g.Percentile.valueOr(50),
		maxLimit:       g.Limit.Max,
		updateInterval: g.Limit.Update,
		minRTTInterval: g.MinRTT.Interval,
		jitter:         g.MinRTT.Jitter.valueOr(15) / 100,
		minRTTRequests: g.MinRTT.Requests,
		minLimit:       g.MinRTT.MinConcurrency,
		buffer:         g.MinRTT.Buffer.valueOr(25) / 100,
	}
	if g.MinRTT.Fixed != nil {
		p.fixedMinRTT = *g.MinRTT.Fixed
	}
	return p
}

// levels is a compiled Priority. It is immutable.
type levels struct {
	field        match.Field
	list         []Level
	defaultIndex int // index of the level for requests with no value or an unknown one
}

// compile checks p and returns its compiled form. If p is nil, there is one level.
func (p *Priority) compile() (*levels, error) {
	if p == nil {
		return &levels{list: []Level{{Value: "all", Share: 100}}}, nil
	}
	field, err := match.NewField(p.Header)
	if err != nil {
		return nil, err
	}
	for i, l := range p.Levels {
		if slices.ContainsFunc(p.Levels[:i], func(previous Level) bool { return previous.Value == l.Value }) {
			return nil, fmt.Errorf("levels[%d]: duplicate level %q", i, l.Value)
		}
	}
	defaultIndex := slices.IndexFunc(p.Levels, func(l Level) bool { return l.Value == p.Default })
	switch {
	case defaultIndex < 0:
		return nil, fmt.Errorf("default: level %q is not defined", p.Default)
	case len(p.Levels) > maxLevels:
		return nil, fmt.Errorf("levels: found %d, at most %d are allowed", len(p.Levels), maxLevels)
	case !slices.ContainsFunc(p.Levels, func(l Level) bool { return l.Share == 100 }):
		return nil, errors.New("levels: no level has a share of 100, so no request could use the full limit")
	}
	return &levels{field, slices.Clone(p.Levels), defaultIndex}, nil
}

// maxLevels is the maximum number of levels: each limiter has one counter per level.
const maxLevels = 16
