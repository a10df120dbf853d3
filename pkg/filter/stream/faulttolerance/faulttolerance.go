// Package faulttolerance implements the fault_tolerance filter. It ejects hosts that fail much more
// often than the other hosts of their cluster. The filter only configures the outlier detection of
// the clusters; it forwards requests unchanged.
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
	Enabled        bool    `key:"enabled" doc:"Enables the filter." default:"false" example:"true"`
	ExceptionTypes []int   `key:"exceptionTypes" doc:"HTTP statuses that count as failures; RPC statuses are mapped to HTTP. Absent: 502, 503 and 504." example:"[500, 503]"`
	TimeWindow     int64   `key:"timeWindow" doc:"Interval at which Weft evaluates the hosts and readmits ejected hosts whose recoverTime has passed; at least 10. 0: the default." unit:"milliseconds" min:"0" default:"10000" example:"5000"`
	MinRequests    int     `key:"leastWindowCount" doc:"Minimum number of requests to a host in timeWindow for an evaluation. 0: the default." unit:"requests" min:"0" default:"10" example:"100"`
	RateMultiple   float64 `key:"exceptionRateMultiple" doc:"Ejects hosts whose failure rate is at least this multiple of the failure rate of all evaluated hosts. Must be greater than 1. 0: the default." min:"0" default:"5" example:"3"`
	MaxHosts       int     `key:"maxIpCount" doc:"Maximum number of ejected hosts in a cluster. 0: the default." unit:"hosts" min:"0" default:"1" example:"2"`
	MaxRatio       float64 `key:"maxIpRatio" doc:"Maximum fraction of ejected hosts." ignored:"maxIpCount applies" example:"0.5"`
	RecoverTime    int64   `key:"recoverTime" doc:"How long a host stays ejected. 0: the default." unit:"milliseconds" min:"0" default:"900000" example:"60000"`
	TaskSize       int64   `key:"taskSize" doc:"Number of goroutines that evaluate failures." ignored:"each cluster has a timer" example:"20"`
}

// Default values, and the minimum of timeWindow.
const (
	defaultWindowMillis  = 10_000
	defaultMinRequests   = 10
	defaultMultiple      = 5
	defaultMaxHosts      = 1
	defaultRecoverMillis = 900_000

	minWindowMillis = 10
)

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if c.TimeWindow != 0 && c.TimeWindow < minWindowMillis {
		return &document.KeyError{Key: "timeWindow", Err: errors.New("the window is shorter than 10 ms")}
	}
	if c.RateMultiple != 0 && c.RateMultiple <= 1 {
		return &document.KeyError{Key: "exceptionRateMultiple", Err: errors.New("the multiple must be greater than 1")}
	}
	for _, status := range c.ExceptionTypes {
		if status < 100 || status > 999 {
			return &document.KeyError{Key: "exceptionTypes", Err: errors.New("found a number that is not an HTTP status")}
		}
	}
	return nil
}

// Outlier implements filter.OutlierPolicy.
func (c *Config) Outlier() *config.OutlierDetection {
	if !c.Enabled {
		return nil
	}
	codes := c.ExceptionTypes
	if codes == nil {
		codes = []int{502, 503, 504}
	}
	ejectionTime := milliseconds(c.RecoverTime, defaultRecoverMillis)
	return &config.OutlierDetection{
		Interval:           milliseconds(c.TimeWindow, defaultWindowMillis),
		BaseEjectionTime:   ejectionTime,
		MaxEjectionTime:    ejectionTime, // the ejection time does not grow
		MaxEjectionPercent: 100,
		MaxEjectedHosts:    orDefault(c.MaxHosts, defaultMaxHosts),
		FailureMultiple: config.FailureMultiple{
			Multiple:      orDefault(c.RateMultiple, defaultMultiple),
			RequestVolume: orDefault(c.MinRequests, defaultMinRequests),
		},
		FailureStatuses: codes,
	}
}

func milliseconds(n, defaultValue int64) time.Duration {
	return time.Duration(orDefault(n, defaultValue)) * time.Millisecond
}

// orDefault returns v, or defaultValue if v is 0.
func orDefault[T int | int64 | float64](v, defaultValue T) T {
	if v == 0 {
		return defaultValue
	}
	return v
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:   "fault_tolerance",
		Stage:  filter.BeforeRoute, // a route cannot have its own settings
		Config: func() any { return new(Config) },
		New: func(any, filter.Env) (filter.Filter, error) {
			return func(next protocol.Service) protocol.Service { return next }, nil
		},
	}
}
