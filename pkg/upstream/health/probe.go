package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Host is a host as probes see it. Connections are opened like those of exchanges, TLS included.
// Port 0 means the port of the host's address.
type Host interface {
	// Dial opens a connection before the deadline and sends nothing on it.
	Dial(ctx context.Context, port uint16, deadline time.Time) (*network.Conn, error)

	// Connect opens a connection that speaks the given protocol.
	Connect(ctx context.Context, proto config.Protocol, port uint16, deadline time.Time) (Connection, error)

	// Authority returns the authority of requests to the host.
	Authority() string
}

// Connection serves the exchange of a check. Close closes the connection immediately; the check
// calls it once, from any goroutine.
type Connection interface {
	protocol.Service
	Close() error
}

// NewProbe returns the probe for cfg. codec is the codec for heartbeats, nil for other probes.
// NewProbe returns an error if the protocol has no probe, or if heartbeats have no codec.
func NewProbe(cfg *config.HealthCheck, h Host, codec xprotocol.Codec) (Probe, error) {
	switch cfg.Protocol {
	case config.CheckTCP:
		return &tcpProbe{h, &cfg.TCP, cfg.HTTP.Port}, nil
	case config.CheckHTTP1:
		return &httpProbe{h, cfg, config.HTTP1}, nil
	case config.CheckHTTP2:
		return &httpProbe{h, cfg, config.HTTP2}, nil
	case config.CheckGRPC:
		return &grpcProbe{h, cfg}, nil
	case config.CheckDubbo, config.CheckBolt, config.CheckBoltV2:
		if codec != nil {
			return &heartbeatProbe{h, codec}, nil
		}
	}
	return nil, fmt.Errorf("health checks with protocol %q are not supported", cfg.Protocol)
}

// heartbeatProbe passes if the host responds to a heartbeat.
type heartbeatProbe struct {
	host  Host
	codec xprotocol.Codec
}

// The ID of a heartbeat, and the maximum number of bytes to read from a host.
const (
	heartbeatID      = 1
	maxHeartbeatRead = 64 << 10
)

// Probe implements Probe.
func (p *heartbeatProbe) Probe(ctx context.Context, deadline time.Time) error {
	conn, err := p.host.Dial(ctx, 0, deadline)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, conn.Interrupt)
	defer conn.Close() //nolint:errcheck // the check has ended
	defer stop()
	conn.SetWriteDeadline(deadline)
	conn.SetReadDeadline(deadline)
	if _, err := conn.Write(p.codec.AppendHeartbeat(nil, heartbeatID)); err != nil {
		return fmt.Errorf("sending a heartbeat: %w", err)
	}
	return p.awaitAck(conn)
}

// awaitAck reads until the response to the heartbeat. It fails at a GoAway, and skips other frames,
// such as a heartbeat of the host.
func (p *heartbeatProbe) awaitAck(conn *network.Conn) error {
	buf := make([]byte, 0, 512)
	for total := 0; ; {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, len(buf))...)[:len(buf)]
		}
		n, err := conn.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return fmt.Errorf("no response to the heartbeat: %w", err)
		}
		buf = buf[:len(buf)+n]
		if total += n; total > maxHeartbeatRead {
			return errors.New("no heartbeat response in the data that the host sent")
		}
		for {
			f, err := p.codec.ParseFrame(buf)
			if err != nil {
				return fmt.Errorf("invalid heartbeat response: %w", err)
			}
			if f.Size == 0 || f.Size > len(buf) {
				break
			}
			if f.Kind == xprotocol.HeartbeatAck {
				return nil
			}
			if f.Kind == xprotocol.GoAway {
				return errors.New("the host accepts no new requests")
			}
			buf = buf[:copy(buf, buf[f.Size:])]
		}
	}
}
