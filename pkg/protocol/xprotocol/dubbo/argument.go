package dubbo

import (
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// Argument implements xprotocol.ArgumentReader. It does not return arguments of a generic call,
// because they are in a list.
func (Codec) Argument(frame []byte, i int) (text string, ok bool) {
	if i < 0 || !isHessian(frame) {
		return "", false
	}
	var d hessian.Decoder
	var c call
	arguments, err := c.readHead(&d, frame[headSize:])
	if err != nil || i >= arguments || c.isGeneric {
		return "", false
	}
	for range i {
		if d.Skip() != nil {
			return "", false
		}
	}
	switch d.Kind() {
	case hessian.String:
		b, err := d.Text()
		return string(b), err == nil
	case hessian.Int, hessian.Long:
		n, err := d.Long()
		return strconv.FormatInt(n, 10), err == nil
	case hessian.Bool:
		b, err := d.Bool()
		return strconv.FormatBool(b), err == nil
	default:
		return "", false
	}
}
