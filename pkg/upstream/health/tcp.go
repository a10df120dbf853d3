package health

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// tcpProbe passes if the host accepts a connection and then sends the expected data.
type tcpProbe struct {
	host Host
	cfg  *config.TCPCheck
	port uint16 // 0: the port of the host
}

// Probe implements Probe.
func (p *tcpProbe) Probe(ctx context.Context, deadline time.Time) error {
	conn, err := p.host.Dial(ctx, p.port, deadline)
	if err != nil {
		return err
	}
	if len(p.cfg.Receive) == 0 {
		return conn.Close()
	}
	stop := context.AfterFunc(ctx, conn.Interrupt)
	defer conn.Close() //nolint:errcheck // the check has ended
	defer stop()
	conn.SetWriteDeadline(deadline)
	conn.SetReadDeadline(deadline)
	return p.exchangeData(conn)
}

// exchangeData sends the data of the check and reads until the host has sent the expected data.
func (p *tcpProbe) exchangeData(conn *network.Conn) error {
	if p.cfg.Send != "" {
		if _, err := io.WriteString(conn, p.cfg.Send); err != nil {
			return fmt.Errorf("sending the data of the check: %w", err)
		}
	}
	m := dataMatcher{remaining: p.cfg.Receive}
	buf := make([]byte, 4<<10)
	for {
		n, err := conn.Read(buf)
		switch {
		case m.match(buf[:n]):
			return nil
		case err != nil:
			return fmt.Errorf("the host has not sent the expected data, %d of %d strings are missing: %w", len(m.remaining), len(p.cfg.Receive), err)
		}
	}
}

// dataMatcher finds byte strings in a stream, in order and without overlaps. Its memory is bounded
// by the length of the strings and of the last read.
type dataMatcher struct {
	remaining []string // strings that were not found
	unmatched []byte   // end of the stream in which the first of them may begin
}

// match adds data to the stream and reports whether all strings were found.
func (m *dataMatcher) match(data []byte) bool {
	m.unmatched = append(m.unmatched, data...)
	for len(m.remaining) > 0 {
		next := m.remaining[0]
		i := bytes.Index(m.unmatched, []byte(next))
		if i < 0 {
			if excess := len(m.unmatched) - (len(next) - 1); excess > 0 {
				m.unmatched = append(m.unmatched[:0], m.unmatched[excess:]...)
			}
			return false
		}
		m.unmatched = m.unmatched[i+len(next):]
		m.remaining = m.remaining[1:]
	}
	return true
}
