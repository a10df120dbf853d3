package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/bench/process"
)

// idleResult is the memory that a program uses for idle connections.
type idleResult struct {
	Row         string         `json:"row"`
	Proxy       string         `json:"proxy"`
	Note        string         `json:"note,omitempty"` // reason if nothing was measured
	Connections int            `json:"connections"`
	Start       process.Memory `json:"start"`  // without connections, after one request
	Opened      process.Memory `json:"opened"` // with connections that have never been used
	Used        process.Memory `json:"used"`   // after one request on each of them
}

// These are the project's memory targets for HTTP/1.1 and RPC.
const (
	maxIdleMB    = 20
	maxKBPerConn = 4
)

func (r idleResult) verdicts() []verdict {
	single := func(v float64) stat { return stat{v, v, v} }
	limit := float64(maxKBPerConn)
	if r.Row == http2IdleRow {
		limit = maxKBPerHTTP2Conn
	}
	verdicts := []verdict{
		upperBoundVerdict(r.Row, r.Proxy, "RSS per connection, never used", single(r.perConnection(r.Opened)), limit, "KB"),
		upperBoundVerdict(r.Row, r.Proxy, "RSS per connection, used once", single(r.perConnection(r.Used)), limit, "KB"),
	}
	if r.Row == idleRow {
		process := upperBoundVerdict(r.Row, r.Proxy, "RSS of the idle process", single(float64(r.Start.Resident)/megabyte), maxIdleMB, "MB")
		verdicts = append([]verdict{process}, verdicts...)
	}
	if r.Note != "" {
		return markUnmeasured(verdicts)
	}
	return verdicts
}

// perConnection returns the resident memory per connection, in KB.
func (r idleResult) perConnection(m process.Memory) float64 {
	return (float64(m.Resident) - float64(r.Start.Resident)) / float64(r.Connections) / 1024
}

func idleMarkdown(results []idleResult) string {
	t := newTable("", "connections", "RSS idle MB", "PSS idle MB", "RSS opened MB", "RSS used MB", "KB each, never used", "KB each, used once")
	for _, r := range results {
		name := r.Proxy
		switch r.Row {
		case rpcIdleRow:
			name += ", RPC"
		case http2IdleRow:
			name += ", HTTP/2"
		}
		if r.Note != "" {
			t.row(name, r.Note)
			continue
		}
		mb := func(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/megabyte) }
		t.row(name, fmt.Sprint(r.Connections), mb(r.Start.Resident), mb(r.Start.Proportional), mb(r.Opened.Resident), mb(r.Used.Resident),
			fmt.Sprintf("%.2f", r.perConnection(r.Opened)), fmt.Sprintf("%.2f", r.perConnection(r.Used)))
	}
	return t.text.String()
}

// runIdle measures one program after another; each is started anew.
func (env *environment) runIdle(ctx context.Context) error {
	for _, p := range env.programs {
		if p.Name == "relay" {
			continue // the relay opens an origin connection for each client connection, so it is not comparable
		}
		if err := env.addIdle(ctx, idleRow, p, nil); err != nil {
			return err
		}
	}
	return nil
}

// runRPCIdle measures only the builds of Weft. The other programs are not comparable: they forward
// RPC as bytes and open an origin connection for each client connection.
func (env *environment) runRPCIdle(ctx context.Context) error {
	dubbo, err := frame.Find("dubbo")
	if err != nil {
		return err
	}
	for _, p := range env.programs {
		if !slices.Contains(env.options.wefts(), p.Name) {
			continue
		}
		if err := env.addIdle(ctx, rpcIdleRow, p, dubbo); err != nil {
			return err
		}
	}
	return nil
}

// addIdle measures the program and adds the result to the report.
func (env *environment) addIdle(ctx context.Context, row string, p peer.Program, protocol *frame.Protocol) error {
	r, err := env.idle(ctx, p, protocol)
	r.Row, r.Proxy = row, p.Name
	if env.skipIfUnsupported(err, p.Name, protocol.Name()) {
		r.Note, err = peer.ErrNotSupported.Error(), nil
	}
	if err != nil {
		return fmt.Errorf("row %s, %s: %w", row, p.Name, err)
	}
	env.report.Idle = append(env.report.Idle, r)
	if r.Note == "" {
		env.logf("%s  %-8s RSS %.1f MB, per connection %.2f KB, after one request %.2f KB", row, p.Name,
			float64(r.Start.Resident)/megabyte, r.perConnection(r.Opened), r.perConnection(r.Used))
	}
	return nil
}

// idle measures the program; a nil protocol means HTTP/1.1.
func (env *environment) idle(ctx context.Context, p peer.Program, protocol *frame.Protocol) (idleResult, error) {
	running, err := env.programEnv.Start(ctx, p, protocol)
	if err != nil {
		return idleResult{}, err
	}
	defer running.Stop()
	r := idleResult{Connections: env.options.idle}
	if r.Start, err = awaitStableMemory(ctx, running.PIDs); err != nil {
		return r, err
	}
	conns, err := openConnections(ctx, running.Listen, r.Connections)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	if err != nil {
		return r, err
	}
	if err := awaitOpenFiles(ctx, running.PIDs, r.Connections); err != nil {
		return r, err
	}
	if r.Opened, err = awaitStableMemory(ctx, running.PIDs); err != nil {
		return r, err
	}
	for i, conn := range conns {
		if err := sendRequest(conn, protocol); err != nil {
			return r, fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	r.Used, err = awaitStableMemory(ctx, running.PIDs)
	if err != nil {
		return r, err
	}
	// Verify that the program has not closed the connections.
	return r, awaitOpenFiles(ctx, running.PIDs, r.Connections)
}

// openConnections opens n connections from several addresses of 127.0.0.0/8: at most 20,000 from
// each.
func openConnections(ctx context.Context, address netip.AddrPort, n int) ([]net.Conn, error) {
	conns := make([]net.Conn, 0, n)
	for i := range n {
		local := net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/20000))}
		dialer := net.Dialer{LocalAddr: &local, Timeout: 10 * time.Second, KeepAlive: -1, Control: delayPortChoice}
		conn, err := dialer.DialContext(ctx, "tcp", address.String())
		if err != nil {
			return conns, fmt.Errorf("connection %d of %d: %w", i+1, n, err)
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// delayPortChoice delays the port choice of a bound socket until it connects. Then ports must be
// unique only per destination, and sockets in TIME_WAIT of the previous program do not block them.
func delayPortChoice(_, _ string, raw syscall.RawConn) error {
	var sockErr error
	err := raw.Control(func(fd uintptr) {
		sockErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	return errors.Join(err, sockErr)
}

// sendRequest sends one request on the connection and reads the complete response; a nil protocol
// means HTTP/1.1.
func sendRequest(conn net.Conn, protocol *frame.Protocol) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if protocol != nil {
		return peer.Call(conn, protocol)
	}
	if _, err := conn.Write(get(1 << 10)); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 2<<10), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read to the end, or the connection is not used again
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || n != 1<<10 || response.Close || strings.EqualFold(response.Header.Get("Connection"), "close") {
		return fmt.Errorf("the response is %s with %d bytes, close: %v; want 200 with 1024 bytes on an open connection", response.Status, n, response.Close)
	}
	return nil
}

// awaitOpenFiles waits until the processes hold at least n descriptors. It uses them as an estimate
// of the connections: a process has a few other descriptors.
func awaitOpenFiles(ctx context.Context, pids []int, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		open, err := process.OpenFiles(pids)
		if err != nil || open >= n {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d descriptors are open, want %d: %w", open, n, ctx.Err())
		}
	}
}

// awaitStableMemory waits until the resident memory has stayed within half a percent for twelve
// seconds, at most forty seconds, and returns it: programs release memory with a delay of some
// seconds.
func awaitStableMemory(ctx context.Context, pids []int) (process.Memory, error) {
	const stableTicks, maxTicks = 48, 160
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	last, err := process.ReadMemory(pids)
	if err != nil {
		return process.Memory{}, err
	}
	for stable, tick := 0, 0; stable < stableTicks && tick < maxTicks; tick++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return process.Memory{}, ctx.Err()
		}
		current, err := process.ReadMemory(pids)
		if err != nil {
			return process.Memory{}, err
		}
		stable++
		if math.Abs(float64(current.Resident)-float64(last.Resident)) > float64(last.Resident)/200 {
			stable, last = 0, current
		}
	}
	return process.ReadMemory(pids)
}
