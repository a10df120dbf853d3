// Package gzip implements the gzip filter, which compresses responses for clients that accept gzip.
// It has the settings of MOSN's gzip filter.
package gzip

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/coding"
)

// Config is the filter's configuration.
type Config struct {
	Level       int      `key:"gzip_level" doc:"Compression level, from 1 (fastest) to 9 (smallest)." min:"1" max:"9" default:"6" example:"1"`
	MinLength   int64    `key:"min_content_length,content_length" doc:"Responses with a smaller Content-Length are not compressed." unit:"bytes" min:"0" default:"30" example:"1024"`
	ContentType []string `key:"content_type,content_types" doc:"Media types to compress, without parameters; text/* means all text types. Empty: text/html." example:"[\"text/html\", \"application/json\"]"`
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "gzip",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{responsesMetric(), uncompressedBytesMetric(), compressedBytesMetric()},
	}
}

func responsesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_gzip_responses_total", Help: "Responses that the gzip filter compressed.", Kind: metrics.KindCounter}
}

func uncompressedBytesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_gzip_before_bytes_total", Help: "Body bytes of the compressed responses, before compression.", Kind: metrics.KindCounter}
}

func compressedBytesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_gzip_after_bytes_total", Help: "Body bytes of the compressed responses, after compression.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	pool, err := coding.NewEncoderPool(coding.Gzip, c.Level, coding.Counters{
		Responses: env.Metrics.Counter(responsesMetric()), UncompressedBytes: env.Metrics.Counter(uncompressedBytesMetric()), CompressedBytes: env.Metrics.Counter(compressedBytesMetric()),
	})
	if err != nil {
		return nil, err
	}
	types := c.ContentType
	if len(types) == 0 {
		types = []string{"text/html"}
	}
	return coding.Compress(coding.Policy{Encoders: []*coding.EncoderPool{pool}, MinLength: c.MinLength, Types: types}), nil
}
