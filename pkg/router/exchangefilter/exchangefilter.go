// Package exchangefilter decides which exchanges an access log records, and which local replies a
// rule changes. It is pure: the clock and the random numbers come from the caller.
package exchangefilter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// Env is what a filter needs in addition to the exchange.
type Env struct {
	Now    func() time.Time // for the duration of an exchange that has not ended
	Random func() uint64    // for samples; safe for concurrent use
}

// Filter is a compiled config.ExchangeFilter. It is immutable and safe for concurrent use on
// different exchanges. A nil Filter matches every exchange.
type Filter struct {
	condition condition
}

// condition reports whether an exchange matches.
type condition func(x *protocol.Exchange) bool

// Compile compiles c; nil means every exchange, and returns nil.
func Compile(c *config.ExchangeFilter, env Env) (*Filter, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // nil means no filter
	}
	match, err := compile(c, env)
	if err != nil {
		return nil, err
	}
	return &Filter{match}, nil
}

// Matches reports whether x matches f. For a filter of log types, x.Record.LogType is set.
func (f *Filter) Matches(x *protocol.Exchange) bool { return f == nil || f.condition(x) }

func compile(c *config.ExchangeFilter, env Env) (condition, error) {
	switch {
	case c.All != nil:
		return compileList(c.All, env, false)
	case c.Any != nil:
		return compileList(c.Any, env, true)
	case c.Status != nil:
		return compareStatus(*c.Status), nil
	case c.Duration != nil:
		return compareDuration(*c.Duration, env.Now), nil
	case c.GRPCStatus != nil:
		return compareGRPCStatus(c.GRPCStatus), nil
	case c.Flags != nil:
		return hasFlag(c.Flags.Flags), nil
	case c.Header != nil:
		header, err := router.CompileHeaderCondition(c.Header)
		if err != nil {
			return nil, err
		}
		return header.Matches, nil
	case c.Metadata != nil:
		return compileMetadata(c.Metadata)
	case c.LogTypes != nil:
		return compileLogTypes(c.LogTypes)
	case c.Sample != nil:
		return sample(c.Sample, env.Random), nil
	case c.NotHealthCheck:
		return func(x *protocol.Exchange) bool { return !x.Record.HealthCheck }, nil
	}
	return nil, errors.New("a filter has no condition")
}

// compileList returns a condition that has the result if one element of the list has it, and
// otherwise the opposite.
func compileList(list []config.ExchangeFilter, env Env, result bool) (condition, error) {
	conditions := make([]condition, len(list))
	for i := range list {
		var err error
		if conditions[i], err = compile(&list[i], env); err != nil {
			return nil, err
		}
	}
	return func(x *protocol.Exchange) bool {
		for _, match := range conditions {
			if match(x) == result {
				return result
			}
		}
		return !result
	}, nil
}

func compareStatus(c config.Comparison) condition {
	return func(x *protocol.Exchange) bool { return compare(c, int64(x.SentStatus())) }
}

func compareDuration(c config.Comparison, now func() time.Time) condition {
	return func(x *protocol.Exchange) bool {
		end := x.Record.End
		if end.IsZero() {
			end = now()
		}
		return compare(c, end.Sub(x.Meta.Start).Milliseconds())
	}
}

func compare(c config.Comparison, n int64) bool {
	value := int64(c.Value)
	switch c.Op {
	case config.EqualTo:
		return n == value
	case config.NotEqualTo:
		return n != value
	case config.AtLeast:
		return n >= value
	case config.AtMost:
		return n <= value
	default:
		return false
	}
}

// unknownGRPCStatus is the gRPC status of an exchange without a response.
const unknownGRPCStatus = 2

func compareGRPCStatus(c *config.GRPCStatusFilter) condition {
	return func(x *protocol.Exchange) bool {
		status := protocol.EffectiveGRPCStatus(&x.Response)
		if status == protocol.NoCode {
			status = unknownGRPCStatus
		}
		return slices.Contains(c.Statuses, status) != c.Exclude
	}
}

// hasFlag returns a condition on the response flags; no flags means any flag.
func hasFlag(flags []string) condition {
	none := protocol.ReasonNone.Spec().Flag
	return func(x *protocol.Exchange) bool {
		remaining := x.FlagNames()
		if remaining == none {
			return false
		}
		if len(flags) == 0 {
			return true
		}
		for remaining != "" {
			var flag string
			flag, remaining, _ = strings.Cut(remaining, ",")
			if slices.Contains(flags, flag) {
				return true
			}
		}
		return false
	}
}

func compileMetadata(c *config.MetadataFilter) (condition, error) {
	matcher, err := router.CompileValue(&c.Matcher)
	if err != nil {
		return nil, fmt.Errorf("metadata %q: %w", c.Namespace, err)
	}
	namespace, key := protocol.Namespace(c.Namespace), protocol.MetadataKey(c.Path...)
	return func(x *protocol.Exchange) bool {
		value, ok := x.Metadata.Lookup(namespace, key)
		if !ok {
			return c.MatchIfMissing
		}
		return (matcher.Match(value, true) || matchesAny(&matcher, x, namespace, key)) != c.Invert
	}, nil
}

// matchesAny reports whether one of the values of a repeated header matches.
func matchesAny(matcher *headermatch.Matcher, x *protocol.Exchange, namespace, key string) bool {
	if !x.Metadata.Repeats(namespace, key) {
		return false
	}
	for value := range x.Metadata.Values(namespace, key) {
		if matcher.Match(value, true) {
			return true
		}
	}
	return false
}

func compileLogTypes(c *config.LogTypeFilter) (condition, error) {
	var set uint32 // a bit for each type
	for _, name := range c.Types {
		found := false
		for t := range protocol.LogTypes() {
			if t.String() == name {
				set |= 1 << t
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown log type %q", name)
		}
	}
	return func(x *protocol.Exchange) bool { return (set>>x.Record.LogType&1 == 1) != c.Exclude }, nil
}

// requestIDField contains the UUID from which samples are derived. Envoy defines the name.
const requestIDField = "x-request-id"

func sample(c *config.SampleFilter, random func() uint64) condition {
	return func(x *protocol.Exchange) bool {
		if c.ByRequestID {
			if n, ok := leadingNumber(x.Request.Header.Get(requestIDField)); ok {
				return n%config.Millionths < uint64(c.PerMillion)
			}
		}
		return random()%config.Millionths < uint64(c.PerMillion)
	}
}

// leadingNumber returns the first 32 bits of a UUID as a number. ok is false if id is not a UUID.
func leadingNumber(id string) (n uint64, ok bool) {
	const digits, length = 8, 36 // of the first group, of a UUID
	if len(id) != length || id[digits] != '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(id[:digits], 16, 32)
	return n, err == nil
}
