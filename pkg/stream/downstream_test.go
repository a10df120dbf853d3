package stream

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestSilentConn(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    SilentConn
		want error
	}{
		{"an idle connection is parked", SilentConn{}, network.ErrPark},
		{"a connection with exchanges in flight continues", SilentConn{Inflight: true}, nil},
		{"after GOAWAY an idle connection ends", SilentConn{Draining: true}, ErrDrained},
		{"after GOAWAY the exchanges in flight continue", SilentConn{Draining: true, Inflight: true}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.s.Err(); !errors.Is(got, tt.want) {
				t.Errorf("Err() = %v, want %v", got, tt.want)
			}
		})
	}
	for _, s := range []SilentConn{{}, {Inflight: true}, {Draining: true}, {Draining: true, Inflight: true}} {
		s.PartialFrame, s.FrameTimeout = true, 5*time.Second
		if got := s.Err(); protocol.ReasonOf(got) != protocol.RequestTimeout || !strings.HasSuffix(got.Error(), "no data for 5s") {
			t.Errorf("%+v: Err() = %v, want %v for 5s", s, got, protocol.RequestTimeout)
		}
	}
}

func TestCloseReasonOf(t *testing.T) {
	var panicErr error
	func() {
		defer protocol.RecoverPanic(&panicErr)
		panic("injected")
	}()
	for _, tt := range []struct {
		name         string
		err          error
		partialFrame bool
		want         network.CloseReason
		logged       bool
	}{
		{"drained", fmt.Errorf("client: %w", ErrDrained), false, network.ClosedDrained, false},
		{"closed between two frames", io.EOF, false, network.ClosedByPeer, false},
		{"closed within a frame", io.EOF, true, network.ClosedByPeer, true},
		{"reset", errors.New("connection reset by peer"), false, network.ClosedByPeer, true},
		{"panic", panicErr, false, network.ClosedInternalError, true},
		{"malformed frame", protocol.Faultf(protocol.MalformedRequest, "frame"), true, network.ClosedProtocolError, true},
		{"late frame", protocol.Faultf(protocol.RequestTimeout, "frame"), true, network.ClosedRequestTimeout, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reason, logged := CloseReasonOf(tt.err, tt.partialFrame)
			if reason != tt.want || tt.logged && !errors.Is(logged, tt.err) || !tt.logged && logged != nil {
				t.Errorf("CloseReasonOf(%v, %t) = %v, %v; want %v, and the error: %t", tt.err, tt.partialFrame, reason, logged, tt.want, tt.logged)
			}
		})
	}
}
