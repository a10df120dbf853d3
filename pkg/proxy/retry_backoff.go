package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// waitBackoff returns after d, or with a ReasonDownstreamDisconnect Fault if the client disconnects or
// ctx ends first; see filter.Wait.
func waitBackoff(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	err := filter.Wait(ctx, x, d)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, filter.ErrClientDisconnected):
		err = errors.New("client disconnected before a retry")
	}
	return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
}
