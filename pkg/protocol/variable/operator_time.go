package variable

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// timeOperators returns the operators for times and durations.
func timeOperators() []operator {
	return []operator{
		{name: "START_TIME", argument: optionalArgument, compile: timeValue(startOf, time.UTC), doc: "Time at which the first byte of the request was read, in UTC."},
		{name: "START_TIME_LOCAL", argument: optionalArgument, compile: timeValue(startOf, time.Local), doc: "The same in local time."},
		{name: "EMIT_TIME", argument: optionalArgument, compile: timeValue(latestTime, time.UTC), doc: "Time at which the exchange ended, in UTC."},
		{name: "EMIT_TIME_LOCAL", argument: optionalArgument, compile: timeValue(latestTime, time.Local), doc: "The same in local time."},
		{name: "DURATION", compile: millisValue(elapsed), doc: "Milliseconds from the first byte of the request to the last byte of the response."},
		{name: "REQUEST_DURATION", compile: millisValue(requestReceived), doc: "Milliseconds until the request was received, estimated as the time until Weft sent it to the host."},
		{name: "RESPONSE_DURATION", compile: millisValue(responseDuration), doc: "Milliseconds until the head of the upstream response was read."},
		{name: "RESPONSE_TX_DURATION", compile: millisValue(responseSent), doc: "Milliseconds from the head of the upstream response to the last byte sent to the client."},
		{name: "ROUNDTRIP_DURATION", compile: missing, doc: "Missing: it concerns HTTP/3."},
		{name: "COMMON_DURATION", argument: requiredArgument, compile: commonDuration, doc: "Time between two events: DS_RX_BEG, DS_RX_END, US_TX_BEG, US_RX_BEG, DS_TX_END; for relayed connections DS_CX_BEG, DS_CX_END."},
	}
}

// instant returns a time of an exchange; the zero time if it has not happened.
type instant func(x *protocol.Exchange) time.Time

func startOf(x *protocol.Exchange) time.Time { return x.Meta.Start }

func endOf(x *protocol.Exchange) time.Time { return x.Record.End }

// latestTime returns the latest event of x.
func latestTime(x *protocol.Exchange) time.Time {
	r := &x.Record
	for _, t := range [...]time.Time{r.End, r.UpstreamFirstByte, r.UpstreamStart} {
		if !t.IsZero() {
			return t
		}
	}
	return x.Meta.Start
}

// requestEnd returns when the last byte of the request was received. Weft does not record it: it is
// at most the time at which Weft sends the request.
func requestEnd(x *protocol.Exchange) time.Time {
	if t := x.Record.UpstreamStart; !t.IsZero() {
		return t
	}
	if x.Request.Path == "" {
		return time.Time{} // malformed
	}
	return x.Meta.Start
}

func elapsed(x *protocol.Exchange) (time.Duration, bool) { return between(x.Meta.Start, latestTime(x)) }

func requestReceived(x *protocol.Exchange) (time.Duration, bool) {
	if isConnection(x) {
		return 0, false
	}
	return between(x.Meta.Start, requestEnd(x))
}

func responseSent(x *protocol.Exchange) (time.Duration, bool) {
	return between(x.Record.UpstreamFirstByte, x.Record.End)
}

// millisValue returns the compile function of an operator for whole milliseconds.
func millisValue(s span) compileOperator {
	return numberValue(func(x *protocol.Exchange) (int64, bool) {
		d, ok := s(x)
		return max(d.Milliseconds(), 0), ok
	})
}

// commonDuration compiles COMMON_DURATION(START:END:PRECISION).
func commonDuration(c *operatorCall, _ *OperatorOptions) (definition, error) {
	parts := strings.Split(c.argument, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return definition{}, fmt.Errorf("%q is not START:END or START:END:PRECISION", c.argument)
	}
	unit := time.Millisecond
	if len(parts) == 3 {
		switch parts[2] {
		case "ms":
		case "us":
			unit = time.Microsecond
		case "ns":
			unit = time.Nanosecond
		default:
			return definition{}, fmt.Errorf("%q is not a precision: expected ms, us or ns", parts[2])
		}
	}
	from, err := eventTime(parts[0])
	if err != nil {
		return definition{}, err
	}
	to, err := eventTime(parts[1])
	if err != nil {
		return definition{}, err
	}
	return newNumber(func(x *protocol.Exchange) (int64, bool) {
		d, ok := between(from(x), to(x))
		return int64(d / unit), ok && d >= 0
	}), nil
}

// eventTime returns the time of an event by its name in COMMON_DURATION.
func eventTime(name string) (instant, error) {
	ofExchange := func(t instant, connection bool) instant {
		return func(x *protocol.Exchange) time.Time {
			if isConnection(x) != connection {
				return time.Time{}
			}
			return t(x)
		}
	}
	switch name {
	case "DS_RX_BEG":
		return ofExchange(startOf, false), nil
	case "DS_RX_END":
		return ofExchange(requestEnd, false), nil
	case "US_TX_BEG":
		return func(x *protocol.Exchange) time.Time { return x.Record.UpstreamStart }, nil
	case "US_RX_BEG":
		return func(x *protocol.Exchange) time.Time { return x.Record.UpstreamFirstByte }, nil
	case "DS_TX_END":
		return ofExchange(endOf, false), nil
	case "DS_CX_BEG":
		return ofExchange(startOf, true), nil
	case "DS_CX_END":
		return ofExchange(endOf, true), nil
	}
	return nil, fmt.Errorf("the time of %q is not recorded", name)
}

// timeValue returns the compile function of an operator whose argument is the format of its value.
func timeValue(t instant, zone *time.Location) compileOperator {
	return func(c *operatorCall, _ *OperatorOptions) (definition, error) {
		format := c.argument
		if format == "" {
			format = "%Y-%m-%dT%H:%M:%E3SZ"
			if zone != time.UTC {
				format = "%Y-%m-%dT%H:%M:%E3S%z"
			}
		}
		steps, err := compileTime(format)
		if err != nil {
			return definition{}, err
		}
		return definition{write: func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
			at := t(x)
			if at.IsZero() {
				return dst, false
			}
			return appendTime(dst, at.In(zone), steps), true
		}}, nil
	}
}

// timeStep is a conversion of a time format; or literal text.
type timeStep struct {
	literal string
	verb    byte // 0: literal
	digits  int  // of 'f' and 'S': decimals of the second
}

// compileTime compiles a format of strftime with the extensions of Envoy (%f, %3f) and Abseil
// (%E3S, %Ez).
func compileTime(format string) ([]timeStep, error) {
	var steps []timeStep
	for format != "" {
		before, after, found := strings.Cut(format, "%")
		if before != "" {
			steps = append(steps, timeStep{literal: before})
		}
		if !found {
			break
		}
		step, n, err := parseTimeStep(after)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
		format = after[n:]
	}
	return steps, nil
}

// verbs are the conversions of strftime that need no other letter.
const verbs = "YCymdeHIklMSpajAbBhuwsfzZTDFRr%t"

// parseTimeStep parses the conversion at the beginning of text, which follows the percent sign. n is
// its length.
func parseTimeStep(text string) (step timeStep, n int, err error) {
	if text == "" {
		return step, 0, errors.New("the time format ends with a percent sign")
	}
	invalid := func() error {
		return fmt.Errorf("the time format has the unknown conversion %%%s", text[:min(len(text), 4)])
	}
	switch c := text[0]; {
	case c == 'n':
		return step, 0, errors.New("the time format has a line break")
	case c == 'E':
		return parseExtendedStep(text, invalid)
	case '1' <= c && c <= '9':
		if len(text) < 2 || text[1] != 'f' {
			return step, 0, invalid()
		}
		return timeStep{verb: 'f', digits: int(c - '0')}, 2, nil
	case c == 'f':
		return timeStep{verb: 'f', digits: 9}, 1, nil
	case strings.IndexByte(verbs, c) >= 0:
		return timeStep{verb: c}, 1, nil
	}
	return step, 0, invalid()
}

// parseExtendedStep parses a conversion that begins with E: Ez, E*z, E4Y, ET, E3S, E*S, E3f.
func parseExtendedStep(text string, invalid func() error) (step timeStep, n int, err error) {
	switch {
	case strings.HasPrefix(text, "ET"):
		return timeStep{literal: "T"}, 2, nil
	case strings.HasPrefix(text, "Ez"):
		return timeStep{verb: ':'}, 2, nil
	case strings.HasPrefix(text, "E4Y"):
		return timeStep{verb: 'Y'}, 3, nil
	}
	if len(text) >= 3 && '0' <= text[1] && text[1] <= '9' && (text[2] == 'S' || text[2] == 'f') {
		return timeStep{verb: text[2], digits: int(text[1] - '0')}, 3, nil
	}
	return step, 0, invalid()
}

// appendTime appends t as steps say.
func appendTime(dst []byte, t time.Time, steps []timeStep) []byte {
	for i := range steps {
		if s := &steps[i]; s.verb == 0 {
			dst = append(dst, s.literal...)
		} else {
			dst = s.append(dst, t)
		}
	}
	return dst
}

//nolint:cyclop // a case for each conversion
func (s *timeStep) append(dst []byte, t time.Time) []byte {
	switch s.verb {
	case 'Y':
		return strconv.AppendInt(dst, int64(t.Year()), 10)
	case 'C':
		return appendPadded(dst, t.Year()/100, 2, '0')
	case 'y':
		return appendPadded(dst, t.Year()%100, 2, '0')
	case 'm':
		return appendPadded(dst, int(t.Month()), 2, '0')
	case 'd':
		return appendPadded(dst, t.Day(), 2, '0')
	case 'e':
		return appendPadded(dst, t.Day(), 2, ' ')
	case 'H':
		return appendPadded(dst, t.Hour(), 2, '0')
	case 'k':
		return appendPadded(dst, t.Hour(), 2, ' ')
	case 'I':
		return appendPadded(dst, (t.Hour()+11)%12+1, 2, '0')
	case 'l':
		return appendPadded(dst, (t.Hour()+11)%12+1, 2, ' ')
	case 'M':
		return appendPadded(dst, t.Minute(), 2, '0')
	case 'S':
		dst = appendPadded(dst, t.Second(), 2, '0')
		if s.digits > 0 {
			dst = appendFraction(append(dst, '.'), t, s.digits)
		}
		return dst
	case 'f':
		return appendFraction(dst, t, s.digits)
	case 's':
		return strconv.AppendInt(dst, t.Unix(), 10)
	case 'j':
		return appendPadded(dst, t.YearDay(), 3, '0')
	case 'u':
		return strconv.AppendInt(dst, int64(t.Weekday()+6)%7+1, 10)
	case 'w':
		return strconv.AppendInt(dst, int64(t.Weekday()), 10)
	case '%':
		return append(dst, '%')
	case 't':
		return append(dst, '\t')
	default:
		return t.AppendFormat(dst, layoutOf(s.verb))
	}
}

// layoutOf returns the layout of package time for a conversion.
func layoutOf(verb byte) string {
	switch verb {
	case 'a':
		return "Mon"
	case 'A':
		return "Monday"
	case 'b', 'h':
		return "Jan"
	case 'B':
		return "January"
	case 'p':
		return "PM"
	case 'z':
		return "-0700"
	case ':':
		return "-07:00"
	case 'Z':
		return "MST"
	case 'T':
		return "15:04:05"
	case 'D':
		return "01/02/06"
	case 'F':
		return "2006-01-02"
	case 'R':
		return "15:04"
	default: // 'r'
		return "03:04:05 PM"
	}
}

// appendPadded appends n, which is not negative, with at least width characters.
func appendPadded(dst []byte, n, width int, pad byte) []byte {
	for i := width - 1; i > 0 && n < pow10(i); i-- {
		dst = append(dst, pad)
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

func pow10(n int) int {
	p := 1
	for range n {
		p *= 10
	}
	return p
}

// appendFraction appends the first digits of the fraction of the second.
func appendFraction(dst []byte, t time.Time, digits int) []byte {
	n := t.Nanosecond()
	for i := range digits {
		unit := pow10(8 - i)
		dst = append(dst, byte('0'+n/unit%10))
	}
	return dst
}
