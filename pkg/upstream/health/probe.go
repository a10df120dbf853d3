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

// Host is a host as probes need it. Connections are made as those of exchanges are,
// TLS included. Port 0 is the host's own.
type Host interface {
	// Dial opens a connection before the deadline, on which nothing is sent.
	Dial(ctx context.Context, port uint16, deadline time.Time) (*network.Conn, error)

	// Connect opens one that speaks a protocol of exchanges.
	Connect(ctx context.Context, speaks config.Protocol, port uint16, deadline time.Time) (Connection, error)

	// Authority is what requests name the host as.
	Authority() string
}

// Connection carries the exchange of a check. Close ends it at once; it is called
// once, from any goroutine.
type Connection interface {
	protocol.Service
	Close() error
}

// NewProbe returns the probe that cfg asks for. codec is that of the protocol, for
// heartbeats; nil for others. An error means that there is no such probe.
func NewProbe(cfg *config.HealthCheck, h Host, codec xprotocol.Codec) (Probe, error) {
	switch cfg.Protocol {
	case config.CheckTCP:
		return &tcp{h}, nil
	case config.CheckHTTP1:
		return &http{h, cfg, config.HTTP1}, nil
	case config.CheckHTTP2:
		return &http{h, cfg, config.HTTP2}, nil
	case config.CheckGRPC:
		return &grpc{h, cfg}, nil
	case config.CheckDubbo, config.CheckBolt, config.CheckBoltV2:
		if codec != nil {
			return &heartbeat{h, codec}, nil
		}
	}
	return nil, fmt.Errorf("there is no health check of the protocol %q", cfg.Protocol)
}

// tcp passes if the host takes a connection.
type tcp struct{ host Host }

// Probe is Probe's.
func (p *tcp) Probe(ctx context.Context, deadline time.Time) error {
	conn, err := p.host.Dial(ctx, 0, deadline)
	if err != nil {
		return err
	}
	return conn.Close()
}

// heartbeat passes if the host answers one.
type heartbeat struct {
	host  Host
	codec xprotocol.Codec
}

// The id of a heartbeat, and how many bytes of a host's answer are looked at.
const (
	beatID   = 1
	mostRead = 64 << 10
)

// Probe is Probe's.
func (p *heartbeat) Probe(ctx context.Context, deadline time.Time) error {
	conn, err := p.host.Dial(ctx, 0, deadline)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, conn.Interrupt)
	defer conn.Close() //nolint:errcheck // there is nothing left to do with it
	defer stop()
	conn.SetWriteDeadline(deadline)
	conn.SetReadDeadline(deadline)
	if _, err := conn.Write(p.codec.AppendHeartbeat(nil, beatID)); err != nil {
		return fmt.Errorf("sending a heartbeat: %w", err)
	}
	return p.await(conn)
}

// await reads until the answer to the heartbeat. What else a host may say first, such
// as a heartbeat of its own, is passed over.
func (p *heartbeat) await(conn *network.Conn) error {
	read := make([]byte, 0, 512)
	for total := 0; ; {
		if len(read) == cap(read) {
			read = append(read, make([]byte, len(read))...)[:len(read)]
		}
		n, err := conn.Read(read[len(read):cap(read)])
		if err != nil {
			return fmt.Errorf("no answer to a heartbeat: %w", err)
		}
		read = read[:len(read)+n]
		if total += n; total > mostRead {
			return errors.New("no answer to a heartbeat, and much else")
		}
		for {
			f, err := p.codec.ParseFrame(read)
			if err != nil {
				return fmt.Errorf("the answer to a heartbeat: %w", err)
			}
			if f.Size == 0 || f.Size > len(read) {
				break
			}
			if f.Kind == xprotocol.HeartbeatAck {
				return nil
			}
			if f.Kind == xprotocol.GoAway {
				return errors.New("the host takes no new requests")
			}
			read = read[:copy(read, read[f.Size:])]
		}
	}
}
