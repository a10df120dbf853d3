package http2

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestParseGRPCTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1n":        1,
		"250m":      250 * time.Millisecond,
		"5S":        5 * time.Second,
		"2M":        2 * time.Minute,
		"1H":        time.Hour,
		"99999999u": 99999999 * time.Microsecond,
		"99999999H": 1<<63 - 1, // above the maximum of time.Duration
	} {
		if got, ok := parseGRPCTimeout(text); !ok || got != want {
			t.Errorf("parseGRPCTimeout(%q) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "S", "5", "5s", "-5S", "+5S", "1.5S", "123456789S", " 5S", "0x5S"} {
		if got, ok := parseGRPCTimeout(text); ok {
			t.Errorf("parseGRPCTimeout(%q) = %v, true; want false", text, got)
		}
	}
}

func TestFormatGRPCTimeout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1:                                    "1n",
		99_999_999:                           "99999999n",
		100 * time.Millisecond:               "100000u",
		time.Minute:                          "60000000u",
		time.Hour:                            "3600000m",
		48*time.Hour + time.Nanosecond:       "172800S", // rounded down
		100_000 * time.Hour:                  "6000000M",
		time.Duration(1<<63-1) - time.Minute: "2562047H",
	} {
		got := formatGRPCTimeout(d)
		if parsed, ok := parseGRPCTimeout(got); got != want || !ok || parsed > d {
			t.Errorf("formatGRPCTimeout(%v) = %q, which parses as %v; want %q", d, got, parsed, want)
		}
	}
}

func TestGRPCMessagesArePercentEncoded(t *testing.T) {
	for text, want := range map[string]string{
		"no route matched": "no route matched",
		"100%":             "100%25",
		"a\r\nb":           "a%0D%0Ab",
		"ü~\x7f":           "%C3%BC~%7F",
	} {
		if got := protocol.EncodeGRPCMessage(text); got != want {
			t.Errorf("EncodeGRPCMessage(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestLocalReplyHasGRPCStatus(t *testing.T) {
	for _, tt := range []struct {
		reason protocol.Reason
		status int
		want   string
	}{
		{protocol.ReasonNoRoute, 404, "12"},
		{protocol.UpstreamTimeout, 504, "14"},
		{protocol.ReasonDenied, 403, "7"},
		{protocol.ReasonNone, 403, "7"},
		{protocol.ReasonNone, 429, "14"},
		{protocol.ReasonNone, 418, "2"},
	} {
		var x protocol.Exchange
		x.Reset()
		x.Record.Reason = tt.reason
		x.LocalReply(tt.status, "text/plain", "text")
		x.Response.Header.Add("Retry-After", "5")
		protocol.ReplyGRPC(&x, "application/grpc+proto")
		h := &x.Response.Header
		if got := h.Get("grpc-status"); x.Response.Status != 200 || got != tt.want || x.Response.Body != nil {
			t.Errorf("%v, %d: HTTP %d, grpc-status %q, want %q", tt.reason, tt.status, x.Response.Status, got, tt.want)
		}
		if h.Get(contentType) != "application/grpc+proto" || h.Get("grpc-message") == "" || h.Get("retry-after") != "5" {
			t.Errorf("%v, %d: content-type %q, grpc-message %q, retry-after %q",
				tt.reason, tt.status, h.Get(contentType), h.Get("grpc-message"), h.Get("retry-after"))
		}
	}
}
