package proxy

import (
	"io"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// AccessLog writes a line for each exchange.
type AccessLog struct {
	out  io.WriteCloser
	line *variable.Template
}

const defaultFormat = `%start_time% %request_received_duration% %response_received_duration% %bytes_sent% %bytes_received% %protocol% %response_code% %duration% %response_flag% %upstream_local_address% %downstream_local_address% %downstream_remote_address% %upstream_host%`

// NewAccessLog opens the log.
func NewAccessLog(c config.AccessLog, logs *logfile.Set) (*AccessLog, error) {
	format := c.Format
	if format == "" {
		format = defaultFormat
	}
	line, err := variable.Compile(format)
	if err != nil {
		return nil, err
	}
	out, err := logs.Open(c.Path, logfile.Roller{})
	if err != nil {
		return nil, err
	}
	return &AccessLog{out: out, line: line}, nil
}

// Observe writes x's line.
func (a *AccessLog) Observe(x *protocol.Exchange) {
	var room [512]byte
	_, _ = a.out.Write(append(a.line.Append(room[:0], x), '\n'))
}

// Close closes the log.
func (a *AccessLog) Close() { _ = a.out.Close() }
