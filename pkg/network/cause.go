package network

import (
	"errors"
	"iter"
	"os"
)

// CloseReason says why an accepted connection ended. The set is closed; the names are label
// values of a metric.
type CloseReason uint8

// The close reasons. Their order is not part of any contract; their names are.
const (
	ClosedComplete          CloseReason = iota // its relay or tunnel is complete
	ClosedByPeer                               // the peer closed or reset it, idle or not
	CauseIdle                                  // no data for the idle timeout
	CauseDrained                               // it ended in time after Drain
	ClosedDrainTimeout                         // force-closed: it did not drain in time
	ClosedOnRequest                            // the peer asked for no further exchange
	ClosedMaxRequests                          // it reached the maximum number of exchanges
	CauseHandshake                             // the TLS handshake failed
	CauseProxyProtocol                         // the required PROXY protocol header is missing or invalid
	ClosedNoFilterChain                        // no matching filter chain
	CauseDenied                                // a connection filter denied it
	CauseUnknownProtocol                       // its first bytes match no protocol of the listener
	CauseProtocolError                         // the peer violated its protocol or a limit of Weft
	CauseFlood                                 // the peer exceeded a flood limit
	CauseRequestTimeout                        // the peer took too long to send a request
	CauseWriteTimeout                          // the peer read nothing of a response for the write timeout
	ClosedResponseTruncated                    // a response broke off, and only the close shows it
	ClosedRequestUnread                        // the rest of a request was too large or too slow to discard
	CauseOverload                              // overload protection ended it, idle or after its response
	CauseNoDestination                         // its original destination is not known
	CauseLoop                                  // Weft itself opened it
	CauseInternal                              // a defect of Weft or of a filter

	causeCount
)

//nolint:gochecknoglobals // a constant table
var causes = [causeCount]struct{ name, text string }{
	ClosedComplete:          {"done", "What it was for is over: a tunnel, or bytes that were carried."},
	ClosedByPeer:            {"peer_closed", "The caller closed or reset it, between requests or within one."},
	CauseIdle:               {"idle_timeout", "It said nothing for the listener's idle timeout."},
	CauseDrained:            {"drained", "Weft drains, or the listener changed or left the configuration: it ended after its last request."},
	ClosedDrainTimeout:      {"drain_timeout", "The same, but what it carried was not over within the drain time."},
	ClosedOnRequest:         {"close_requested", "The caller asked for its end, or speaks HTTP/1.0 without keep-alive."},
	ClosedMaxRequests:       {"max_requests", "It has carried max_requests_per_connection requests."},
	CauseHandshake:          {"tls_handshake", "Its TLS handshake failed: the metric of handshakes and the log say why."},
	CauseProxyProtocol:      {"proxy_protocol", "It did not begin with a PROXY protocol header, or with one that is malformed, late, or of a version that is not allowed: the log says which."},
	ClosedNoFilterChain:     {"no_filter_chain", "None of the listener's filter chains is for it, and there is no default one: the log says at the level DEBUG what it asked for."},
	CauseDenied:             {"denied", "A network filter of its filter chain, as rbac, has refused it: the log says at the level DEBUG why."},
	CauseUnknownProtocol:    {"unknown_protocol", "It began with bytes of no protocol that the listener carries."},
	CauseProtocolError:      {"protocol_error", "The caller broke its protocol, or a limit of the request's size."},
	CauseFlood:              {"flood", "The caller sent so much of what costs and asks for nothing that it looks like an attack: weft_http2_floods_total says of what."},
	CauseRequestTimeout:     {"request_timeout", "The caller took too long over the head or the content of a request."},
	CauseWriteTimeout:       {"write_timeout", "The caller took nothing of an answer for the write timeout."},
	ClosedResponseTruncated: {"answer_cut", "An answer broke off, because the upstream failed or ran out of time."},
	ClosedRequestUnread:     {"request_unread", "It was answered before all of its content was read, and the rest was too much or too slow."},
	CauseOverload:           {"overload", "Weft was short of something and an action of overload_manager ended it: idle, or behind an answer."},
	CauseNoDestination:      {"no_destination", "It was to be carried to its original destination, and was not redirected: its caller connected to the listener itself."},
	CauseLoop:               {"loop", "It is one that Weft has made itself: a rule of the kernel redirects what Weft sends, or a destination is Weft."},
	CauseInternal:           {"internal_error", "A defect of Weft or of a filter; the log says more."},
}

func (c CloseReason) String() string { return causes[c].name }

// Text explains c to an operator, in a sentence.
func (c CloseReason) Text() string { return causes[c].text }

// Causes yields all close reasons, in the order of their values.
func Causes() iter.Seq[CloseReason] {
	return func(yield func(CloseReason) bool) {
		for c := range causeCount {
			if !yield(c) {
				return
			}
		}
	}
}

// CloseReasonOf returns the close reason of a connection whose reader got err while it
// waited between exchanges.
func CloseReasonOf(err error) CloseReason {
	switch {
	case errors.Is(err, ErrDraining):
		return CauseDrained
	case errors.Is(err, os.ErrDeadlineExceeded):
		return CauseIdle
	}
	return ClosedByPeer
}
