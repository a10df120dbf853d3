// Package accesslog writes a line of text or a JSON object for each exchange.
package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// DefaultFormat is the line of an access log without a format. Spaces separate its columns. A space
// within a value is written as \x20, so every line has as many columns as the format.
const DefaultFormat = "%start_time_rfc3339% %downstream_remote_address% %method% %authority% %request_uri% %version% " +
	"%response_code% %response_flag% %bytes_received% %bytes_sent% %duration_ms% %upstream_cluster% %upstream_host% %route%"

// Log is an access log. It is safe for concurrent use.
//
// A client can neither break a line nor change the shape of a JSON object: variables escape control
// characters and, in JSON, quotes.
type Log struct {
	out   io.WriteCloser // immutable; Write takes a complete line and does not block
	parts []part         // immutable
	lines sync.Pool      // of *[]byte
}

// part is constant text and the template that follows it.
type part struct {
	text  string
	value *variable.Template // nil: none
	json  bool               // value is a JSON value
	// column says that spaces in the value are written as \x20.
	column bool
}

// Open compiles c's format and opens its file.
func Open(c config.AccessLog, logs *logfile.Set) (*Log, error) {
	parts, err := compile(c)
	if err != nil {
		return nil, fmt.Errorf("access log %s: %w", c.Path, err)
	}
	out, err := logs.Open(c.Path, logfile.Roller(c.Rotation))
	if err != nil {
		return nil, fmt.Errorf("access log %s: %w", c.Path, err)
	}
	a := &Log{out: out, parts: parts}
	a.lines.New = func() any {
		line := make([]byte, 0, 512)
		return &line
	}
	return a, nil
}

func compile(c config.AccessLog) ([]part, error) {
	if len(c.JSON) > 0 {
		return jsonParts(c.JSON)
	}
	if c.Format == "" {
		return columnParts(DefaultFormat)
	}
	line, err := variable.Compile(c.Format)
	if err != nil {
		return nil, err
	}
	return []part{{value: line}, {text: "\n"}}, nil
}

// columnParts compiles a line of variables separated by spaces.
func columnParts(format string) ([]part, error) {
	var parts []part
	separator := ""
	for column := range strings.FieldsSeq(format) {
		value, err := variable.Compile(column)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{text: separator, value: value, column: true})
		separator = " "
	}
	return append(parts, part{text: "\n"}), nil
}

// escapeSpaces writes the spaces in line[start:] as \x20. Few values have any.
func escapeSpaces(line []byte, start int) []byte {
	if bytes.IndexByte(line[start:], ' ') < 0 {
		return line
	}
	return append(line[:start], bytes.ReplaceAll(line[start:], []byte(" "), []byte(`\x20`))...)
}

// jsonParts compiles one object with the fields in their order.
func jsonParts(fields []config.LogField) ([]part, error) {
	parts := make([]part, 0, len(fields)+1)
	separator := "{"
	for _, f := range fields {
		value, err := variable.Compile(f.Format)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		parts = append(parts, part{text: separator + string(name) + ":", value: value, json: true})
		separator = ","
	}
	return append(parts, part{text: "}\n"}), nil
}

// Observe appends x's line. It does not wait for the file. It reuses the memory of earlier lines,
// and allocates for a column whose value contains a space.
func (a *Log) Observe(x *protocol.Exchange) {
	buf := a.lines.Get().(*[]byte)
	line := (*buf)[:0]
	for i := range a.parts {
		p := &a.parts[i]
		line = append(line, p.text...)
		switch {
		case p.value == nil:
		case p.json:
			line = p.value.AppendJSON(line, x)
		case p.column:
			start := len(line)
			line = escapeSpaces(p.value.Append(line, x), start)
		default:
			line = p.value.Append(line, x)
		}
	}
	_, _ = a.out.Write(line) // the log file counts lines that it cannot write
	*buf = line
	a.lines.Put(buf)
}

// Close closes the file after the queued lines have been written.
func (a *Log) Close() { _ = a.out.Close() } // the log file reports lost lines itself
