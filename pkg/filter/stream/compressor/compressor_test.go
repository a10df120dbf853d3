package compressor

import (
	"context"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// responseCoding sends a request with an Accept-Encoding field and returns the coding of the
// response.
func responseCoding(t *testing.T, s filtertest.Settings, accept, contentType string, size int) (encoding string, counts *filtertest.Probe) {
	t.Helper()
	f, counts := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept-Encoding", accept)
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if _, seen := x.Request.Header.Lookup("Accept-Encoding"); seen {
			x.Response.Header.Add("X-Seen", "1")
		}
		x.LocalReply(200, contentType, strings.Repeat("x", size))
		return nil
	})
	if err := x.Serve(t.Context(), f(app)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, x.Response.Body); err != nil {
		t.Fatal(err)
	}
	return x.Response.Header.Get("Content-Encoding"), counts
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for _, test := range []struct {
		settings      filtertest.Settings
		accept, media string
		size          int
		want          string
	}{
		{examples[0], "gzip, zstd", "text/csv", 1024, "zstd"},
		{examples[0], "gzip", "application/json", 1024, "gzip"},
		{examples[0], "gzip, zstd", "text/csv", 1023, ""},
		{examples[0], "gzip, zstd", "image/png", 5000, ""},
		{examples[1], "gzip, zstd", "text/html", 5000, ""},
	} {
		if got, _ := responseCoding(t, test.settings, test.accept, test.media, test.size); got != test.want {
			t.Errorf("coding of %d bytes of %s = %q, want %q", test.size, test.media, got, test.want)
		}
	}
}

func TestEncodings(t *testing.T) {
	for _, test := range []struct {
		settings     filtertest.Settings
		accept, want string
	}{
		{`{}`, "gzip, zstd", "zstd"},
		{`{}`, "gzip", "gzip"},
		{`{"encodings": ["gzip", "zstd"]}`, "gzip, zstd", "gzip"},
		{`{"encodings": ["gzip"]}`, "zstd", ""},
		{`{"encodings": ["ZSTD"], "zstd_level": 22}`, "zstd", "zstd"},
		{`{"disabled": true}`, "zstd", ""},
	} {
		got, counts := responseCoding(t, test.settings, test.accept, "text/plain", 3000)
		if got != test.want {
			t.Errorf("%s for %s: %q, want %q", test.settings, test.accept, got, test.want)
		}
		if n := counts.Value(responsesMetric()); (n == 1) != (test.want != "") {
			t.Errorf("%s for %s: response counter = %v, want 1 if compressed: %t", test.settings, test.accept, n, test.want != "")
		}
		if before, after := counts.Value(uncompressedBytesMetric()), counts.Value(compressedBytesMetric()); test.want != "" && (before != 3000 || after == 0 || after > 200) {
			t.Errorf("%s for %s: counters: %v uncompressed bytes, %v compressed bytes, want 3000 and 1 to 200", test.settings, test.accept, before, after)
		}
	}
}

func TestEventsAreNotCompressedByDefault(t *testing.T) {
	if got, _ := responseCoding(t, `{}`, "gzip", "text/event-stream", 3000); got != "" {
		t.Errorf("coding of events = %q, want none", got)
	}
	if got, _ := responseCoding(t, `{"content_type": ["text/event-stream"]}`, "gzip", "text/event-stream", 3000); got != "gzip" {
		t.Errorf("coding of events = %q, want gzip", got)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"unsupported coding":  {`{"encodings": ["br"]}`, "expected gzip or zstd"},
		"identity":            {`{"encodings": ["identity"]}`, "expected gzip or zstd"},
		"duplicate coding":    {`{"encodings": ["gzip", "x-gzip"]}`, "twice"},
		"gzip level too high": {`{"gzip_level": 10}`, "gzip_level"},
		"zstd level too high": {`{"zstd_level": 23}`, "zstd_level"},
		"unknown key":         {`{"content_types": []}`, "content_type"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestRouteInheritsSettings(t *testing.T) {
	f := Factory()
	listener := filtertest.Decode(t, f, `{"disabled": true, "encodings": ["gzip"], "remove_accept_encoding_header": true}`)
	merged := f.Inherit(listener, filtertest.Decode(t, f, `{"inherit": true, "remove_accept_encoding_header": false}`)).(*Config)
	if merged.Disabled || len(merged.Encodings) != 1 || *merged.RemoveAcceptEncoding {
		t.Errorf("merged settings %+v, want gzip of the listener, enabled, and Accept-Encoding kept", merged)
	}
	if merged := f.Inherit(listener, filtertest.Decode(t, f, `{"inherit": true}`)).(*Config); !*merged.RemoveAcceptEncoding {
		t.Errorf("merged settings %+v, want Accept-Encoding removed as in the listener", merged)
	}
	route := filtertest.Decode(t, f, `{}`)
	if merged := f.Inherit(listener, route); merged != route {
		t.Errorf("without inherit: %+v, want the settings of the route", merged)
	}
}
