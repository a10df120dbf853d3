package service

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// covers reports whether the policy covers the reason or the response of an attempt, and the request.
func (r *retry) covers(reason protocol.Reason, x *protocol.Exchange) bool {
	return (policyCovers(&r.policy, reason, x) || reason == protocol.ReasonNone && r.policy.On&config.RetryHeaders != 0 && r.route.HasRetriableHeader(x)) &&
		r.route.AllowsRetries(x)
}

// policyCovers reports whether a policy covers the reason or the response of an attempt.
func policyCovers(p *config.RetryPolicy, reason protocol.Reason, x *protocol.Exchange) bool {
	if reason != protocol.ReasonNone {
		return p.On&retryOnNoResponse(reason) != 0
	}
	return p.On&retryOnStatus(x.Response.Status) != 0 ||
		p.On&config.RetryStatusCodes != 0 && hasRetriableStatus(p, &x.Response) ||
		p.On&config.RetryHeaders != 0 && p.Extras != nil && hasRetriableHeader(p.Extras.Headers, &x.Response.Header) ||
		p.On&retryOnAnyGRPC != 0 && IsGRPC(x) && p.On&retryOnGRPCStatus(protocol.GRPCStatus(&x.Response)) != 0
}

// retryOnNoResponse returns the conditions that an attempt without a response meets. They include
// those of a 502 or 504, which the client would get.
func retryOnNoResponse(reason protocol.Reason) config.RetryOn {
	const noResponse = config.Retry5xx | config.RetryGatewayError | config.RetryReset
	switch reason {
	case protocol.ConnectFailure, protocol.ConnectTimeout:
		return noResponse | config.RetryConnectFailure | config.RetryRefusedStream
	case protocol.UpstreamReset, protocol.UpstreamClosed, protocol.UpstreamMalformed, protocol.ReasonPerTryTimeout:
		return noResponse
	default:
		return 0
	}
}

// retryOnStatus returns the conditions that a response status meets.
func retryOnStatus(status int) config.RetryOn {
	switch {
	case status >= 502 && status <= 504:
		return config.Retry5xx | config.RetryGatewayError
	case status >= 500:
		return config.Retry5xx
	case status == 409:
		return config.Retry4xx
	}
	return 0
}

// hasRetriableStatus reports whether the policy lists the status of a response.
func hasRetriableStatus(p *config.RetryPolicy, r *protocol.Response) bool {
	return slices.Contains(p.StatusCodes, r.Status) || slices.Contains(p.RPCCodes, r.Code)
}

// hasRetriableHeader reports whether a response header matches one of the rules. It compares each
// value of a repeated header separately.
func hasRetriableHeader(rules []config.RetryHeader, h *protocol.Header) bool {
	for i := range rules {
		rule := &rules[i]
		for n := range h.Len() {
			if f := h.At(n); protocol.EqualFold(f.Name, rule.Name) && (rule.Value == "" || rule.Value == f.Value) {
				return true
			}
		}
	}
	return false
}

// retryOnAnyGRPC contains all conditions that a grpc-status can meet.
const retryOnAnyGRPC = config.RetryCanceled | config.RetryDeadlineExceeded | config.RetryResourceExhausted |
	config.RetryInternal | config.RetryUnavailable

// retryOnGRPCStatus returns the conditions that a grpc-status meets. At this point the status is
// known only for a trailers-only response.
func retryOnGRPCStatus(code int) config.RetryOn {
	switch code {
	case 1:
		return config.RetryCanceled
	case 4:
		return config.RetryDeadlineExceeded
	case 8:
		return config.RetryResourceExhausted
	case 13:
		return config.RetryInternal
	case protocol.GRPCUnavailable:
		return config.RetryUnavailable
	}
	return 0
}
