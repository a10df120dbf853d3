package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

// Features of the filters that compress and decompress.

// inGzip returns content compressed with gzip.
func inGzip(content string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, content) // writes to memory do not fail
	_ = w.Close()
	return b.String()
}

// unpacks returns a function that verifies that the responses are content compressed with gzip.
func unpacks(content string) func(t *testing.T, all []answer) {
	return func(t *testing.T, all []answer) {
		for _, a := range all {
			r, err := gzip.NewReader(strings.NewReader(a.body))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != content {
				t.Errorf("%d bytes are %d unpacked, %.60q, %v; want %.60q", len(a.body), len(got), got, err, content)
			}
		}
	}
}

func (p *pair) compressor() feature {
	large := strings.Repeat("content ", 40_000)
	const coding, vary = "Content-Encoding", "Vary"
	return feature{
		name:    "compressor",
		filters: list{filterOf("compressor", object{})},
		routes:  []object{own("/none", "compressor", object{"disabled": true})},
		trials: []trial{
			{name: "in gzip", method: "POST", path: "/", content: large, fields: []string{"Accept-Encoding: gzip"}, status: 200,
				want: map[string]string{coding: "gzip", vary: "Accept-Encoding"}, judge: unpacks(large)},
			{name: "in what is liked best", method: "POST", path: "/", content: large, fields: []string{"Accept-Encoding: gzip;q=0.5, zstd"}, status: 200,
				want: map[string]string{coding: "zstd"}},
			{name: "for HEAD", method: "HEAD", path: "/", fields: []string{"Accept-Encoding: gzip"}, status: 200, want: map[string]string{coding: ""}},
			{name: "nobody asked", method: "POST", path: "/", content: large, status: 200, code: "0", body: large, want: map[string]string{coding: ""}},
			{name: "a route without", method: "POST", path: "/none", content: large, fields: []string{"Accept-Encoding: gzip"}, status: 200, code: "0", body: large,
				want: map[string]string{coding: ""}},
			{name: "a call is left as it is", path: "/", content: large, fields: []string{"Accept-Encoding: gzip"}, code: "0", want: map[string]string{coding: ""}},
		},
	}
}

func (p *pair) gzip() feature {
	large := strings.Repeat("content ", 40_000)
	const coding = "Content-Encoding"
	return feature{
		name:    "gzip",
		filters: list{filterOf("gzip", object{"content_type": list{"text/plain"}})},
		trials: []trial{
			{name: "in gzip", method: "POST", path: "/", content: large, fields: []string{"Accept-Encoding: gzip"}, status: 200,
				want: map[string]string{coding: "gzip"}, judge: unpacks(large)},
			{name: "nobody asked", method: "POST", path: "/", content: large, status: 200, code: "0", body: large, want: map[string]string{coding: ""}},
			{name: "a call is left as it is", path: "/", content: large, fields: []string{"Accept-Encoding: gzip"}, code: "0", want: map[string]string{coding: ""}},
		},
	}
}

func (p *pair) decompressor() feature {
	large := strings.Repeat("content ", 1000)
	packed := inGzip(large)
	in := []string{"Content-Encoding: gzip"}
	return feature{
		name:    "decompressor",
		filters: list{filterOf("decompressor", object{"max_decompressed_size": len(large)})},
		routes:  []object{own("/none", "decompressor", object{"disabled": true})},
		trials: []trial{
			{name: "what is in gzip", method: "POST", path: "/", content: packed, fields: in, status: 200, body: large,
				want: map[string]string{"Got-Content-Encoding": "", "X-App": "app"}},
			{name: "of an unknown length", method: "POST", path: "/", content: packed, streamed: true, fields: in, status: 200, body: large},
			{name: "what is too large", method: "POST", path: "/", content: inGzip(large + "!"), fields: in, status: 413, reason: "body_too_large"},
			{name: "what is no gzip", method: "POST", path: "/", content: large, fields: in, status: 400, reason: "malformed_request"},
			{name: "what is cut", method: "POST", path: "/", content: packed[:len(packed)-9], fields: in, status: 400, reason: "malformed_request"},
			{name: "what is not packed", method: "POST", path: "/", content: large, status: 200, code: "0", body: large},
			{name: "a route without", method: "POST", path: "/none", content: packed, fields: in, status: 200, code: "0", body: packed,
				want: map[string]string{"Got-Content-Encoding": "gzip"}},
		},
	}
}
