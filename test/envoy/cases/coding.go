package cases

import (
	"bytes"
	"compress/gzip"
	"strings"
)

// codings adds the groups about the filters that compress and decompress.
func (s *set) codings() {
	s.compressors()
	s.decompressors()
}

func (s *set) compressors() {
	const name, message = "compressor", "compressor.v3.Compressor"
	library := func(coding, config string) string {
		return "compressor_library:\n  name: x\n  typed_config:\n    \"@type\": type.googleapis.com/envoy.extensions.compression." + config + "\n" + coding
	}
	gzipLibrary := library("", "gzip.compressor.v3.Gzip") + "\n"
	perRouteDisabled := indent("  ", perRoute(name, "compressor.v3.CompressorPerRoute", "disabled: true"))
	perRouteOverrides := indent("  ", perRoute(name, "compressor.v3.CompressorPerRoute", "overrides: {response_direction_config: {remove_accept_encoding_header: true}}"))
	routes := "- match: {prefix: /off}\n  route: {cluster: o1}\n" + perRouteDisabled +
		"- match: {prefix: /override}\n  route: {cluster: o1}\n" + perRouteOverrides + "- {match: {prefix: /}, route: {cluster: o1}}"
	for _, v := range []variant{
		{"default", gzipLibrary},
		{"level", library("    compression_level: BEST_SPEED\n    memory_level: 3", "gzip.compressor.v3.Gzip")},
		{"zstd", library("    compression_level: 3", "zstd.compressor.v3.Zstd")},
		{"types", gzipLibrary + "response_direction_config: {common_config: {min_content_length: 100, content_type: [text/plain, application/x]}}"},
		{"off", gzipLibrary + "response_direction_config: {common_config: {enabled: {default_value: false, runtime_key: k}}}"},
		{"no etag", gzipLibrary + "response_direction_config: {disable_on_etag_header: true}"},
		{"weak etag", gzipLibrary + "response_direction_config: {weaken_etag_on_compress: true}"},
		{"remove", gzipLibrary + "response_direction_config: {remove_accept_encoding_header: true}"},
		{"codes", gzipLibrary + "response_direction_config: {uncompressible_response_codes: [404, 206]}"},
		{"requests off", gzipLibrary + "request_direction_config: {common_config: {enabled: {default_value: false, runtime_key: k}}}"},
	} {
		g := s.add(Group{Feature: "compressor", Filters: filter(name, message, v.yaml), Routes: routes})
		for _, accept := range []string{"gzip", "zstd, gzip;q=0.5", "*", "identity, gzip", "identity;q=0, gzip;q=0.1", "deflate"} {
			g.get("/", field("Accept-Encoding", accept), field("x-o-len", "1000"), bodyLength(), labelf("%s %s", v.name, accept))
		}
		for _, response := range []string{
			"Content-Type: application/x", "Content-Type: text/html; charset=utf-8", `ETag: "s"`, `ETag: W/"w"`, "Vary: Origin",
			"Vary: Accept-Encoding", "Content-Encoding: br", "Cache-Control: no-transform, public",
		} {
			g.get("/", field("Accept-Encoding", "gzip"), field("x-o-len", "1000"), field("x-o-h", response), bodyLength(), labelf("%s %s", v.name, response))
		}
		for _, status := range []string{"404", "500", "204"} {
			g.get("/", field("Accept-Encoding", "gzip"), field("x-o-len", "1000"), field("x-o-status", status), bodyLength(), labelf("%s %s", v.name, status))
		}
		g.get("/", label(v.name+" without Accept-Encoding"), field("x-o-len", "1000"), bodyLength())
		g.get("/", label(v.name+" without Content-Type"), field("Accept-Encoding", "gzip"), field("x-o-len", "1000"), field("x-o-noct", "1"), bodyLength())
		g.get("/", label(v.name+" chunked"), field("Accept-Encoding", "gzip"), field("x-o-len", "1000"), field("x-o-chunked", "1"), bodyLength())
		g.get("/", label(v.name+" HEAD"), method("HEAD"), field("Accept-Encoding", "gzip"), field("x-o-len", "1000"))
		g.get("/off", label(v.name+" /off"), field("Accept-Encoding", "gzip"), field("x-o-len", "1000"), bodyLength())
		g.get("/override", label(v.name+" /override"), field("Accept-Encoding", "gzip"), field("x-o-len", "1000"), bodyLength())
		g.h2(label(v.name+" HTTP/2"), field("accept-encoding", "gzip"), field("x-o-len", "1000"), bodyLength())
	}
}

func (s *set) decompressors() {
	const library = `
decompressor_library:
  name: x
  typed_config: {"@type": type.googleapis.com/envoy.extensions.compression.gzip.decompressor.v3.Gzip}
`
	off := "{enabled: {default_value: false, runtime_key: k}}"
	for _, v := range []variant{
		{"default", library},
		{"requests off", library + "request_direction_config: {common_config: " + off + "}"},
		{"responses off", library + "response_direction_config: {common_config: " + off + "}"},
		{"no advertising", library + "request_direction_config: {advertise_accept_encoding: false}"},
		{"ignore no-transform", library + "request_direction_config: {common_config: {ignore_no_transform_header: true}}\nresponse_direction_config: {common_config: {ignore_no_transform_header: true}}"},
	} {
		g := s.add(Group{Feature: "decompressor", Filters: filter("decompressor", "decompressor.v3.Decompressor", v.yaml)})
		content := body(compressed(strings.Repeat("x", 100)))
		g.get("/", method("POST"), content, field("Content-Encoding", "gzip"), label(v.name+" gzip"))
		g.get("/", method("POST"), content, field("Content-Encoding", "gzip, br"), label(v.name+" two codings"))
		g.get("/", method("POST"), content, field("Content-Encoding", "gzip"), field("Cache-Control", "no-transform"), label(v.name+" no-transform"))
		g.get("/", method("POST"), body("plain"), label(v.name+" plain"))
		for _, accept := range []string{"", "gzip", "br, gzip;q=0", "deflate"} {
			options := []option{field("x-o-len", "1000"), field("x-o-gzip", "1"), bodyLength(), labelf("%s response, accept %s", v.name, accept)}
			if accept != "" {
				options = append(options, field("Accept-Encoding", accept))
			}
			g.get("/", options...)
		}
		g.get("/", field("x-o-len", "1000"), field("x-o-gzip", "1"), field("x-o-h", "Cache-Control: no-transform"), bodyLength(), label(v.name+" response no-transform"))
		g.get("/", field("x-o-len", "1000"), field("x-o-gzip", "1"), method("HEAD"), label(v.name+" HEAD"))
		g.h2(field("x-o-len", "1000"), field("x-o-gzip", "1"), bodyLength(), label(v.name+" HTTP/2"))
	}
}

// compressed returns a text that is compressed with gzip.
func compressed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // a bytes.Buffer returns no errors
	_ = w.Close()
	return b.String()
}
