// Package compressor implements the compressor filter, which compresses responses in the coding
// that the client prefers.
package compressor

import (
	"fmt"
	"slices"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/coding"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	Disabled             bool     `key:"disabled" doc:"Disables compression, for example for one route." default:"false" example:"true"`
	Encodings            []string `key:"encodings" doc:"Content codings, gzip and zstd, in order of preference: of those that a client accepts equally, the first is used. Empty: zstd, gzip." example:"[\"gzip\"]"`
	GzipLevel            int      `key:"gzip_level" doc:"Compression level of gzip, from 1 (fastest) to 9 (smallest)." min:"1" max:"9" default:"5" example:"1"`
	ZstdLevel            int      `key:"zstd_level" doc:"Compression level of zstd; neighboring levels may be equivalent." min:"1" max:"22" default:"1" example:"3"`
	MinLength            int64    `key:"min_content_length" doc:"Responses with a smaller Content-Length are not compressed." unit:"bytes" min:"0" default:"256" example:"1024"`
	ContentType          []string `key:"content_type" doc:"Media types to compress, without parameters; text/* means all text types. Empty: the list below." example:"[\"text/*\", \"application/json\"]"`
	KeepStrong           bool     `key:"disable_on_etag_header" doc:"Does not compress responses with a strong ETag; otherwise the ETag becomes weak." default:"false" example:"true"`
	KeepWeak             bool     `key:"disable_on_weak_etag_header" doc:"Does not compress responses with a weak ETag." default:"false" example:"true"`
	StrongTag            string   `key:"strong_etag" doc:"What happens to the strong ETag of a response that is compressed." enum:"weaken|remove" default:"weaken" example:"\"remove\""`
	MissingType          bool     `key:"compress_without_content_type" doc:"Also compresses responses without Content-Type." default:"false" example:"true"`
	ExcludedStatuses     []int    `key:"uncompressible_response_codes" doc:"Statuses of responses that are not compressed." example:"[404]"`
	RemoveAcceptEncoding *bool    `key:"remove_accept_encoding_header" doc:"Removes Accept-Encoding from requests, so that the application does not compress. Absent: false." example:"true"`

	// Inherit overrides single settings of the listener, as Envoy's routes do.
	Inherit bool `key:"inherit" doc:"In the settings of a route. true: the settings of the listener apply, except remove_accept_encoding_header if the route sets it. false: the settings of the route replace them." default:"false" example:"true"`
}

// inherit implements filter.StreamFilterFactory.Inherit.
func inherit(listenerConfig, routeConfig any) any {
	listener, listenerOK := listenerConfig.(*Config)
	route, routeOK := routeConfig.(*Config)
	if !listenerOK || !routeOK || !route.Inherit {
		return routeConfig
	}
	merged := *listener
	merged.Disabled = false
	if route.RemoveAcceptEncoding != nil {
		merged.RemoveAcceptEncoding = route.RemoveAcceptEncoding
	}
	return &merged
}

// defaultContentTypes returns the media types that are compressed by default. text/event-stream is
// not one of them, because each open stream would hold an encoder.
func defaultContentTypes() []string {
	return []string{
		"application/javascript", "application/json", "application/xhtml+xml", "application/xml", "image/svg+xml",
		"text/css", "text/html", "text/javascript", "text/plain", "text/xml",
	}
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.codings()
	return err
}

func (c *Config) codings() ([]coding.Coding, error) {
	if len(c.Encodings) == 0 {
		return []coding.Coding{coding.Zstd, coding.Gzip}, nil
	}
	var all []coding.Coding
	for _, name := range c.Encodings {
		parsed, ok := coding.ParseCoding(name)
		if !ok || parsed == coding.Identity {
			return nil, fmt.Errorf("encodings: %q is not supported, expected gzip or zstd", name)
		}
		if slices.Contains(all, parsed) {
			return nil, fmt.Errorf("encodings: %q is listed twice", name)
		}
		all = append(all, parsed)
	}
	return all, nil
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "compressor",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		Inherit: inherit,
		New:     build,
		Metrics: []metrics.Metric{responsesMetric(), uncompressedBytesMetric(), compressedBytesMetric()},
	}
}

const labelEncoding = "encoding"

func responsesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_compressor_responses_total", Help: "Responses that the compressor filter compressed, by coding.", Kind: metrics.KindCounter, Labels: []string{labelEncoding}}
}

func uncompressedBytesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_compressor_before_bytes_total", Help: "Body bytes of the compressed responses, before compression.", Kind: metrics.KindCounter, Labels: []string{labelEncoding}}
}

func compressedBytesMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_compressor_after_bytes_total", Help: "Body bytes of the compressed responses, after compression.", Kind: metrics.KindCounter, Labels: []string{labelEncoding}}
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
	p := coding.Policy{
		MinLength: c.MinLength, Types: c.ContentType, MissingType: c.MissingType,
		KeepStrongTags: c.KeepStrong, KeepWeakTags: c.KeepWeak, RemoveStrongTags: c.StrongTag == "remove",
		ExcludedStatuses: c.ExcludedStatuses, RemoveAcceptEncoding: c.RemoveAcceptEncoding != nil && *c.RemoveAcceptEncoding,
	}
	if len(p.Types) == 0 {
		p.Types = defaultContentTypes()
	}
	for _, contentCoding := range codings {
		level := c.GzipLevel
		if contentCoding == coding.Zstd {
			level = c.ZstdLevel
		}
		name := contentCoding.String()
		encoders, err := coding.NewEncoderPool(contentCoding, level, coding.Counters{
			Responses: env.Metrics.Counter(responsesMetric(), name), UncompressedBytes: env.Metrics.Counter(uncompressedBytesMetric(), name), CompressedBytes: env.Metrics.Counter(compressedBytesMetric(), name),
		})
		if err != nil {
			return nil, err
		}
		p.Encoders = append(p.Encoders, encoders)
	}
	return coding.Compress(p), nil
}
