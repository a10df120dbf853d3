package health

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// fakeCodec is the codec of a protocol whose frames are a letter, a length and a payload: "Q" is a
// heartbeat, "A" its response, "G" a GOAWAY and "R" a request.
type fakeCodec struct{ xprotocol.Codec }

func (fakeCodec) AppendHeartbeat(dst []byte, _ uint64) []byte { return append(dst, 'Q', 0) }

func (fakeCodec) ParseFrame(b []byte) (xprotocol.Frame, error) {
	kinds := map[byte]xprotocol.Kind{'Q': xprotocol.Heartbeat, 'A': xprotocol.HeartbeatAck, 'G': xprotocol.GoAway, 'R': xprotocol.Request}
	switch {
	case len(b) > 0 && kinds[b[0]] == 0:
		return xprotocol.Frame{}, errors.New("malformed frame")
	case len(b) < 2:
		return xprotocol.Frame{}, nil
	default:
		return xprotocol.Frame{Kind: kinds[b[0]], Size: 2 + int(b[1])}, nil
	}
}

// scriptedHost is a Host that sends bytes after a request, and then closes the connection or hangs.
type scriptedHost struct {
	Host
	writes  []string // bytes that the host sends, one write each
	hangs   bool
	dialErr error
}

func (s *scriptedHost) Dial(context.Context, uint16, time.Time) (*network.Conn, error) {
	if s.dialErr != nil {
		return nil, s.dialErr
	}
	probeConn, hostConn := net.Pipe()
	go func() {
		defer hostConn.Close()
		if _, err := io.ReadFull(hostConn, make([]byte, 2)); err != nil {
			return
		}
		for _, text := range s.writes {
			if _, err := io.WriteString(hostConn, text); err != nil {
				return // the check has ended
			}
		}
		if s.hangs {
			_, _ = io.Copy(io.Discard, hostConn) // until the check closes the connection
		}
	}()
	return network.NewConn(probeConn), nil
}

func TestHeartbeats(t *testing.T) {
	longFrames := strings.Repeat("R\xff"+strings.Repeat("x", 255), 300)
	tests := []struct {
		name string
		host *scriptedHost
		want string // part of the error; "" for none
	}{
		{"response", &scriptedHost{writes: []string{"A\x00"}}, ""},
		{"response in pieces", &scriptedHost{writes: []string{"A", "\x02a", "b"}}, ""},
		{"response after a heartbeat of the host", &scriptedHost{writes: []string{"Q\x00Q\x03abcA\x00"}}, ""},
		{"response after long frames", &scriptedHost{writes: []string{longFrames[:257*100], "A\x00"}}, ""},
		{"response after too much data", &scriptedHost{writes: []string{longFrames, "A\x00"}}, "no heartbeat response in the data"},
		{"other protocol", &scriptedHost{writes: []string{"HTTP/1.1 400 Bad Request\r\n\r\n"}}, "malformed frame"},
		{"GOAWAY", &scriptedHost{writes: []string{"G\x00"}}, "no new requests"},
		{"host closes the connection", &scriptedHost{writes: []string{"A"}}, "EOF"},
		{"host refuses the connection", &scriptedHost{dialErr: errUnhealthy}, "unhealthy"},
		{"host hangs", &scriptedHost{hangs: true}, "timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewProbe(&config.HealthCheck{Protocol: config.CheckDubbo}, tt.host, fakeCodec{})
			if err != nil {
				t.Fatal(err)
			}
			timeout := 10 * time.Second
			if tt.host.hangs {
				timeout = 10 * time.Millisecond
			}
			err = p.Probe(t.Context(), time.Now().Add(timeout))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Probe = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestHeartbeatEndsWithContext(t *testing.T) {
	p, err := NewProbe(&config.HealthCheck{Protocol: config.CheckBolt}, &scriptedHost{hangs: true}, fakeCodec{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.Probe(ctx, time.Now().Add(time.Hour)); err == nil {
		t.Error("Probe = nil for a host that does not respond, want an error")
	}
}

func TestUnsupportedProbes(t *testing.T) {
	for _, p := range []config.CheckProtocol{"", "ICMP", config.CheckDubbo} {
		if _, err := NewProbe(&config.HealthCheck{Protocol: p}, &scriptedHost{}, nil); err == nil || !strings.Contains(err.Error(), string(p)) {
			t.Errorf("NewProbe(%q) = %v, want an error that names it", p, err)
		}
	}
}
