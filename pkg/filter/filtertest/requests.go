package filtertest

import (
	"context"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// NewRequest returns a GET request for a path of shop.test, with headers "name: value".
func NewRequest(path string, fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path, x.Request.Authority = "GET", path, "shop.test"
	AddHeaders(&x.Request.Header, fields...)
	return x
}

// AddHeaders adds headers "name: value" to h.
func AddHeaders(h *protocol.Header, fields ...string) {
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Add(name, value)
	}
}

// AddHeaderList adds the headers of a list in the format of FormatHeaders.
func AddHeaderList(h *protocol.Header, list string) {
	if list != "" {
		AddHeaders(h, strings.Split(list, ", ")...)
	}
}

// FormatHeaders returns the headers of h, joined with ", ".
func FormatHeaders(h *protocol.Header) string {
	var fields []string
	for name, value := range h.All() {
		fields = append(fields, name+": "+value)
	}
	return strings.Join(fields, ", ")
}

// SilentApplication returns a service that never responds. It waits until the deadline of the
// exchange, which must be set, until the client disconnects, or until ctx ends. Then it returns a
// Fault, as an upstream connection does.
func SilentApplication() protocol.Service {
	return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		timeout := time.NewTimer(time.Until(x.Deadline))
		defer timeout.Stop()
		disconnected := make(chan struct{})
		if x.Downstream != nil {
			defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
		}
		select {
		case <-timeout.C:
			return protocol.Faultf(protocol.UpstreamTimeout, "the application is silent")
		case <-disconnected:
			return newDisconnectFault()
		case <-ctx.Done():
			return protocol.NewFault(protocol.ReasonDownstreamDisconnect, ctx.Err())
		}
	})
}

// Application returns a service that responds with 200 and a text.
func Application() protocol.Service {
	return protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/plain", "from the application")
		return nil
	})
}
