package dubbo

import (
	"fmt"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Statuses of answers.
const (
	statusOK                = 20
	statusClientTimeout     = 30
	statusServerTimeout     = 31
	statusChannelInactive   = 35
	statusBadRequest        = 40
	statusBadResponse       = 50
	statusServiceNotFound   = 60
	statusClientError       = 90
	statusThreadPoolIsEmpty = 100
)

// httpStatus returns the HTTP view of a status. An exception that a service
// throws is an answer like another: it has statusOK.
func httpStatus(status byte) int {
	switch status {
	case statusOK:
		return 200
	case statusBadRequest, statusClientError:
		return 400
	case statusServiceNotFound:
		return 404
	case statusChannelInactive, statusBadResponse:
		return 502
	case statusThreadPoolIsEmpty:
		return 503
	case statusClientTimeout, statusServerTimeout:
		return 504
	default: // of the service, of the server, of its serialization, and unknown ones
		return 500
	}
}

// Results: what an answer with statusOK begins with. Those with attachments are
// known since Dubbo 2.6.3 (protocol 2.0.2).
const (
	resultException = iota
	resultValue
	resultNull
	resultExceptionAttached
	resultValueAttached
	resultNullAttached

	attached = resultExceptionAttached - resultException
)

// ReadResponse is xprotocol.Messages's. An answer with another status than
// statusOK is its text only, and has no attachments.
func (Codec) ReadResponse(frame []byte, r *protocol.Response, v *xprotocol.View) error {
	r.Code = int(frame[statusAt])
	r.Status = httpStatus(frame[statusAt])
	r.ContentLength = int64(len(frame) - headSize)
	v.Timeout, v.Content, v.Marks = 0, headSize, [len(v.Marks)]int32{}
	if !isHessian(frame) || frame[statusAt] != statusOK {
		return nil
	}
	var d hessian.Decoder
	var a result
	if err := a.read(&d, frame[headSize:]); err != nil {
		return malformedResponse(err)
	}
	if a.kind < attached {
		return nil // the rest is the value
	}
	if err := a.skipValue(&d); err != nil {
		return malformedResponse(err)
	}
	if _, err := beginAttachments(&d); err != nil {
		return malformedResponse(err)
	}
	var e hessian.Entry
	for n := 0; ; n++ {
		more, err := nextAttachment(&d, &e, n)
		if err != nil {
			return malformedResponse(err)
		}
		if !more {
			break
		}
		if isField(&e) {
			r.Header.Add(view(e.Key), view(e.Value))
		}
	}
	r.Header.Seal()
	return nil
}

// malformedResponse returns the fault of an answer that cannot be read.
func malformedResponse(err error) error {
	return protocol.Faultf(protocol.UpstreamMalformed, "dubbo: answer: %w", err)
}

// result is what the body of an answer with statusOK says before its attachments.
type result struct {
	kind  int32
	value int // where in the body it begins
}

// read consumes the kind of the result.
func (a *result) read(d *hessian.Decoder, body []byte) (err error) {
	d.Limits = limits
	d.Reset(body)
	if a.kind, err = d.Int(); err != nil {
		return fmt.Errorf("kind of result: %w", err)
	}
	if a.kind < resultException || a.kind > resultNullAttached {
		return fmt.Errorf("kind of result: %d is none", a.kind)
	}
	a.value = d.Offset()
	return nil
}

// skipValue consumes the value or exception.
func (a *result) skipValue(d *hessian.Decoder) error {
	if a.kind%attached == resultNull {
		return nil
	}
	if err := d.Skip(); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	return nil
}
