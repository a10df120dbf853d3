package network

import (
	"errors"
	"iter"
	"os"
)

// CloseReason says why a connection that a listener accepted has ended. The set is
// closed; its names are label values of a metric.
type CloseReason uint8

// The causes. Their order is not part of any contract; their names are.
const (
	ClosedComplete          CloseReason = iota // what it was for is over: bytes carried, a tunnel
	ClosedByPeer                               // the peer ended or reset it, idle or not
	CauseIdle                                  // nothing was said for the idle timeout
	CauseDrained                               // asked to end, by Drain, it did
	ClosedDrainTimeout                         // asked to end, it did not in time
	ClosedOnRequest                            // the peer wanted no further exchange
	ClosedMaxRequests                          // it has carried as many exchanges as it may
	CauseHandshake                             // TLS could not be agreed on
	CauseProxyProtocol                         // it did not begin with the PROXY protocol header that it must have
	ClosedNoFilterChain                        // none of the listener's filter chains is for it
	CauseDenied                                // a network filter has refused it
	CauseUnknownProtocol                       // it began with bytes of no protocol that the listener carries
	CauseProtocolError                         // the peer broke its protocol or a limit of ours
	CauseFlood                                 // the peer cost more than it asked for
	CauseRequestTimeout                        // the peer took too long over a request
	CauseWriteTimeout                          // the peer took nothing of an answer
	ClosedResponseTruncated                    // an answer broke off: its end cannot be told but so
	ClosedRequestUnread                        // too much of a request was not wanted
	CauseOverload                              // it was idle, or had had its answer, when the process was short of something
	CauseNoDestination                         // it was to go on to where it was going, and that is not known
	CauseLoop                                  // it is one that we have made ourselves
	CauseInternal                              // a defect of ours

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

// Causes yields all causes, in the order of their values.
func Causes() iter.Seq[CloseReason] {
	return func(yield func(CloseReason) bool) {
		for c := range causeCount {
			if !yield(c) {
				return
			}
		}
	}
}

// CloseReasonOf says what ended a connection whose reader, waiting between exchanges,
// got err.
func CloseReasonOf(err error) CloseReason {
	switch {
	case errors.Is(err, ErrDraining):
		return CauseDrained
	case errors.Is(err, os.ErrDeadlineExceeded):
		return CauseIdle
	}
	return ClosedByPeer
}
