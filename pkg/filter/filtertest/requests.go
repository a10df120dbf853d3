package filtertest

import (
	"context"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Get returns a request of GET for a path of shop.test, with fields "name: value".
func Get(path string, fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path, x.Request.Authority = "GET", path, "shop.test"
	AddFields(&x.Request.Header, fields...)
	return x
}

// AddFields adds fields "name: value" to a head.
func AddFields(h *protocol.Header, fields ...string) {
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Add(name, value)
	}
}

// AddList is AddFields of a text in which they stand with ", " between them, as List has it.
func AddList(h *protocol.Header, list string) {
	if list != "" {
		AddFields(h, strings.Split(list, ", ")...)
	}
}

// List returns the fields of a head, with ", " between them.
func List(h *protocol.Header) string {
	var fields []string
	for name, value := range h.All() {
		fields = append(fields, name+": "+value)
	}
	return strings.Join(fields, ", ")
}

// Application answers with 200 and a text.
func Application() protocol.Service {
	return protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/plain", "from the application")
		return nil
	})
}
