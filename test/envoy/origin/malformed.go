package origin

import (
	"fmt"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// sendMalformed sends a response of HTTP/2 with an error.
func sendMalformed(frames *wire.HTTP2, stream uint32, kind string) error {
	status := wire.Field{Name: ":status", Value: "200"}
	heads := map[string][]wire.Field{
		"no-status":       {{Name: "x-a", Value: "1"}},
		"status-x":        {{Name: ":status", Value: "x"}},
		"upper-case":      {status, {Name: "X-A", Value: "1"}},
		"connection":      {status, {Name: "connection", Value: "close"}},
		"status-twice":    {status, status},
		"content-length":  {status, {Name: "content-length", Value: "9"}},
		"pseudo-trailers": {status},
		"newline":         {status, {Name: "x-a", Value: "a\nb"}},
		"many-fields":     {status},
		"head-twice":      {status},
	}
	for i := range 200 {
		heads["many-fields"] = append(heads["many-fields"], wire.Field{Name: fmt.Sprintf("x-%d", i), Value: "1"})
	}
	if kind != "data-first" {
		head, found := heads[kind]
		if !found {
			return fmt.Errorf("origin: x-o-malformed: unknown kind %q", kind)
		}
		if err := frames.Headers(stream, head, false); err != nil {
			return err
		}
	}
	switch kind {
	case "pseudo-trailers":
		return frames.Headers(stream, []wire.Field{status}, true)
	case "head-twice":
		if err := frames.Headers(stream, []wire.Field{status}, false); err != nil {
			return err
		}
	}
	return frames.Data(stream, []byte("abc"), true)
}
