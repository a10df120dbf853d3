package filter

import (
	"context"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Blocking returns a filter that serves each exchange with serve, on a goroutine that may wait. The
// code of serve before x.Serve(ctx, next) is the request path, the code after it the response path.
// If serve does not call x.Serve, it sends a local reply (x.LocalReply) or returns a Fault.
//
// An HTTP/2 or RPC connection serves many exchanges, so each exchange that reaches the filter needs
// a goroutine or a coroutine until its response arrives: about 0.5 µs and 4 KB. To avoid this cost,
// a filter implements protocol.Service; docs/services.md says how.
func Blocking(serve func(ctx context.Context, x *protocol.Exchange, next protocol.Service) error) Filter {
	return func(next protocol.Service) protocol.Service {
		return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			return serve(ctx, x, next)
		})
	}
}
