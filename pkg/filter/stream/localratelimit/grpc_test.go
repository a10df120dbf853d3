package localratelimit

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestGRPCStatus(t *testing.T) {
	for extra, want := range map[string]string{"": "14", `, "rate_limited_as_resource_exhausted": true`: "8"} {
		f, _ := filtertest.Build(t, Factory(), filtertest.Settings(`{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}`+extra+`}`))
		s := f(filtertest.Application())
		var x *protocol.Exchange
		for range 2 {
			x = filtertest.NewRequest("/", "content-type: application/grpc")
			if err := x.Serve(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		protocol.ReplyGRPC(x, "application/grpc") // as an engine does
		if got := x.Response.Header.Get("grpc-status"); got != want || x.Record.Reason != protocol.RateLimited {
			t.Errorf("%q: grpc-status %q of %s, want %s", extra, got, x.Record.Reason, want)
		}
	}
}
