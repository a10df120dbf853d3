package network

import (
	"errors"
	"iter"
	"os"
)

// CloseReason is the reason why an accepted connection ended. The names are label values of a
// metric.
type CloseReason uint8

// The close reasons. Their order may change, their names may not.
const (
	ClosedComplete           CloseReason = iota // its relay or tunnel is complete
	ClosedByPeer                                // the peer closed or reset it, between exchanges or during one
	ClosedIdle                                  // no data for the idle timeout of the connection or its tunnel
	ClosedDrained                               // it ended in time after Drain
	ClosedDrainTimeout                          // force-closed: it did not drain in time
	ClosedOnRequest                             // the peer requested the close, for example with "Connection: close"
	ClosedMaxRequests                           // it reached the maximum number of exchanges
	ClosedHandshakeFailed                       // the TLS handshake failed
	ClosedProxyProtocolError                    // the required PROXY protocol header is missing or invalid
	ClosedNoFilterChain                         // no matching filter chain
	ClosedDenied                                // a connection filter denied it
	ClosedUnknownProtocol                       // its first bytes match no protocol of the listener
	ClosedProtocolError                         // the peer violated its protocol or a limit of Weft
	ClosedFloodLimit                            // the peer exceeded a flood limit
	ClosedRequestTimeout                        // the peer took too long to send a request
	ClosedWriteTimeout                          // the peer read nothing of a response for the write timeout
	ClosedResponseTruncated                     // a response is incomplete, and only the close tells the client
	ClosedRequestUnread                         // the rest of a request was too large or too slow to discard
	ClosedOverload                              // overload protection ended it, idle or after its response
	ClosedNoDestination                         // its original destination is not known
	ClosedLoop                                  // Weft itself opened it
	ClosedInternalError                         // a defect of Weft or of a filter

	closeReasonCount
)

//nolint:gochecknoglobals // a constant table
var closeReasons = [closeReasonCount]struct{ name, text string }{
	ClosedComplete:           {"done", "A tunnel or a relayed connection ended."},
	ClosedByPeer:             {"peer_closed", "The client closed or reset the connection, between requests or during one."},
	ClosedIdle:               {"idle_timeout", "The client sent nothing for the listener's idle timeout (connection_idle_timeout), or nothing within listener_filters_timeout, or a tunnel of HTTP/1.1 was idle for its timeout."},
	ClosedDrained:            {"drained", "Weft drained the connection, or the listener was changed or removed: the connection closed after its last request."},
	ClosedDrainTimeout:       {"drain_timeout", "Weft drained the connection, but its requests did not end within the drain time."},
	ClosedOnRequest:          {"close_requested", "The client requested the close, or used HTTP/1.0 without keep-alive."},
	ClosedMaxRequests:        {"max_requests", "The connection reached max_requests_per_connection."},
	ClosedHandshakeFailed:    {"tls_handshake", "The TLS handshake failed: the handshake metric and the log say why."},
	ClosedProxyProtocolError: {"proxy_protocol", "The PROXY protocol header was missing, malformed, late, or of a version that is not allowed: the log says which."},
	ClosedNoFilterChain:      {"no_filter_chain", "No filter chain of the listener matches the connection, and there is no default filter chain: the log at level DEBUG has the details of the connection."},
	ClosedDenied:             {"denied", "A network filter of the filter chain, such as rbac, rejected the connection: the log at level DEBUG says why."},
	ClosedUnknownProtocol:    {"unknown_protocol", "The first bytes belong to no protocol that the listener supports."},
	ClosedProtocolError:      {"protocol_error", "The client violated its protocol, or exceeded a size limit of requests."},
	ClosedFloodLimit:         {"flood", "The client exceeded a flood limit of HTTP/2: weft_http2_floods_total says which."},
	ClosedRequestTimeout:     {"request_timeout", "The client sent the head or the body of a request too slowly."},
	ClosedWriteTimeout:       {"write_timeout", "The client read nothing of a response for the write timeout."},
	ClosedResponseTruncated:  {"response_truncated", "A response was truncated, because the upstream failed or timed out."},
	ClosedRequestUnread:      {"request_unread", "A request got its response before its body was complete, and the rest of the body was too large or too slow."},
	ClosedOverload:           {"overload", "An action of overload_manager closed the connection while it was idle or after a response."},
	ClosedNoDestination:      {"no_destination", "The connection was to be forwarded to its original destination, but it was not redirected: the client connected to the listener directly."},
	ClosedLoop:               {"loop", "The connection comes from Weft: a redirect rule of the kernel matches Weft's connections, or a destination is Weft."},
	ClosedInternalError:      {"internal_error", "A defect of Weft or of a filter; the log has the details."},
}

func (c CloseReason) String() string { return closeReasons[c].name }

// Text explains c to an operator, in a sentence.
func (c CloseReason) Text() string { return closeReasons[c].text }

// CloseReasons yields all close reasons, in the order of their values.
func CloseReasons() iter.Seq[CloseReason] {
	return func(yield func(CloseReason) bool) {
		for c := range closeReasonCount {
			if !yield(c) {
				return
			}
		}
	}
}

// CloseReasonOf returns the close reason of a connection whose read failed with err between
// exchanges.
func CloseReasonOf(err error) CloseReason {
	switch {
	case errors.Is(err, ErrDraining):
		return ClosedDrained
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ClosedIdle
	}
	return ClosedByPeer
}
