package dubbo

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Attachments that say how long the caller waits, in ms, as a string or a number.
// The first is what was configured for the service; callers that count down, or
// have another timeout for the method, say so in the second, and providers go by
// that.
const (
	timeoutOfService   = "timeout"
	timeoutOfCall      = "_TO"
	timeoutOfCallLower = "_to"
)

// Marks of a request: where in the frame the values of these attachments begin
// and end. The end is 0 if there is none, or none that can be changed in place.
const (
	markOfCall    = 0
	markOfService = 2
)

// isTimeout reports whether an attachment is a timeout.
func isTimeout(name string) bool {
	switch len(name) {
	case len(timeoutOfService):
		return name == timeoutOfService
	case len(timeoutOfCall):
		return name == timeoutOfCall || name == timeoutOfCallLower
	default:
		return false
	}
}

// seeTimeout takes the timeout from an attachment. If the attachments are a map
// that an argument is, too, they stay as they are.
func seeTimeout(v *xprotocol.FrameView, e *hessian.Entry, body []byte, attachments int) {
	ms, _ := parseTimeout(body[e.Middle:e.End])
	if ms == 0 {
		return
	}
	mark := markOfCall
	if len(e.Key) == len(timeoutOfService) {
		mark = markOfService
	}
	if mark == markOfCall || v.Timeout == 0 {
		v.Timeout = time.Duration(ms) * time.Millisecond
	}
	if e.Middle > attachments {
		v.Offsets[mark], v.Offsets[mark+1] = int32(headSize+e.Middle), int32(headSize+e.End)
	}
}

// parseTimeout returns the timeout that a Hessian value says, in ms: 0 if it says
// none that Java takes. digits is what says it, if it is a string.
func parseTimeout(value []byte) (ms int64, digits []byte) {
	if n := int(value[0]); n <= 0x1f && len(value) == 1+n {
		return parseDigits(value[1:]), value[1:] // a short string, as always
	}
	var d hessian.Decoder
	d.Reset(value)
	switch d.Kind() {
	case hessian.Int, hessian.Long:
		n, err := d.Long()
		if err != nil || n < 0 || n > math.MaxInt32 {
			return 0, nil
		}
		return n, nil
	case hessian.String:
		text, err := d.Text()
		digits = value[len(value)-len(text):]
		if err != nil || !bytes.Equal(text, digits) {
			return 0, nil // in pieces, which no writer makes of a number
		}
		return parseDigits(digits), digits
	default:
		return 0, nil
	}
}

// parseDigits returns a decimal number of 31 bits, 0 if there is none.
func parseDigits(digits []byte) int64 {
	n := int64(0)
	for _, c := range digits {
		if n = n*10 + int64(c-'0'); c < '0' || c > '9' || n > math.MaxInt32 {
			return 0
		}
	}
	return n
}

// lowerTimeout lowers the timeout that a Hessian value says to ms, which is
// positive, in the bytes that the value has: a string with zeros in front, which
// all peers read, a number in the form that it is in, which holds smaller ones.
func lowerTimeout(value []byte, ms int64) {
	said, digits := parseTimeout(value)
	if said <= ms {
		return
	}
	if digits == nil {
		putNumber(value, ms)
		return
	}
	for i := range slices.Backward(digits) {
		digits[i] = byte('0' + ms%10)
		ms /= 10
	}
}

// putNumber overwrites an int or a long with n, which is from 0 up to what it
// was (Hessian 2.0 serialization 4.5, 4.7).
func putNumber(value []byte, n int64) {
	low := len(value) - 1 // bytes behind the tag
	if low < 3 {          // which has the high bits, on top of what it has for zero
		value[0] = zeroTag(value[0], low) + byte(n>>(8*low))
	}
	for i := low; i > 0; i-- {
		value[i] = byte(n)
		n >>= 8
	}
}

// zeroTag returns the tag that 0 has in the form of which tag is, which has so
// many bytes behind it.
func zeroTag(tag byte, low int) byte {
	switch {
	case low == 0 && tag < 0xc0:
		return 0x90 // an int
	case low == 0:
		return 0xe0
	case low == 1 && tag < 0xd0:
		return 0xc8 // an int
	case low == 1:
		return 0xf8
	case tag >= 0xd0:
		return 0xd4 // an int
	default:
		return 0x3c
	}
}
