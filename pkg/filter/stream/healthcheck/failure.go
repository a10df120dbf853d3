package healthcheck

import (
	"context"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// immediateFailField tells a client that checks the health of Weft, such as Envoy, to treat Weft as
// failed without waiting for the next health check. Envoy defines the name.
const immediateFailField = "x-envoy-immediate-health-check-fail"

// announceFailure adds immediateFailField to the response of x and closes the connection after it,
// as Envoy does while /healthcheck/fail is in effect.
func announceFailure(x *protocol.Exchange) {
	x.PushFinisher(failureNotice{})
	if x.Meta.Conn != nil && x.Meta.Conn.DownstreamConn != nil {
		x.Meta.Conn.DownstreamConn.Shed()
	}
}

// failureNotice adds immediateFailField to a response. Responses to errors do not get it, because
// Weft writes them after the filters.
type failureNotice struct{}

// Finish implements protocol.Finisher.
func (failureNotice) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err == nil {
		x.Response.Header.Set(immediateFailField, "true")
	}
	return err
}
