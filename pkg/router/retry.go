package router

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// retryConditions are the conditions of a retry policy on headers.
type retryConditions struct {
	request  []headerMatcher // one must match, if there are any
	response []responseMatcher
}

// responseMatcher is a condition on a response header.
type responseMatcher struct {
	name    string
	matcher headermatch.Matcher
}

// compileRetryConditions compiles the conditions of p, which may be nil. It returns nil if there are
// none.
func (e expressions) compileRetryConditions(p *config.RetryPolicy) (*retryConditions, error) {
	if p == nil || p.Extras == nil || len(p.Extras.RequestHeaders)+len(p.Extras.ResponseHeaders) == 0 {
		return nil, nil //nolint:nilnil // nil means no conditions
	}
	c := &retryConditions{}
	for i := range p.Extras.RequestHeaders {
		m, err := e.compileHeader(&p.Extras.RequestHeaders[i])
		if err != nil {
			return nil, fmt.Errorf("retry_policy: %w", err)
		}
		c.request = append(c.request, m)
	}
	for i := range p.Extras.ResponseHeaders {
		m := &p.Extras.ResponseHeaders[i]
		matcher, err := e.compileValue(m.Matcher)
		if err != nil {
			return nil, fmt.Errorf("retry_policy: condition on the response header %q: %w", m.Name, err)
		}
		c.response = append(c.response, responseMatcher{m.Name, matcher})
	}
	return c, nil
}

// AllowsRetries reports whether the request meets the conditions of the retry policy.
func (r *Route) AllowsRetries(x *protocol.Exchange) bool {
	if r.retry == nil || len(r.retry.request) == 0 {
		return true
	}
	for i := range r.retry.request {
		if r.retry.request[i].matches(x) {
			return true
		}
	}
	return false
}

// HasRetriableHeader reports whether the response meets one of config.RetryExtras.ResponseHeaders.
func (r *Route) HasRetriableHeader(x *protocol.Exchange) bool {
	if r.retry == nil {
		return false
	}
	for i := range r.retry.response {
		m := &r.retry.response[i]
		if strings.EqualFold(m.name, ":status") {
			if m.matcher.Match(strconv.Itoa(x.Response.Status), true) {
				return true
			}
		} else if m.matcher.MatchHeader(&x.Response.Header, m.name) {
			return true
		}
	}
	return false
}

// ResetDelay returns how long to wait before a retry according to the first valid header of
// config.RetryExtras.ResetHeaders in the response. It returns 0 if there is none.
func ResetDelay(p *config.RetryExtras, x *protocol.Exchange, now time.Time) time.Duration {
	for i := range p.ResetHeaders {
		h := &p.ResetHeaders[i]
		text, _ := x.Response.Header.Lookup(h.Name)
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			continue
		}
		delay := time.Duration(n) * time.Second //nolint:gosec // 32 bits
		if h.UnixTimestamp {
			delay = time.Unix(int64(n), 0).Sub(now) //nolint:gosec // 32 bits
		}
		if delay > time.Millisecond && delay <= p.MaxReset {
			return delay
		}
	}
	return 0
}
