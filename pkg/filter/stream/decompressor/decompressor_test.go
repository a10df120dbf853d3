package decompressor

import (
	"bytes"
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

// sendCompressed sends a compressed request with size bytes. It returns the reason of its failure
// and the number of bytes that the application received.
func sendCompressed(t *testing.T, s filtertest.Settings, size int) (reason protocol.Reason, received int, counts *filtertest.Probe) {
	t.Helper()
	var b bytes.Buffer
	w := stdgzip.NewWriter(&b)
	if _, err := w.Write(bytes.Repeat([]byte("x"), size)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, counts := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "POST"
	x.Request.Header.Add("Content-Encoding", "gzip")
	x.Request.Body, x.Request.ContentLength = protocol.NewStringBody(b.String()), int64(b.Len())
	err := x.Serve(t.Context(), f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		content, err := io.ReadAll(x.Request.Body)
		received = len(content)
		return err
	})))
	return protocol.ReasonOf(err), received, counts
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	for size, want := range map[int]protocol.Reason{60_000: protocol.ReasonNone, 1 << 20: protocol.BodyTooLarge} {
		if reason, got, _ := sendCompressed(t, examples[0], size); reason != want || want == protocol.ReasonNone && got != size {
			t.Errorf("%d bytes: reason %v, %d bytes received; want %v", size, reason, got, want)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, test := range []struct {
		settings filtertest.Settings
		size     int
		want     protocol.Reason
	}{
		{`{}`, 60 << 10, protocol.ReasonNone},
		{`{}`, 8 << 20, protocol.BodyTooLarge}, // the ratio is about 1000
		{`{"max_inflate_ratio": 0}`, 8 << 20, protocol.ReasonNone},
		{`{"max_inflate_ratio": 0}`, 65 << 20, protocol.BodyTooLarge},
		{`{"max_inflate_ratio": 0, "max_decompressed_size": 0}`, 65 << 20, protocol.ReasonNone},
		{`{"max_decompressed_size": "1KB"}`, 1024, protocol.ReasonNone},
		{`{"max_decompressed_size": "1KB"}`, 1025, protocol.BodyTooLarge},
	} {
		reason, got, counts := sendCompressed(t, test.settings, test.size)
		if reason != test.want || reason == protocol.ReasonNone && got != test.size {
			t.Errorf("%s: %d bytes: reason %v, %d bytes received; want %v", test.settings, test.size, reason, got, test.want)
		}
		if n := counts.Value(rejectedMetric()); (n == 1) != (test.want != protocol.ReasonNone) || counts.Value(requestsMetric()) != 1 {
			t.Errorf("%s: %d bytes: rejected counter = %v, request counter = %v; want 1 rejected if too large: %t, and 1 request", test.settings, test.size, n, counts.Value(requestsMetric()), test.want != protocol.ReasonNone)
		}
	}
}

func TestDisabled(t *testing.T) {
	if reason, got, counts := sendCompressed(t, `{"disabled": true}`, 10_000); reason != protocol.ReasonNone || got > 100 || counts.Value(requestsMetric()) != 0 {
		t.Errorf("reason %v, %d bytes received, want the compressed body", reason, got)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	if got := filtertest.DecodeErrors(t, Factory(), `{"max_inflate_ratio": -1}`); !strings.Contains(got, "max_inflate_ratio") {
		t.Errorf("rejected with %q, want an error with max_inflate_ratio", got)
	}
}
