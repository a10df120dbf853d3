package filter

import (
	"context"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Blocking returns a filter that serves each exchange with serve, on a goroutine that may wait. The
// code of serve before x.Serve(ctx, next) is the request path, the code after it the response path.
// If serve does not call x.Serve, it sends a local reply (x.LocalReply) or returns a Fault.
//
// An HTTP/2 or RPC connection serves many exchanges concurrently. Each of them holds a goroutine or
// a coroutine from the start of this filter until the response arrives, which costs about 0.5 µs
// and 4 KB. To avoid this cost, implement protocol.Service instead: see docs/services.md.
func Blocking(serve func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error) Filter {
	return func(next protocol.Service) protocol.Service {
		return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			return serve(ctx, x, next)
		})
	}
}
