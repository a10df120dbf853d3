package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

// Features of the filters that compress and decompress.

// gzipBody returns body compressed with gzip.
func gzipBody(body string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, body) // writes to memory do not fail
	_ = w.Close()
	return b.String()
}

// checkGzipBody returns a function that verifies that each response is body compressed with gzip.
func checkGzipBody(body string) func(t *testing.T, responses []httpResponse) {
	return func(t *testing.T, responses []httpResponse) {
		for _, resp := range responses {
			r, err := gzip.NewReader(strings.NewReader(resp.body))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != body {
				t.Errorf("%d bytes decompress to %d, %.60q, %v; want %.60q", len(resp.body), len(got), got, err, body)
			}
		}
	}
}

func (p *protocolPair) compressor() feature {
	large := strings.Repeat("content ", 40_000)
	const coding, vary = "Content-Encoding", "Vary"
	return feature{
		name:    "compressor",
		filters: list{streamFilter("compressor", object{})},
		routes:  []object{routeWithFilter("/none", "compressor", object{"disabled": true})},
		cases: []requestCase{
			{name: "gzip", method: "POST", path: "/", requestBody: large, fields: []string{"Accept-Encoding: gzip"}, status: 200,
				wantHeaders: map[string]string{coding: "gzip", vary: "Accept-Encoding"}, check: checkGzipBody(large)},
			{name: "preferred coding", method: "POST", path: "/", requestBody: large, fields: []string{"Accept-Encoding: gzip;q=0.5, zstd"}, status: 200,
				wantHeaders: map[string]string{coding: "zstd"}},
			{name: "HEAD", method: "HEAD", path: "/", fields: []string{"Accept-Encoding: gzip"}, status: 200, wantHeaders: map[string]string{coding: ""}},
			{name: "no Accept-Encoding", method: "POST", path: "/", requestBody: large, status: 200, code: "0", body: large, wantHeaders: map[string]string{coding: ""}},
			{name: "route without the filter", method: "POST", path: "/none", requestBody: large, fields: []string{"Accept-Encoding: gzip"}, status: 200, code: "0", body: large,
				wantHeaders: map[string]string{coding: ""}},
			{name: "gRPC is unchanged", path: "/", requestBody: large, fields: []string{"Accept-Encoding: gzip"}, code: "0", wantHeaders: map[string]string{coding: ""}},
		},
	}
}

func (p *protocolPair) gzip() feature {
	large := strings.Repeat("content ", 40_000)
	const coding = "Content-Encoding"
	return feature{
		name:    "gzip",
		filters: list{streamFilter("gzip", object{"content_type": list{"text/plain"}})},
		cases: []requestCase{
			{name: "gzip", method: "POST", path: "/", requestBody: large, fields: []string{"Accept-Encoding: gzip"}, status: 200,
				wantHeaders: map[string]string{coding: "gzip"}, check: checkGzipBody(large)},
			{name: "no Accept-Encoding", method: "POST", path: "/", requestBody: large, status: 200, code: "0", body: large, wantHeaders: map[string]string{coding: ""}},
			{name: "gRPC is unchanged", path: "/", requestBody: large, fields: []string{"Accept-Encoding: gzip"}, code: "0", wantHeaders: map[string]string{coding: ""}},
		},
	}
}

func (p *protocolPair) decompressor() feature {
	large := strings.Repeat("content ", 1000)
	compressed := gzipBody(large)
	encoded := []string{"Content-Encoding: gzip"}
	return feature{
		name:    "decompressor",
		filters: list{streamFilter("decompressor", object{"max_decompressed_size": len(large)})},
		routes:  []object{routeWithFilter("/none", "decompressor", object{"disabled": true})},
		cases: []requestCase{
			{name: "gzip", method: "POST", path: "/", requestBody: compressed, fields: encoded, status: 200, body: large,
				wantHeaders: map[string]string{"Got-Content-Encoding": "", "X-App": "app"}},
			{name: "chunked", method: "POST", path: "/", requestBody: compressed, chunked: true, fields: encoded, status: 200, body: large},
			{name: "too large", method: "POST", path: "/", requestBody: gzipBody(large + "!"), fields: encoded, status: 413, reason: "body_too_large"},
			{name: "not gzip", method: "POST", path: "/", requestBody: large, fields: encoded, status: 400, reason: "malformed_request"},
			{name: "truncated", method: "POST", path: "/", requestBody: compressed[:len(compressed)-9], fields: encoded, status: 400, reason: "malformed_request"},
			{name: "not compressed", method: "POST", path: "/", requestBody: large, status: 200, code: "0", body: large},
			{name: "route without the filter", method: "POST", path: "/none", requestBody: compressed, fields: encoded, status: 200, code: "0", body: compressed,
				wantHeaders: map[string]string{"Got-Content-Encoding": "gzip"}},
		},
	}
}
