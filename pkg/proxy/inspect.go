package proxy

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/detect"
	"github.com/weft-proxy/weft/pkg/router/chainmatch"
)

// inspectBufferSize is the initial buffer size of an inspected connection, in bytes.
const inspectBufferSize = 4 << 10

// errInspectTimeout reports a connection that did not send the bytes that select a filter chain in
// time.
var errInspectTimeout = errors.New("timeout before the connection sent the bytes that select a filter chain")

// inspection is the state of the inspection of a connection's first bytes.
type inspection struct {
	needs chainmatch.Needs
	hello detect.HelloParser
	conn  *chainmatch.Connection
}

// inspect reads conn until the properties in needs are known, stores them in props, and puts the
// bytes back. hasData reports whether there were any bytes. An error closes the connection, with
// the close reason that failInspection sets.
func (c *chainSet) inspect(conn *network.Conn, needs chainmatch.Needs, props *chainmatch.Connection) (hasData bool, err error) {
	insp := inspection{needs: needs, conn: props}
	var b *buffer.IoBuffer
	for {
		_, err := conn.Fill(&b, inspectBufferSize)
		decided := false
		if err == nil {
			decided, err = insp.parse(b.Bytes())
		} else if err == io.EOF && props.Transport == config.RawBuffer {
			decided, err = true, nil // the client sends no more
		} else if c.inspection.ContinueOnTimeout && errors.Is(err, os.ErrDeadlineExceeded) {
			if props.Transport == config.AnyTransport {
				props.Transport = config.RawBuffer
			}
			decided, err = true, nil
		}
		switch {
		case err != nil:
			if b != nil {
				b.Release()
			}
			return false, c.failInspection(conn, err)
		case !decided:
		case b == nil:
			return false, nil
		case b.Len() == 0:
			b.Release()
			return false, nil
		default:
			conn.Unread(b)
			return true, nil
		}
	}
}

// parse inspects the bytes read so far and reports whether they suffice.
func (i *inspection) parse(b []byte) (decided bool, err error) {
	if i.conn.Transport == config.AnyTransport {
		hello, done, err := i.hello.Parse(b)
		switch {
		case errors.Is(err, detect.ErrNotTLS):
			i.conn.Transport = config.RawBuffer
		case err != nil:
			return false, err
		case !done:
			return false, nil
		default:
			i.conn.Transport, i.conn.ServerName, i.conn.Protocols = config.TransportTLS, hello.ServerName, hello.Protocols
			return true, nil
		}
	}
	if i.needs&chainmatch.NeedHTTP == 0 {
		return true, nil
	}
	version, decided := detect.HTTP(b)
	if version != "" {
		i.conn.Protocols = []string{version}
	}
	return decided, nil
}

// failInspection sets the close reason of an inspected connection and returns the error that closes
// it. The reason is ClosedHandshakeFailed for a malformed or too large TLS handshake,
// ClosedRequestTimeout for a timeout, and ClosedByPeer otherwise.
func (c *chainSet) failInspection(conn *network.Conn, err error) error {
	switch {
	case errors.Is(err, detect.ErrMalformed), errors.Is(err, detect.ErrTooLarge):
		conn.CloseReason = network.ClosedHandshakeFailed
		if c.handshakes != nil {
			c.handshakes.count(err)
		}
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		conn.CloseReason = network.ClosedRequestTimeout
		return fmt.Errorf("%w: %w", errInspectTimeout, err)
	}
	conn.CloseReason = network.ClosedByPeer
	return err
}
