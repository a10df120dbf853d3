package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// DefaultAccessLogFormat is the line of an access log that does not say what
// it wants: MOSN's, which writes the status twice.
const DefaultAccessLogFormat = "%start_time% %request_received_duration% %response_received_duration% %bytes_sent% " +
	"%bytes_received% %protocol% %response_code% %duration% %response_flag% %response_code% %upstream_local_address% " +
	"%downstream_local_address% %downstream_remote_address% %upstream_host%"

// AccessLog writes a line for each exchange. Safe for concurrent use.
//
// Whatever the caller sent, a line stays one line and a JSON object stays the
// object that was configured: variables escape control characters, and quotes
// in JSON.
type AccessLog struct {
	out   io.WriteCloser // immutable; its Write takes a whole line and does not wait
	parts []logPart      // immutable
	lines sync.Pool      // of *[]byte
}

// logPart is some constant text and the template that follows it.
type logPart struct {
	text  string
	value *variable.Template // nil: none
	json  bool               // value is a JSON value
}

// NewAccessLog compiles c's format and opens its file.
func NewAccessLog(c config.AccessLog, logs *logfile.Set) (*AccessLog, error) {
	parts, err := logParts(c)
	if err != nil {
		return nil, fmt.Errorf("access log %s: %w", c.Path, err)
	}
	out, err := logs.Open(c.Path, logfile.Roller(c.Roller))
	if err != nil {
		return nil, fmt.Errorf("access log %s: %w", c.Path, err)
	}
	a := &AccessLog{out: out, parts: parts}
	a.lines.New = func() any {
		line := make([]byte, 0, 512)
		return &line
	}
	return a, nil
}

func logParts(c config.AccessLog) ([]logPart, error) {
	if len(c.JSON) > 0 {
		return jsonParts(c.JSON)
	}
	format := c.Format
	if format == "" {
		format = DefaultAccessLogFormat
	}
	line, err := variable.Compile(format)
	if err != nil {
		return nil, err
	}
	return []logPart{{value: line}, {text: "\n"}}, nil
}

// jsonParts makes one object of fields, in their order.
func jsonParts(fields []config.LogField) ([]logPart, error) {
	parts := make([]logPart, 0, len(fields)+1)
	before := "{"
	for _, f := range fields {
		value, err := variable.Compile(f.Format)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		parts = append(parts, logPart{text: before + string(name) + ":", value: value, json: true})
		before = ","
	}
	return append(parts, logPart{text: "}\n"}), nil
}

// Observe appends x's line. It does not wait for the file and allocates nothing
// but what longer lines than before need.
func (a *AccessLog) Observe(x *protocol.Exchange) {
	room := a.lines.Get().(*[]byte)
	line := (*room)[:0]
	for i := range a.parts {
		p := &a.parts[i]
		line = append(line, p.text...)
		switch {
		case p.value == nil:
		case p.json:
			line = p.value.AppendJSON(line, x)
		default:
			line = p.value.Append(line, x)
		}
	}
	_, _ = a.out.Write(line) // a line that cannot be written is counted there
	*room = line
	a.lines.Put(room)
}

// Close gives the file up, after what waits has been written.
func (a *AccessLog) Close() { _ = a.out.Close() } // the log says itself what it lost
