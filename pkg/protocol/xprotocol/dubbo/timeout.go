package dubbo

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Attachments that declare how long the client waits, in ms, as a string or a number.
// serviceTimeout is the configured timeout of the service. Clients that reduce the timeout by the
// elapsed time, or have another timeout for the method, send callTimeout, which providers then use.
const (
	serviceTimeout   = "timeout"
	callTimeout      = "_TO"
	callTimeoutLower = "_to"
)

// Indexes in FrameView.Offsets for the value of each timeout: the offset of its start in the frame,
// followed by the offset of its end. The end is 0 if there is no value that can be changed in
// place.
const (
	callTimeoutIndex    = 0
	serviceTimeoutIndex = 2
)

func isTimeout(name string) bool {
	switch len(name) {
	case len(serviceTimeout):
		return name == serviceTimeout
	case len(callTimeout):
		return name == callTimeout || name == callTimeoutLower
	default:
		return false
	}
}

// recordTimeout records the timeout in an attachment. It records no offsets if the attachments are
// a reference to a map that is also an argument, which must stay unchanged.
func recordTimeout(v *xprotocol.FrameView, e *hessian.Entry, body []byte, attachments int) {
	ms, _ := parseTimeout(body[e.ValueStart:e.End])
	if ms == 0 {
		return
	}
	index := callTimeoutIndex
	if len(e.Key) == len(serviceTimeout) {
		index = serviceTimeoutIndex
	}
	if index == callTimeoutIndex || v.Timeout == 0 {
		v.Timeout = time.Duration(ms) * time.Millisecond
	}
	if e.ValueStart > attachments {
		v.Offsets[index], v.Offsets[index+1] = int32(headSize+e.ValueStart), int32(headSize+e.End)
	}
}

// parseTimeout returns the timeout in a Hessian value, in ms; 0 if there is none that Java accepts.
// If the value is a string, digits are the bytes of its text.
func parseTimeout(value []byte) (ms int64, digits []byte) {
	if n := int(value[0]); n <= 0x1f && len(value) == 1+n {
		return parseDigits(value[1:]), value[1:] // a short string, the most common form
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
			return 0, nil // a chunked string, which writers do not use for numbers
		}
		return parseDigits(digits), digits
	default:
		return 0, nil
	}
}

// parseDigits returns the decimal number in digits, or 0 if digits has another byte or the number
// exceeds 31 bits.
func parseDigits(digits []byte) int64 {
	n := int64(0)
	for _, c := range digits {
		if n = n*10 + int64(c-'0'); c < '0' || c > '9' || n > math.MaxInt32 {
			return 0
		}
	}
	return n
}

// lowerTimeout lowers the timeout in a Hessian value to ms, which is positive, without changing its
// size. A string gets leading zeros, which all peers accept. A number keeps its form, which can
// hold every smaller number.
func lowerTimeout(value []byte, ms int64) {
	current, digits := parseTimeout(value)
	if current <= ms {
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

// putNumber overwrites an int or a long with n, which is between 0 and the old number (Hessian 2.0
// serialization 4.5, 4.7).
func putNumber(value []byte, n int64) {
	low := len(value) - 1 // number of bytes after the tag
	if low < 3 {          // the tag holds the high bits, added to the tag of zero
		value[0] = zeroTag(value[0], low) + byte(n>>(8*low))
	}
	for i := low; i > 0; i-- {
		value[i] = byte(n)
		n >>= 8
	}
}

// zeroTag returns the tag of 0 in the same form as a number with the given tag, which has low bytes
// after the tag.
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
