package gzip

import (
	stdgzip "compress/gzip"
	"context"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// compressedResponse sends a request that accepts gzip through the filter. The application responds
// with size bytes of contentType.
func compressedResponse(t *testing.T, s filtertest.Settings, contentType string, size int) (encoding string, content io.Reader, counts *filtertest.Probe) {
	t.Helper()
	f, counts := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	x.Request.Header.Add("Accept-Encoding", "gzip, zstd")
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, contentType, strings.Repeat("x", size))
		return nil
	})
	if err := x.Serve(t.Context(), f(app)); err != nil {
		t.Fatal(err)
	}
	return x.Response.Header.Get("Content-Encoding"), x.Response.Body, counts
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	for _, test := range []struct {
		media string
		size  int
		want  string
	}{
		{"application/json", 1024, "gzip"}, {"application/json", 1023, ""}, {"text/plain", 1024, ""},
	} {
		if got, _, _ := compressedResponse(t, examples[0], test.media, test.size); got != test.want {
			t.Errorf("%d bytes of %s have the coding %q, want %q", test.size, test.media, got, test.want)
		}
	}
}

func TestDefaultsMatchMOSN(t *testing.T) {
	for _, test := range []struct {
		settings filtertest.Settings
		media    string
		size     int
		want     string
	}{
		{`{}`, "text/html", 30, "gzip"},
		{`{}`, "text/html", 29, ""},
		{`{}`, "text/plain", 1000, ""},
		{`{"content_length": 10, "content_types": ["text/plain"]}`, "text/plain", 10, "gzip"},
	} {
		if got, _, _ := compressedResponse(t, test.settings, test.media, test.size); got != test.want {
			t.Errorf("%s: %d bytes of %s have the coding %q, want %q", test.settings, test.size, test.media, got, test.want)
		}
	}
}

func TestCompressedResponsesAreCounted(t *testing.T) {
	_, content, counts := compressedResponse(t, `{}`, "text/html", 5000)
	r, err := stdgzip.NewReader(content)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || len(got) != 5000 {
		t.Errorf("decompressed to %d bytes, %v, want 5000", len(got), err)
	}
	if n := counts.Value(responsesMetric()); n != 1 {
		t.Errorf("response counter = %v, want 1", n)
	}
	if before, after := counts.Value(uncompressedBytesMetric()), counts.Value(compressedBytesMetric()); before != 5000 || after == 0 || after > 200 {
		t.Errorf("counters: %v uncompressed bytes, %v compressed bytes, want 5000 and 1 to 200", before, after)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"level too high":        {`{"gzip_level": 10}`, "gzip_level"},
		"level 0":               {`{"gzip_level": 0}`, "gzip_level"},
		"key of the compressor": {`{"encodings": ["zstd"]}`, "encodings"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}
