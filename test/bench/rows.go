package main

import "fmt"

// row is one kind of load.
type row struct {
	name        string
	title       string
	request     []byte
	body        int // bytes of the answers
	connections int
	half        bool // latency is measured at half load as well
	targets     []target
}

// target is what Weft's median is held to: at most limit times that of another
// program.
type target struct {
	figure  figure
	against string
	limit   float64
}

// figure says what of a cell is compared.
type figure int

const (
	cpuPerRequest figure = iota
	addedP50             // p50 less that without a proxy
)

func (f figure) String() string {
	switch f {
	case cpuPerRequest:
		return "CPU per request"
	case addedP50:
		return "added p50"
	}
	panic(fmt.Sprintf("bench: figure %d", int(f)))
}

// Rows that are no load.
const (
	idleRow  = "idle"
	scaleRow = "scale"
)

// rows lists the loads. The targets are those of the project.
func rows() []row {
	small, large := get(1<<10), get(64<<10)
	load := func(name, title string, request []byte, body, connections int) row {
		return row{name: name, title: title, request: request, body: body, connections: connections}
	}
	one := load("1k-1", "GET 1 KB, 1 connection", small, 1<<10, 1)
	one.targets = []target{{cpuPerRequest, "nginx", 1.10}, {addedP50, "nginx", 1.10}}
	some := load("1k-16", "GET 1 KB, 16 connections", small, 1<<10, 16)
	some.targets = []target{{cpuPerRequest, "nginx", 1.15}, {cpuPerRequest, "haproxy", 1.00}}
	many := load("1k-64", "GET 1 KB, 64 connections", small, 1<<10, 64)
	many.targets = some.targets
	many.half = true
	more := load("1k-256", "GET 1 KB, 256 connections", small, 1<<10, 256)
	big := load("64k-64", "GET 64 KB, 64 connections", large, 64<<10, 64)
	big.targets = []target{{cpuPerRequest, "nginx", 1.10}}
	big.half = true
	post := load("post-64", "POST 1 KB, answer 1 KB, 64 connections", post(1<<10), 1<<10, 64)
	return []row{one, some, many, more, big, post}
}

// rowNames returns everything that -rows may name.
func rowNames() []string {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return append(names, idleRow, scaleRow)
}

func get(size int) []byte {
	return fmt.Appendf(nil, "GET /b/%d HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", size)
}

func post(size int) []byte {
	return fmt.Appendf(nil, "POST /b/%d HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n%s",
		size, size, make([]byte, size))
}
