package main

import (
	"fmt"
	"slices"

	"github.com/weft-proxy/weft/test/bench/frame"
	"github.com/weft-proxy/weft/test/bench/peer"
)

// row describes one load.
type row struct {
	name        string
	title       string
	protocol    *frame.Protocol // nil: HTTP
	http        peer.Sides      // versions of HTTP
	load        string          // protocol of the load for HTTP/2 and TLS; empty: HTTP/1.1, or protocol
	request     []byte          // of HTTP/1.1
	body        int             // of HTTP: bytes of a response body
	connections int
	depth       int  // of RPC and HTTP/2: requests in flight on each connection
	halfLoad    bool // latency is also measured at half load
	optional    bool // measured only if -rows names the row
	comparesXDS bool // only builds of Weft: configured by a file, and by a control plane
	targets     []target
}

// target is an upper bound of Weft's median: limit times the value of another program.
type target struct {
	metric   metric
	baseline string
	limit    float64 // 0: no target; the verdict reports only the ratio
}

// metric is the value of a cell that a target compares.
type metric int

const (
	cpuPerRequest metric = iota
	addedP50             // p50 minus p50 without a proxy
	halfP99              // p99 at half load
)

func (f metric) String() string {
	switch f {
	case cpuPerRequest:
		return "CPU per request"
	case addedP50:
		return "added p50"
	case halfP99:
		return "p99 at half load"
	}
	panic(fmt.Sprintf("bench: metric %d", int(f)))
}

// Rows that are not loads.
const (
	idleRow  = "idle"
	scaleRow = "scale"

	bootstrapScaleRow = "scale-bootstrap"

	rpcIdleRow  = "rpc-idle"
	inflightRow = "rpc-inflight"

	http2IdleRow    = "h2-idle"
	http2StreamsRow = "h2-streams"
)

// rows lists the loads with the targets of the project.
func rows() []row {
	small, large := get(1<<10), get(64<<10)
	load := func(name, title string, request []byte, body, connections int) row {
		return row{name: name, title: title, request: request, body: body, connections: connections}
	}
	first := load("1k-1", "GET 1 KB, 1 connection", small, 1<<10, 1)
	first.targets = []target{{cpuPerRequest, "nginx", 1.10}, {addedP50, "nginx", 1.10}}
	some := load("1k-16", "GET 1 KB, 16 connections", small, 1<<10, 16)
	some.targets = []target{{cpuPerRequest, "nginx", 1.15}, {cpuPerRequest, "haproxy", 1.00}}
	many := load("1k-64", "GET 1 KB, 64 connections", small, 1<<10, 64)
	many.targets = slices.Concat(some.targets, []target{{halfP99, "nginx", 1.1}, {halfP99, "haproxy", 1.1}, {halfP99, "envoy", 1.1}})
	many.halfLoad = true
	extra := load("1k-256", "GET 1 KB, 256 connections", small, 1<<10, 256)
	big := load("64k-64", "GET 64 KB, 64 connections", large, 64<<10, 64)
	big.targets = []target{{cpuPerRequest, "nginx", 1.10}}
	big.halfLoad = true
	post := load("post-64", "POST 1 KB, response 1 KB, 64 connections", post(1<<10), 1<<10, 64)
	post.optional = true
	list := []row{first, some, many, extra, big, post}
	return slices.Concat(list, []row{xdsRow()}, tlsRows(), []row{sidecarRow()}, http2Rows(), rpcRows())
}

// protocolGroup returns the protocol of the row, "" for HTTP/1.1. Rows of one protocol are measured
// together.
func (r row) protocolGroup() string {
	switch {
	case r.comparesXDS:
		return "HTTP/1.1, configured by a control plane"
	case r.protocol != nil:
		return r.protocol.Name()
	}
	return r.http.String()
}

// loadProtocol returns the protocol of the load, as load.Job names it.
func (r row) loadProtocol() string {
	if r.protocol != nil {
		return r.protocol.Name()
	}
	return r.load
}

// rpcRows lists the RPC loads. Calls and responses carry 1 KB.
func rpcRows() []row {
	const connections = 16
	var list []row
	for _, p := range frame.All() {
		for _, depth := range []int{1, 8, 64} {
			limit := 2.0
			if depth == 1 {
				limit = 1.25
			}
			list = append(list, row{
				name:        fmt.Sprintf("%s-%dx%d", p.Name(), connections, depth),
				title:       fmt.Sprintf("%s, calls of 1 KB, %d connections with %d in flight on each", p.Name(), connections, depth),
				protocol:    p,
				connections: connections,
				depth:       depth,
				halfLoad:    true,
				optional:    p.Name() == "boltv2",
				targets:     []target{{cpuPerRequest, "haproxy", limit}, {halfP99, direct, 2.0}},
			})
		}
	}
	return list
}

// rowNames returns every valid name of -rows.
func rowNames() []string {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return append(names, idleRow, scaleRow, bootstrapScaleRow, rpcIdleRow, inflightRow, http2IdleRow, http2StreamsRow)
}

func get(size int) []byte {
	return fmt.Appendf(nil, "GET /b/%d HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", size)
}

func post(size int) []byte {
	return fmt.Appendf(nil, "POST /b/%d HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n%s",
		size, size, make([]byte, size))
}
