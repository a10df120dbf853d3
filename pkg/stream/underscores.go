package stream

import (
	"errors"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ErrUnderscore is the cause of the Fault that ApplyUnderscoreAction returns.
var ErrUnderscore = errors.New("the name of a header contains an underscore")

// ApplyUnderscoreAction applies o.HTTP1.Underscores to the header of a request. It removes headers,
// or returns a MalformedRequest Fault. It calls o.CountUnderscores with the number of headers that
// it rejects (1) or removes.
func (o *ServerOptions) ApplyUnderscoreAction(h *protocol.Header) error {
	action := o.HTTP1.Underscores
	if action == config.AllowUnderscores {
		return nil
	}
	count := 0
	for i := range h.Len() {
		if hasUnderscore(h.At(i).Name) {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	var err error
	if action == config.RejectUnderscores {
		count, err = 1, protocol.NewFault(protocol.MalformedRequest, ErrUnderscore)
	} else {
		h.DelFunc(hasUnderscore)
	}
	if o.CountUnderscores != nil {
		o.CountUnderscores(action, count)
	}
	return err
}

// DropUnderscoreTrailers removes the fields of a request's trailer section whose names contain an
// underscore, unless o.HTTP1.Underscores allows them. A request cannot be rejected when its
// trailers arrive, because an upstream has already received it.
func (o *ServerOptions) DropUnderscoreTrailers(trailer *protocol.Header) {
	if o.HTTP1.Underscores == config.AllowUnderscores {
		return
	}
	before := trailer.Len()
	trailer.DelFunc(hasUnderscore)
	if count := before - trailer.Len(); count > 0 && o.CountUnderscores != nil {
		o.CountUnderscores(config.DropUnderscores, count)
	}
}

func hasUnderscore(name string) bool { return strings.IndexByte(name, '_') >= 0 }
