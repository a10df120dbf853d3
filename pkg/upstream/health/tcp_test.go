package health

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// dataHost is a Host that expects bytes, sends others, and then closes the connection or hangs.
type dataHost struct {
	Host
	expects string
	writes  []string // bytes that the host sends, one write each
	hangs   bool
	dialErr error
}

func (h *dataHost) Dial(context.Context, uint16, time.Time) (*network.Conn, error) {
	if h.dialErr != nil {
		return nil, h.dialErr
	}
	probeConn, hostConn := net.Pipe()
	go func() {
		defer hostConn.Close()
		received := make([]byte, len(h.expects))
		if _, err := io.ReadFull(hostConn, received); err != nil || string(received) != h.expects {
			return
		}
		for _, text := range h.writes {
			if _, err := io.WriteString(hostConn, text); err != nil {
				return // the check has ended
			}
		}
		if h.hangs {
			_, _ = io.Copy(io.Discard, hostConn) // until the check closes the connection
		}
	}()
	return network.NewConn(probeConn), nil
}

func TestTCPData(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	tests := []struct {
		name    string
		send    string
		receive []string
		host    *dataHost
		want    string // part of the error; "" for none
	}{
		{"no data", "", nil, &dataHost{}, ""},
		{"send without receive sends nothing", "PING", nil, &dataHost{expects: "PING"}, ""},
		{"receive without send", "", []string{"HI"}, &dataHost{writes: []string{"xHIx"}}, ""},
		{"response", "PING", []string{"PONG"}, &dataHost{expects: "PING", writes: []string{"+PONG\r\n"}}, ""},
		{"response in pieces", "PING", []string{"PONG"}, &dataHost{expects: "PING", writes: []string{"+P", "O", "NG"}}, ""},
		{"response after other data", "PING", []string{"PONG"}, &dataHost{expects: "PING", writes: []string{"ERR", long, "PO", "NG"}}, ""},
		{"response after the start of another", "PING", []string{"PONG"}, &dataHost{expects: "PING", writes: []string{"POPONG"}}, ""},
		{"two strings in order", "PING", []string{"A", "B"}, &dataHost{expects: "PING", writes: []string{"xA", "yBz"}}, ""},
		{"two strings in another order", "PING", []string{"A", "B"}, &dataHost{expects: "PING", writes: []string{"xBA"}}, "1 of 2 strings are missing: EOF"},
		{"two strings that overlap", "PING", []string{"AB", "BC"}, &dataHost{expects: "PING", writes: []string{"ABC"}}, "1 of 2 strings are missing: EOF"},
		{"the same string twice", "PING", []string{"A", "A"}, &dataHost{expects: "PING", writes: []string{"A"}}, "1 of 2 strings are missing: EOF"},
		{"other response", "PING", []string{"PONG"}, &dataHost{expects: "PING", writes: []string{"ERR"}}, "1 of 1 strings are missing: EOF"},
		{"host closes the connection", "PING", []string{"PONG"}, &dataHost{expects: "PING"}, "EOF"},
		{"host refuses the connection", "PING", []string{"PONG"}, &dataHost{dialErr: errUnhealthy}, "unhealthy"},
		{"host hangs", "PING", []string{"PONG"}, &dataHost{expects: "PING", writes: []string{"PON"}, hangs: true}, "timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewProbe(&config.HealthCheck{Protocol: config.CheckTCP, TCP: config.TCPCheck{Send: tt.send, Receive: tt.receive}}, tt.host, nil)
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

func TestTCPDataEndsWithContext(t *testing.T) {
	p, err := NewProbe(&config.HealthCheck{Protocol: config.CheckTCP, TCP: config.TCPCheck{Receive: []string{"A"}}}, &dataHost{hangs: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.Probe(ctx, time.Now().Add(time.Hour)); err == nil {
		t.Error("Probe = nil for a host that sends nothing, want an error")
	}
}

// FuzzDataMatcher verifies that the result does not depend on the reads into which data is split.
func FuzzDataMatcher(f *testing.F) {
	f.Add([]byte("POPONG"), "PONG", "G", 3)
	f.Add([]byte("ABC"), "AB", "BC", 1)
	f.Fuzz(func(t *testing.T, data []byte, first, second string, split int) {
		if first == "" || second == "" || split < 0 || split > len(data) {
			t.Skip()
		}
		_, rest, found := strings.Cut(string(data), first)
		want := found && strings.Contains(rest, second)
		m := dataMatcher{remaining: []string{first, second}}
		got := m.match(data[:split])
		got = m.match(data[split:]) || got
		if got != want {
			t.Errorf("match(%q, split at %d) for %q and %q = %t, want %t", data, split, first, second, got, want)
		}
	})
}
