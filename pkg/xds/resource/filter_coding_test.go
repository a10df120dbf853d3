package resource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/filter/stream/compressor"
	"github.com/weft-proxy/weft/pkg/filter/stream/decompressor"
)

const (
	gzipLibrary = `"compressor_library": {"name": "x", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.compression.gzip.compressor.v3.Gzip"`
	gunzip      = `"decompressor_library": {"name": "x", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.compression.gzip.decompressor.v3.Gzip"`
)

// defaultCompressor returns the settings of a Compressor with only a gzip library.
func defaultCompressor() *compressor.Config {
	return &compressor.Config{
		Encodings: []string{"gzip"}, GzipLevel: 6, ZstdLevel: 1, MinLength: 30, StrongTag: "remove", MissingType: true,
		ContentType: []string{"application/javascript", "application/json", "application/xhtml+xml", "image/svg+xml", "text/css", "text/html", "text/plain", "text/xml"},
	}
}

func TestCompressorSettings(t *testing.T) {
	for name, test := range map[string]struct {
		settings string
		change   func(c *compressor.Config)
		err      string
	}{
		"default":      {settings: gzipLibrary + `}}`, change: func(*compressor.Config) {}},
		"fastest":      {settings: gzipLibrary + `, "compression_level": "BEST_SPEED", "window_bits": 10}}`, change: func(c *compressor.Config) { c.GzipLevel = 1 }},
		"level 9":      {settings: gzipLibrary + `, "compression_level": "COMPRESSION_LEVEL_9"}}`, change: func(c *compressor.Config) { c.GzipLevel = 9 }},
		"older fields": {settings: gzipLibrary + `}}, "content_length": 50, "content_type": ["a/b"]`, change: func(c *compressor.Config) { c.MinLength, c.ContentType = 50, []string{"a/b"} }},
		"responses": {
			settings: gzipLibrary + `}}, "content_length": 50, "response_direction_config": {"common_config": {"min_content_length": 60}, "disable_on_etag_header": true, "uncompressible_response_codes": [404]}`,
			change: func(c *compressor.Config) {
				c.MinLength, c.KeepStrong, c.KeepWeak, c.ExcludedStatuses = 60, true, true, []int{404}
			},
		},
		"responses disabled": {settings: gzipLibrary + `}}, "response_direction_config": {"common_config": {"enabled": {"default_value": false, "runtime_key": "k"}}}`, change: func(c *compressor.Config) { c.Disabled = true }},
		"weak tags":          {settings: gzipLibrary + `}}, "response_direction_config": {"weaken_etag_on_compress": true}`, change: func(c *compressor.Config) { c.StrongTag = "weaken" }},
		"zstd": {
			settings: `"compressor_library": {"name": "x", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.compression.zstd.compressor.v3.Zstd", "compression_level": 7}}`,
			change:   func(c *compressor.Config) { c.Encodings, c.GzipLevel, c.ZstdLevel = []string{"zstd"}, 5, 7 },
		},
		"other library": {
			settings: `"compressor_library": {"name": "x", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`,
			err:      "compressor_library.typed_config: type.googleapis.com/envoy.extensions.filters.http.router.v3.Router is not supported",
		},
		"requests":            {settings: gzipLibrary + `}}, "request_direction_config": {}`, err: "request_direction_config: is not supported"},
		"compression status":  {settings: gzipLibrary + `}}, "response_direction_config": {"status_header_enabled": true}`, err: "status_header_enabled"},
		"disabled by runtime": {settings: gzipLibrary + `}}, "runtime_enabled": {"default_value": false, "runtime_key": "k"}`, change: func(c *compressor.Config) { c.Disabled = true }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readFilter(t, `{"@type": "compressor.v3.Compressor", `+test.settings+`}`)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := defaultCompressor()
			test.change(want)
			if diff := cmp.Diff(any(want), got, cmp.Transformer("bool", func(p *bool) bool { return p != nil && *p })); diff != "" {
				t.Errorf("settings, - want + got:\n%s", diff)
			}
		})
	}
}

func TestCompressorRouteSettings(t *testing.T) {
	for text, want := range map[string]func(c *compressor.Config) bool{
		`"disabled": true`: func(c *compressor.Config) bool { return c.Disabled && !c.Inherit },
		`"overrides": {}`:  func(c *compressor.Config) bool { return !c.Disabled && c.Inherit && c.RemoveAcceptEncoding == nil },
		`"overrides": {"response_direction_config": {"remove_accept_encoding_header": true}}`: func(c *compressor.Config) bool {
			return c.Inherit && *c.RemoveAcceptEncoding
		},
		`"overrides": {` + gzipLibrary + `}}}`: nil,
	} {
		got, err := readRouteFilter(t, `{"@type": "compressor.v3.CompressorPerRoute", `+text+`}`)
		switch {
		case want == nil:
			if err == nil || !strings.Contains(err.Error(), "overrides.compressor_library") {
				t.Errorf("%s: error %v, want one about compressor_library", text, err)
			}
		case err != nil:
			t.Errorf("%s: %v", text, err)
		case !want(got.(*compressor.Config)):
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}

// readRouteFilter reads the settings of a route for a filter.
func readRouteFilter(t *testing.T, text string) (any, error) {
	t.Helper()
	r := &report{capabilities: allCapabilities()}
	got := fieldReader{report: r}.readPerFilter(map[string]*anypb.Any{"f": filterOf(t, text).GetTypedConfig()})
	return got["f"], r.rejection()
}

func TestDecompressorSettings(t *testing.T) {
	got, err := readFilter(t, `{"@type": "decompressor.v3.Decompressor", `+gunzip+`, "max_inflate_ratio": 7}},
		"request_direction_config": {"common_config": {"enabled": {"default_value": false, "runtime_key": "k"}, "ignore_no_transform_header": true}}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := &decompressor.Config{
		MaxRatio: 7, Encodings: []string{"gzip"}, Advertise: true,
		Requests: decompressor.Direction{IgnoreNoTransform: true}, Responses: decompressor.Responses{Enabled: true},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("settings, - want + got:\n%s", diff)
	}
	got, err = readFilter(t, `{"@type": "decompressor.v3.Decompressor", `+gunzip+`}}, "response_direction_config": {"common_config": {"enabled": {"default_value": false, "runtime_key": "k"}}}}`)
	if err != nil || got.(*decompressor.Config).Advertise {
		t.Errorf("responses disabled: %+v, %v, want no advertised coding", got, err)
	}
}

// TestCompressionLibraries verifies that the fields of the supported extensions are ignored by
// name only if the extensions have them.
func TestCompressionLibraries(t *testing.T) {
	for _, l := range compressionLibraries() {
		fields := l.message.ProtoReflect().Descriptor().Fields()
		for _, name := range l.ignored {
			if fields.ByName(protoreflect.Name(name)) == nil {
				t.Errorf("%T has no field %s", l.message, name)
			}
		}
	}
}
