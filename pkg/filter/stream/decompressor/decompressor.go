// Package decompressor implements the decompressor filter, which decompresses requests within
// limits, so that later filters and the host receive the decompressed body.
package decompressor

import (
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
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "decompressor",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{requestsMetric(), rejectedMetric()},
	}
}

func requestsMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_decompressor_requests_total", Help: "Requests that the decompressor filter decompressed, including those it rejected.", Kind: metrics.KindCounter}
}

func rejectedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_decompressor_refused_total", Help: "Requests rejected because the body exceeds a limit or is not valid for its Content-Encoding.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	if c.Disabled {
		return func(next protocol.Service) protocol.Service { return next }, nil
	}
	limits := coding.Limits{MaxSize: c.MaxSize, MaxRatio: c.MaxRatio}
	var decoders []*coding.DecoderPool
	for _, contentCoding := range [...]coding.Coding{coding.Gzip, coding.Zstd} {
		d, err := coding.NewDecoderPool(contentCoding, limits)
		if err != nil {
			return nil, err
		}
		decoders = append(decoders, d)
	}
	return coding.Decompress(decoders, env.Metrics.Counter(requestsMetric()), env.Metrics.Counter(rejectedMetric())), nil
}
