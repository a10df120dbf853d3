package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/load"
)

func dial(t *testing.T, address netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readResponses reads n responses and returns their ids.
func readResponses(t *testing.T, p *frame.Protocol, conn net.Conn, n int) []uint64 {
	t.Helper()
	var ids []uint64
	var data []byte
	buffer := make([]byte, 64<<10)
	for len(ids) < n {
		read, err := conn.Read(buffer)
		if err != nil {
			t.Fatalf("after %d of %d responses: %v", len(ids), n, err)
		}
		data = append(data, buffer[:read]...)
		for {
			size, f, err := p.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if size == 0 {
				break
			}
			ids = append(ids, f.ID)
			data = data[size:]
		}
	}
	return ids
}

// TestOriginHoldsResponses verifies that the origin holds the responses to requests on two
// connections until the last request arrives, while it responds to heartbeats.
func TestOriginHoldsResponses(t *testing.T) {
	address := newTestEnvironment(t, "-proxies", direct).programEnv.Origin
	for _, p := range frame.All() {
		t.Run(p.Name(), func(t *testing.T) {
			const each = 2000 // more than a socket buffer holds
			first, second := dial(t, address), dial(t, address)
			text := frame.Text{Hold: 2 * each}
			closed := dial(t, address) // the origin must not count the requests of a closed connection
			write(t, closed, p.AppendRequest(nil, 1, text))
			write(t, closed, p.AppendPing(nil, 2))
			readResponses(t, p, closed, 1)
			closed.Close()
			for _, conn := range []net.Conn{first, second} {
				var requests []byte
				for id := range uint64(each) {
					if conn == second && id == each-1 {
						break
					}
					requests = p.AppendRequest(requests, id, text)
				}
				write(t, conn, p.AppendPing(requests, 1<<20))
				if ids := readResponses(t, p, conn, 1); ids[0] != 1<<20 {
					t.Fatalf("got the response to request %d, want the response to the heartbeat", ids[0])
				}
			}
			write(t, second, p.AppendRequest(nil, each-1, text))
			for _, conn := range []net.Conn{first, second} {
				ids := readResponses(t, p, conn, each)
				for i, id := range ids {
					if id != uint64(i) {
						t.Fatalf("response %d belongs to request %d, want %d", i, id, i)
					}
				}
			}
		})
	}
}

func write(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// script returns the path of a new shell script.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weft")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnsupportedProgramIsSkipped verifies that a run measures the other programs if one does not
// support a protocol, and reports the missing one in every row.
func TestUnsupportedProgramIsSkipped(t *testing.T) {
	weft := script(t, "echo protocol is not supported yet >&2; exit 1")
	env := newTestEnvironment(t, "-bin", "weft="+weft, "-proxies", "weft,relay,direct", "-rows", "dubbo-16x1,rpc-idle,rpc-inflight",
		"-rounds", "1", "-seconds", "0.05", "-warmup", "0", "-patience", "0", "-half=false")
	report, err := env.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cells := report.Loads[0].Cells
	if cells[0].Note != "not supported" || len(cells[0].Rounds) != 0 || len(cells[1].Rounds) != 1 || len(cells[2].Rounds) != 1 {
		t.Errorf("the cells are %+v, %+v, %+v, want the first not supported and a round of the others", cells[0], cells[1], cells[2])
	}
	if len(report.Idle) != 1 || report.Idle[0].Note != "not supported" {
		t.Errorf("idle = %+v, want not supported", report.Idle)
	}
	if len(report.Inflight) != 4 || report.Inflight[0].Note != "not supported" || report.Inflight[1].Missing.Max != 0 || report.Inflight[1].Peak.Median <= 0 {
		t.Errorf("in flight = %+v, want weft not supported and all responses through the relay", report.Inflight)
	}
	skipped := slices.DeleteFunc(slices.Clone(report.Skipped), func(what string) bool { return !strings.Contains(what, "not supported") })
	if want := []string{"dubbo of weft: not supported", "bolt of weft: not supported"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
	checkUnmeasured(t, report)
	markdown := report.markdown()
	if n := strings.Count(markdown, "| not supported |"); n != 5 {
		t.Errorf("report.md contains \"not supported\" %d times, want 5:\n%s", n, markdown)
	}
}

// TestStartFailureEndsRun verifies that a failed start ends the run unless the protocol is not
// supported.
func TestStartFailureEndsRun(t *testing.T) {
	weft := script(t, "echo broken; exit 1")
	env := newTestEnvironment(t, "-bin", "weft="+weft, "-proxies", "weft", "-rows", "dubbo-16x1", "-patience", "0")
	if _, err := env.run(t.Context()); err == nil || !strings.Contains(err.Error(), "output: broken") {
		t.Errorf("error %v, want one with the program's output", err)
	}
}

// TestBurstTimeout verifies that a burst ends at its timeout with the number of responses.
func TestBurstTimeout(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", direct)
	p, err := frame.Find("dubbo")
	if err != nil {
		t.Fatal(err)
	}
	// The server responds only to the first request.
	address := acceptOne(t, func(conn net.Conn) {
		data := make([]byte, 64<<10)
		n, err := conn.Read(data)
		if err != nil {
			return
		}
		if _, f, err := p.Parse(data[:n]); err == nil {
			// The load may have closed the connection.
			_, _ = conn.Write(p.AppendResponse(nil, f.ID, f.Text))
		}
		for err == nil {
			_, err = conn.Read(data)
		}
	})
	result, err := env.load(t.Context(), load.Job{
		Address: address, Protocol: p.Name(), Connections: 1, Depth: 10, Burst: true, Measure: 200 * time.Millisecond,
	})
	if err != nil || result.Requests != 1 {
		t.Errorf("%d responses, %v, want 1", result.Requests, err)
	}
}

// acceptOne serves one connection with the function.
func acceptOne(t *testing.T, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return netip.MustParseAddrPort(listener.Addr().String())
}

func TestMissingResponsesMissTarget(t *testing.T) {
	for _, test := range []struct {
		missing, peak float64
		misses        int
	}{{0, 599, 0}, {1, 599, 1}, {0, 601, 1}} {
		result := inflightResult{Protocol: "bolt", Proxy: "weft", Missing: stat{Median: test.missing}, Peak: stat{Median: test.peak}}
		r := &report{wefts: []string{"weft"}, Inflight: []inflightResult{result}}
		r.fillVerdicts()
		if got := r.missedCount(); got != test.misses {
			t.Errorf("%v missing, %v MB: %d targets missed, want %d", test.missing, test.peak, got, test.misses)
		}
		if want := fmt.Sprintf("| %.0f | %.0f |", test.missing, test.peak); !strings.Contains(r.markdown(), want) {
			t.Errorf("report.md lacks %q:\n%s", want, r.markdown())
		}
	}
}

// TestIdleRPCConnections verifies that idle RPC connections can be opened and used. It uses the
// relay, which the rpc-idle row does not measure.
func TestIdleRPCConnections(t *testing.T) {
	env := newTestEnvironment(t, "-proxies", "relay", "-idle", "20")
	for _, p := range frame.All() {
		running, err := env.programEnv.Start(t.Context(), env.programs[0], p)
		if err != nil {
			t.Fatal(err)
		}
		conns, err := openConnections(t.Context(), running.Listen, 20)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for i, conn := range conns {
				if err := sendRequest(conn, p); err != nil {
					t.Errorf("%s, connection %d: %v", p.Name(), i, err)
				}
			}
		}
		for _, conn := range conns {
			conn.Close()
		}
		running.Stop()
	}
}
