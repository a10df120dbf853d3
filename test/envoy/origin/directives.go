package origin

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// outcome is what happens to a request.
type outcome string

const (
	respond          outcome = "respond"
	resetConn        outcome = "reset"  // after the request
	resetImmediately outcome = "reset0" // before the body
	closeConn        outcome = "close"
	hang             outcome = "hang"
)

// directives say how an origin responds. The fields of the request set them:
//
//	x-o-seq: 503,reset,200   one step for each attempt of the case; the last one is repeated. A
//	                         step is a status, "reset", "reset0", "close", "hang" or
//	                         "delayMS:STATUS"
//	x-o-at: o1=503,o2=200    a step for one origin
//	x-o-status: 404
//	x-o-delay: 100           milliseconds before the head of the response
//	x-o-body: text           instead of "from NAME"
//	x-o-len: 100             a body of so many bytes
//	x-o-gzip: 1              a body that is compressed with gzip, with Content-Encoding
//	x-o-h: A: b | C: d       fields of the response
//	x-o-noct: 1              no Content-Type
//	x-o-chunked: 1           a chunked body
//	x-o-trailers: a=b,c=d    trailers, in a chunked body
//	x-o-trailersonly: 3      gRPC: a response with this status and without a body
//	x-o-early: 1             a response 103 first
//	x-o-bodydelay: 100       milliseconds between head and body
//	x-o-cut: 10              so many bytes of the body, then a reset
//	x-o-close: 1             Connection: close
//	x-o-untilclose: 1        the body ends with the connection
//	x-o-noup: 1              no upgrade
//	x-o-no100: 1             no 100 Continue
//	x-o-refused: 1           HTTP/2: resets have the code REFUSED_STREAM
//	x-o-stream: 1            HTTP/2: the head at once, an echo of each DATA frame, then trailers
//	x-o-malformed: KIND      HTTP/2: a malformed response, see malformed.go
type directives struct {
	outcome   outcome
	status    int
	delay     time.Duration
	bodyDelay time.Duration // negative: none
	body      []byte
	fields    []wire.Field
	trailers  []wire.Field

	noContentType, chunked, early, closing, untilClose, noUpgrade, no100, refused, stream bool

	malformed    string // "": not
	trailersOnly string // "": not
	cut          int    // -1: not
}

// parseDirectives returns the directives of a request to an origin. attempt is the number of
// earlier requests of the same case.
func parseDirectives(fields []wire.Field, name string, attempt int) (directives, error) {
	p := parser{fields: fields}
	d := directives{
		outcome:       respond,
		status:        p.number("x-o-status", 200),
		delay:         p.milliseconds("x-o-delay", 0),
		bodyDelay:     p.milliseconds("x-o-bodydelay", -1),
		body:          []byte("from " + name),
		fields:        parsePairs(p.text("x-o-h"), "|", ":"),
		trailers:      parsePairs(p.text("x-o-trailers"), ",", "="),
		noContentType: p.has("x-o-noct"),
		chunked:       p.has("x-o-chunked") || p.has("x-o-trailers"),
		early:         p.has("x-o-early"),
		closing:       p.has("x-o-close") || p.has("x-o-untilclose"),
		untilClose:    p.has("x-o-untilclose"),
		noUpgrade:     p.has("x-o-noup"),
		no100:         p.has("x-o-no100"),
		refused:       p.has("x-o-refused"),
		stream:        p.has("x-o-stream"),
		malformed:     p.text("x-o-malformed"),
		trailersOnly:  p.text("x-o-trailersonly"),
		cut:           p.number("x-o-cut", -1),
	}
	if p.has("x-o-body") {
		d.body = []byte(p.text("x-o-body"))
	}
	if length := p.number("x-o-len", -1); length >= 0 {
		d.body = []byte(strings.Repeat("x", length))
	}
	if p.has("x-o-gzip") {
		d.body = compress(d.body)
		d.fields = append(d.fields, wire.Field{Name: "Content-Encoding", Value: "gzip"})
	}
	step := ""
	if p.has("x-o-seq") {
		steps := strings.Split(p.text("x-o-seq"), ",")
		step = strings.TrimSpace(steps[min(attempt, len(steps)-1)])
	}
	for _, pair := range parsePairs(p.text("x-o-at"), ",", "=") {
		if pair.Name == name {
			step = pair.Value
		}
	}
	if step != "" && p.err == nil {
		p.err = d.take(step)
	}
	return d, p.err
}

// compress compresses data with gzip.
func compress(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data) // a bytes.Buffer returns no errors
	_ = w.Close()
	return b.Bytes()
}

// take applies a step of x-o-seq or x-o-at.
func (d *directives) take(step string) error {
	if delay, found := strings.CutPrefix(step, "delay"); found {
		ms, status, _ := strings.Cut(delay, ":")
		n, err := strconv.Atoi(ms)
		if err != nil {
			return fmt.Errorf("origin: step %q: %w", step, err)
		}
		d.delay, step = time.Duration(n)*time.Millisecond, status
	}
	switch o := outcome(step); o {
	case resetConn, resetImmediately, closeConn, hang:
		d.outcome = o
		return nil
	case respond:
	}
	status, err := strconv.Atoi(step)
	if err != nil {
		return fmt.Errorf("origin: step %q: %w", step, err)
	}
	d.status = status
	return nil
}

// hasNoBody reports whether a response to a method never has a body.
func (d *directives) hasNoBody(method string) bool {
	return method == "HEAD" || d.status == 204 || d.status == 304
}

// parsePairs parses names and values. It skips parts without the separator.
func parsePairs(text, between, separator string) []wire.Field {
	var pairs []wire.Field
	for part := range strings.SplitSeq(text, between) {
		if name, value, found := strings.Cut(part, separator); found {
			pairs = append(pairs, wire.Field{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)})
		}
	}
	return pairs
}

// parser reads fields, and keeps the first error.
type parser struct {
	fields []wire.Field
	err    error
}

func (p *parser) has(name string) bool {
	_, found := wire.Get(p.fields, name)
	return found
}

func (p *parser) text(name string) string {
	value, _ := wire.Get(p.fields, name)
	return value
}

func (p *parser) number(name string, missing int) int {
	if !p.has(name) {
		return missing
	}
	n, err := strconv.Atoi(p.text(name))
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("origin: %s: %w", name, err)
	}
	return n
}

func (p *parser) milliseconds(name string, missing int) time.Duration {
	return time.Duration(p.number(name, missing)) * time.Millisecond
}
