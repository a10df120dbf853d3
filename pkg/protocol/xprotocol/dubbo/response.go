package dubbo

import (
	"fmt"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Statuses of responses.
const (
	statusOK                  = 20
	statusClientTimeout       = 30
	statusServerTimeout       = 31
	statusChannelInactive     = 35
	statusBadRequest          = 40
	statusBadResponse         = 50
	statusServiceNotFound     = 60
	statusClientError         = 90
	statusThreadPoolExhausted = 100
)

// httpStatus returns the HTTP equivalent of a status. An exception that a service throws has
// statusOK, like any result.
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
	case statusThreadPoolExhausted:
		return 503
	case statusClientTimeout, statusServerTimeout:
		return 504
	default: // errors of the service, the server or its serialization, and unknown statuses
		return 500
	}
}

// Kinds of results: the first value of a response with statusOK. The kinds with attachments require
// Dubbo 2.6.3 or later (protocol 2.0.2).
const (
	resultException = iota
	resultValue
	resultNull
	resultExceptionAttached
	resultValueAttached
	resultNullAttached

	attachedOffset = resultExceptionAttached - resultException
)

// ReadResponse implements xprotocol.Messages. A response with a status other than statusOK is only
// a text and has no attachments. Otherwise the attachments follow the value, and Header loads them
// when it is first read or changed. ReadResponse therefore does not detect malformed attachments.
func (Codec) ReadResponse(frame []byte, r *protocol.Response, v *xprotocol.FrameView) error {
	r.Code = int(frame[statusOffset])
	r.Status = httpStatus(frame[statusOffset])
	r.ContentLength = int64(len(frame) - headSize)
	v.Timeout, v.ContentOffset, v.Offsets, v.DeferredFields = 0, headSize, [len(v.Offsets)]int32{}, nil
	if !isHessian(frame) || frame[statusOffset] != statusOK {
		return nil
	}
	kind, err := resultKindOf(frame[headSize:])
	if err != nil {
		return malformedResponse(err)
	}
	if kind < attachedOffset {
		return nil // the rest is the value
	}
	v.DeferredFields = frame
	r.Header.SetLoader((*attachments)(v))
	return nil
}

// attachments is the FieldLoader of a response: it loads the attachments from
// FrameView.DeferredFields.
type attachments xprotocol.FrameView

// LoadFields implements protocol.FieldLoader. If the attachments are malformed, it adds the
// attachments before the error.
func (v *attachments) LoadFields(h *protocol.Header) {
	var d hessian.Decoder
	var res result
	if res.read(&d, v.DeferredFields[headSize:]) != nil || res.skipValue(&d) != nil {
		return
	}
	if _, err := beginAttachments(&d); err != nil {
		return
	}
	var e hessian.Entry
	for n := 0; ; n++ {
		if more, err := nextAttachment(&d, &e, n); !more || err != nil {
			return
		}
		if isField(&e) {
			h.Add(unsafeString(e.Key), unsafeString(e.Value))
		}
	}
}

func malformedResponse(err error) error {
	return protocol.Faultf(protocol.UpstreamMalformed, "dubbo: response: %w", err)
}

// result is the body of a response with statusOK, without its attachments.
type result struct {
	kind  int32
	value int // offset in the body
}

// resultKindOf returns the kind of the result in a body, which is nearly always an int of one byte.
func resultKindOf(body []byte) (int32, error) {
	if len(body) > 0 && shortZero+resultException <= body[0] && body[0] <= shortZero+resultNullAttached {
		return int32(body[0] - shortZero), nil
	}
	var d hessian.Decoder
	var res result
	err := res.read(&d, body)
	return res.kind, err
}

// shortZero is the one-byte form of the int 0 (Hessian 2.0 serialization 4.5.1).
const shortZero = 0x90

// read consumes the kind of the result.
func (r *result) read(d *hessian.Decoder, body []byte) (err error) {
	d.Limits = limits
	d.Reset(body)
	if r.kind, err = d.Int(); err != nil {
		return fmt.Errorf("kind of result: %w", err)
	}
	if r.kind < resultException || r.kind > resultNullAttached {
		return fmt.Errorf("%d is not a valid kind of result", r.kind)
	}
	r.value = d.Offset()
	return nil
}

// skipValue consumes the value or exception.
func (r *result) skipValue(d *hessian.Decoder) error {
	if r.kind%attachedOffset == resultNull {
		return nil
	}
	if err := d.Skip(); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	return nil
}
