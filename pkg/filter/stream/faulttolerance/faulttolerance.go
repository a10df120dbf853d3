// Package faulttolerance owns the fault_tolerance filter. It ejects hosts that fail much more often
// than the others of their cluster. The outlier detection of the clusters does the work; the filter
// forwards requests unchanged and adds no cost to them.
package faulttolerance

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration. The number 0 means the default.
type Config struct {
	Enabled        bool    `key:"enabled" doc:"Whether it does anything." default:"false" example:"true"`
	ExceptionTypes []int   `key:"exceptionTypes" doc:"Statuses that are failures; of RPC what they mean in HTTP. Absent: 502, 503 and 504." example:"[500, 503]"`
	TimeWindow     int64   `key:"timeWindow" doc:"How often failures are looked at, and hosts return whose time is over: 10 at least. 0: the default." unit:"milliseconds" min:"0" default:"10000" example:"5000"`
	LeastCount     int     `key:"leastWindowCount" doc:"Requests in timeWindow that a host is judged by. 0: the default." unit:"requests" min:"0" default:"10" example:"100"`
	RateMultiple   float64 `key:"exceptionRateMultiple" doc:"Hosts are ejected whose share of failures is so many times that of the cluster, or more: above 1. 0: the default." min:"0" default:"5" example:"3"`
	MaxHosts       int     `key:"maxIpCount" doc:"Hosts of a cluster that may be out at once. 0: the default." unit:"hosts" min:"0" default:"1" example:"2"`
	MaxRatio       float64 `key:"maxIpRatio" doc:"Share of the hosts that may be out at once." noeffect:"maxIpCount decides" example:"0.5"`
	RecoverTime    int64   `key:"recoverTime" doc:"How long a host is out. 0: the default." unit:"milliseconds" min:"0" default:"900000" example:"60000"`
	TaskSize       int64   `key:"taskSize" doc:"How many goroutines look at failures." noeffect:"a timer for each cluster does" example:"20"`
}

// Default values, and the minimum of timeWindow.
const (
	defaultWindow   = 10_000
	defaultCount    = 10
	defaultMultiple = 5
	defaultHosts    = 1
	defaultRecover  = 900_000

	leastWindow = 10
)

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if c.TimeWindow != 0 && c.TimeWindow < leastWindow {
		return &document.KeyError{Key: "timeWindow", Err: errors.New("a window of less than 10 ms")}
	}
	if c.RateMultiple != 0 && c.RateMultiple <= 1 {
		return &document.KeyError{Key: "exceptionRateMultiple", Err: errors.New("hosts that fail as often as all are no exception: it is above 1")}
	}
	for _, status := range c.ExceptionTypes {
		if status < 100 || status > 999 {
			return &document.KeyError{Key: "exceptionTypes", Err: errors.New("found a number that is no status")}
		}
	}
	return nil
}

// Outlier implements filter.OutlierPolicy.
func (c *Config) Outlier() *config.Outlier {
	if !c.Enabled {
		return nil
	}
	codes := c.ExceptionTypes
	if codes == nil {
		codes = []int{502, 503, 504}
	}
	out := milliseconds(c.RecoverTime, defaultRecover)
	return &config.Outlier{
		Interval:   milliseconds(c.TimeWindow, defaultWindow),
		BaseTime:   out,
		MaxTime:    out, // the ejection time does not grow
		MaxPercent: 100,
		MaxHosts:   or(c.MaxHosts, defaultHosts),
		FailureMultiple: config.FailureMultiple{
			Multiple: or(c.RateMultiple, defaultMultiple),
			Volume:   or(c.LeastCount, defaultCount),
		},
		Codes: codes,
	}
}

func milliseconds(n, instead int64) time.Duration {
	return time.Duration(or(n, instead)) * time.Millisecond
}

// or returns v, or instead if v is 0.
func or[T int | int64 | float64](v, instead T) T {
	if v == 0 {
		return instead
	}
	return v
}

// Kind returns the filter factory.
func Kind() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:   "fault_tolerance",
		Stage:  filter.BeforeRoute, // a route cannot have its own settings
		Config: func() any { return new(Config) },
		New: func(any, filter.Env) (filter.Filter, error) {
			return func(next protocol.Service) protocol.Service { return next }, nil
		},
	}
}
