package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/weft-proxy/weft/test/bench/h2"
	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/bench/process"
)

// These are the project's memory targets for HTTP/2 and the sizes of http2StreamsRow.
// streamsPerConnection idle streams and one active stream reach HAProxy's default limit of 100. The
// row opens streamsPerIdleOption times as many streams in total as the option -idle specifies.
const (
	maxKBPerHTTP2Conn    = 10
	maxKBPerIdleStream   = 6
	streamsPerConnection = 99
	streamsPerIdleOption = 10
)

// streamsResult is the memory that a program uses for streams that are open on both sides and idle.
type streamsResult struct {
	Proxy   string         `json:"proxy"`
	Note    string         `json:"note,omitempty"` // reason if nothing was measured
	Streams int            `json:"streams"`
	Before  process.Memory `json:"before"` // with the connections, each used once
	Open    process.Memory `json:"open"`
}

// perStream returns the resident memory per stream, in KB.
func (r streamsResult) perStream() float64 {
	return (float64(r.Open.Resident) - float64(r.Before.Resident)) / float64(r.Streams) / 1024
}

func (r streamsResult) verdicts() []verdict {
	v := r.perStream()
	verdicts := []verdict{upperBoundVerdict(http2StreamsRow, r.Proxy, "RSS per stream", stat{v, v, v}, maxKBPerIdleStream, "KB")}
	if r.Note != "" {
		return markUnmeasured(verdicts)
	}
	return verdicts
}

func streamsMarkdown(results []streamsResult) string {
	t := newTable("", "streams", "RSS before MB", "RSS open MB", "KB each")
	for _, r := range results {
		if r.Note != "" {
			t.row(r.Proxy, r.Note)
			continue
		}
		mb := func(m process.Memory) string { return fmt.Sprintf("%.1f", float64(m.Resident)/megabyte) }
		t.row(r.Proxy, fmt.Sprint(r.Streams), mb(r.Before), mb(r.Open), fmt.Sprintf("%.2f", r.perStream()))
	}
	return t.text.String()
}

// runHTTP2Idle measures one program after another; each is started anew.
func (env *environment) runHTTP2Idle(ctx context.Context) error {
	for _, p := range env.programs {
		if p.Name == "relay" {
			continue // the relay opens an origin connection for each client connection, so it is not comparable
		}
		r, err := env.http2Idle(ctx, p)
		r.Row, r.Proxy = http2IdleRow, p.Name
		if env.skipIfUnsupported(err, p.Name, "HTTP/2") {
			r.Note, err = peer.ErrNotSupported.Error(), nil
		}
		if err != nil {
			return fmt.Errorf("row %s, %s: %w", http2IdleRow, p.Name, err)
		}
		env.report.Idle = append(env.report.Idle, r)
		if r.Note == "" {
			env.logf("%s  %-8s per connection %.2f KB, after one request %.2f KB", http2IdleRow, p.Name, r.perConnection(r.Opened), r.perConnection(r.Used))
		}
	}
	return nil
}

func (env *environment) http2Idle(ctx context.Context, p peer.Program) (idleResult, error) {
	r := idleResult{Connections: env.options.idle}
	running, err := env.programEnv.StartHTTP(ctx, p, peer.Sides{ClientHTTP2: true, OriginHTTP2: true})
	if err != nil {
		return r, err
	}
	defer running.Stop()
	if r.Start, err = awaitStableMemory(ctx, running.PIDs); err != nil {
		return r, err
	}
	clients, closeAll, err := openHTTP2(ctx, running, r.Connections)
	defer closeAll()
	if err != nil {
		return r, err
	}
	if r.Opened, err = awaitStableMemory(ctx, running.PIDs); err != nil {
		return r, err
	}
	if err := requestAll(clients); err != nil {
		return r, err
	}
	if r.Used, err = awaitStableMemory(ctx, running.PIDs); err != nil {
		return r, err
	}
	// Verify that the program has not closed the connections.
	return r, awaitOpenFiles(ctx, running.PIDs, r.Connections)
}

// openHTTP2 opens n HTTP/2 connections and waits for the server's settings on each. closeAll closes
// the open connections, also after an error.
func openHTTP2(ctx context.Context, running *peer.RunningProgram, n int) (clients []*h2.Client, closeAll func(), err error) {
	var conns []net.Conn
	closeAll = func() {
		for _, conn := range conns {
			_ = conn.Close() // all results have been read
		}
	}
	if conns, err = openConnections(ctx, running.Listen, n); err != nil {
		return nil, closeAll, err
	}
	for i, conn := range conns {
		if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			return nil, closeAll, err
		}
		c, err := h2.Connect(conn)
		if err != nil {
			return nil, closeAll, fmt.Errorf("connection %d: %w", i+1, err)
		}
		clients = append(clients, c)
	}
	return clients, closeAll, awaitOpenFiles(ctx, running.PIDs, n)
}

// requestAll requests 1 KB on each connection.
func requestAll(clients []*h2.Client) error {
	for i, c := range clients {
		if err := c.Expect("/b/1024", 0, 1<<10); err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	return nil
}

// runHTTP2Streams measures one program after another; each is started anew.
func (env *environment) runHTTP2Streams(ctx context.Context) error {
	for _, p := range env.programs {
		if p.Name == "relay" || p.Name == "nginx" {
			continue // relay does not implement streams; nginx opens an origin connection for each stream
		}
		r, err := env.http2Streams(ctx, p)
		r.Proxy = p.Name
		if env.skipIfUnsupported(err, p.Name, "gRPC") {
			r.Note, err = peer.ErrNotSupported.Error(), nil
		}
		if err != nil {
			return fmt.Errorf("row %s, %s: %w", http2StreamsRow, p.Name, err)
		}
		env.report.Streams = append(env.report.Streams, r)
		if r.Note == "" {
			env.logf("%s  %-8s %d streams, %.2f KB each", http2StreamsRow, p.Name, r.Streams, r.perStream())
		}
	}
	return nil
}

func (env *environment) http2Streams(ctx context.Context, p peer.Program) (streamsResult, error) {
	r := streamsResult{Streams: env.options.idle * streamsPerIdleOption}
	running, err := env.programEnv.StartHTTP(ctx, p, peer.Sides{ClientHTTP2: true, OriginHTTP2: true, GRPC: true})
	if err != nil {
		return r, err
	}
	defer running.Stop()
	clients, closeAll, err := openHTTP2(ctx, running, (r.Streams+streamsPerConnection-1)/streamsPerConnection)
	defer closeAll()
	if err != nil {
		return r, err
	}
	for i, c := range clients {
		if err := c.Expect(h2.Unary, 1, 5+1); err != nil {
			return r, fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	if r.Before, err = awaitStableMemory(ctx, running.PIDs); err != nil {
		return r, err
	}
	for i, c := range clients {
		if err := c.Hold(min(streamsPerConnection, r.Streams-i*streamsPerConnection)); err != nil {
			return r, fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	if r.Open, err = awaitStableMemory(ctx, running.PIDs); err != nil {
		return r, err
	}
	// Verify that the connections still serve requests while the streams are idle.
	for i, c := range clients {
		if err := c.Expect(h2.Unary, 1, 5+1); err != nil {
			return r, fmt.Errorf("connection %d next to idle streams: %w", i+1, err)
		}
	}
	return r, nil
}
