// Package decompressor implements the decompressor filter, which decompresses requests and responses
// within limits, so that later filters and the receiver get the decompressed body.
package decompressor

import (
	"fmt"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/coding"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	Disabled bool  `key:"disabled" doc:"Disables decompression, for example for a route whose application decompresses." default:"false" example:"true"`
	MaxSize  int64 `key:"max_decompressed_size" doc:"Maximum size of a decompressed body; 0: no limit." unit:"bytes" min:"0" default:"67108864" example:"\"10MB\""`
	MaxRatio int64 `key:"max_inflate_ratio" doc:"Maximum ratio of decompressed to compressed size, checked for bodies that decompress to more than 64 KiB; 0: no limit." min:"0" default:"100" example:"20"`

	Encodings []string  `key:"encodings" doc:"Content codings to decompress, gzip and zstd. Empty: both." example:"[\"gzip\"]"`
	Advertise bool      `key:"advertise_accept_encoding" doc:"Adds these codings to Accept-Encoding of requests, so that the application compresses its responses." default:"false" example:"true"`
	Requests  Direction `key:"requests" doc:"Whether to decompress requests."`
	Responses Responses `key:"responses" doc:"Whether to decompress responses."`
}

// Direction configures the decompression of requests.
type Direction struct {
	Enabled           bool `key:"enabled" doc:"Decompresses these messages." default:"true" example:"false"`
	IgnoreNoTransform bool `key:"ignore_no_transform_header" doc:"Also decompresses messages with Cache-Control: no-transform." default:"false" example:"true"`
}

// Responses configures the decompression of responses.
type Responses struct {
	Enabled           bool `key:"enabled" doc:"Decompresses these messages." default:"false" example:"true"`
	IgnoreNoTransform bool `key:"ignore_no_transform_header" doc:"Also decompresses messages with Cache-Control: no-transform." default:"false" example:"true"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.codings()
	return err
}

func (c *Config) codings() ([]coding.Coding, error) {
	if len(c.Encodings) == 0 {
		return []coding.Coding{coding.Gzip, coding.Zstd}, nil
	}
	var all []coding.Coding
	for _, name := range c.Encodings {
		parsed, ok := coding.ParseCoding(name)
		if !ok || parsed == coding.Identity {
			return nil, fmt.Errorf("encodings: %q is not supported, expected gzip or zstd", name)
		}
		all = append(all, parsed)
	}
	return all, nil
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "decompressor",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{requestsMetric(), responsesMetric(), rejectedMetric()},
	}
}

func requestsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_decompressor_requests_total", Help: "Requests that the decompressor filter decompressed, including those it rejected.", Kind: metrics.KindCounter}
}

func responsesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_decompressor_responses_total", Help: "Responses that the decompressor filter decompressed.", Kind: metrics.KindCounter}
}

func rejectedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_decompressor_refused_total", Help: "Requests rejected because the body exceeds a limit or is not valid for its Content-Encoding.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	if c.Disabled {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	codings, err := c.codings()
	if err != nil {
		return nil, err
	}
	d := coding.Decompression{
		Requests:  coding.Direction{Enabled: c.Requests.Enabled, IgnoreNoTransform: c.Requests.IgnoreNoTransform, Decompressed: env.Metrics.Counter(requestsMetric())},
		Responses: coding.Direction{Enabled: c.Responses.Enabled, IgnoreNoTransform: c.Responses.IgnoreNoTransform, Decompressed: env.Metrics.Counter(responsesMetric())},
		Advertise: c.Advertise,
		Rejected:  env.Metrics.Counter(rejectedMetric()),
	}
	limits := coding.Limits{MaxSize: c.MaxSize, MaxRatio: c.MaxRatio}
	for _, contentCoding := range codings {
		pool, err := coding.NewDecoderPool(contentCoding, limits)
		if err != nil {
			return nil, err
		}
		d.Decoders = append(d.Decoders, pool)
	}
	return coding.Decompress(d), nil
}
