package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// These constants belong to the Dubbo protocol. The tests use a subset of Hessian 2: ASCII strings
// of less than 1024 bytes, and maps of such strings.
const (
	dubboHeadSize      = 16
	dubboTwoWay        = 0xc2 // a request that expects a response, in Hessian 2
	dubboResponseFlags = 0x02
	dubboOK            = 20
	dubboTimeout       = 30
	dubboInactive      = 35
	dubboNotFound      = 60
	dubboErred         = 80
	dubboExhausted     = 100
)

func dubboFrame(flags, status byte, id uint64, body []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0xda, 0xbb, flags, status}, id)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

func appendString(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, byte(len(s))), s...)
	}
	return append(append(b, 0x30+byte(len(s)>>8), byte(len(s))), s...)
}

// readText decodes the string at the start of b; ok reports whether there is one.
func readText(b []byte) (s string, rest []byte, ok bool) {
	var n int
	switch {
	case len(b) >= 1 && b[0] < 32:
		n, b = int(b[0]), b[1:]
	case len(b) >= 2 && 0x30 <= b[0] && b[0] < 0x34:
		n, b = int(b[0]-0x30)<<8|int(b[1]), b[2:]
	default:
		return "", b, false
	}
	if len(b) < n {
		return "", b, false
	}
	return string(b[:n]), b[n:], true
}

// invocation is a call of a method without arguments.
type invocation struct {
	service, method, version string
	attachments              []string // as "name: value"
}

func (inv invocation) frame(id uint64) []byte {
	var body []byte
	for _, s := range []string{"2.0.2", inv.service, inv.version, inv.method, ""} {
		body = appendString(body, s)
	}
	body = append(body, 'H')
	for _, a := range inv.attachments {
		name, value, _ := strings.Cut(a, ": ")
		body = appendString(appendString(body, name), value)
	}
	return dubboFrame(dubboTwoWay, 0, id, append(body, 'Z'))
}

// readDubbo reads the next frame that is not a heartbeat.
func readDubbo(r *bufio.Reader) ([]byte, error) {
	for {
		head, err := r.Peek(dubboHeadSize)
		if err != nil {
			return nil, err
		}
		frame := make([]byte, dubboHeadSize+binary.BigEndian.Uint32(head[12:]))
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, err
		}
		if frame[2]&0x20 == 0 {
			return frame, nil
		}
	}
}

func dubboID(frame []byte) uint64 { return binary.BigEndian.Uint64(frame[4:]) }

// provider is a Dubbo provider that responds with its name.
type provider struct {
	address string
	calls   atomic.Int64
}

// Results of the function response of startProvider for calls that get no response.
const (
	noResponse      = 0
	closeConnection = 1
)

// startProvider starts a provider. response returns the status of the response to call number n, or
// noResponse or closeConnection. The first call has the number 1. If response is nil, every call
// succeeds.
func startProvider(t *testing.T, name string, response func(frame []byte, n int64) byte) *provider {
	t.Helper()
	p := new(provider)
	p.address = startTCPServer(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			frame, err := readDubbo(r)
			if err != nil {
				return // the client disconnected
			}
			n, status := p.calls.Add(1), byte(dubboOK)
			if response != nil {
				status = response(frame, n)
			}
			var body []byte
			switch status {
			case noResponse:
				continue
			case closeConnection:
				return
			case dubboOK:
				body = []byte{0x91} // the response is a value
			}
			if _, err := c.Write(dubboFrame(dubboResponseFlags, status, dubboID(frame), appendString(body, name))); err != nil {
				return
			}
		}
	})
	return p
}

// consumer is a Dubbo client with one connection.
type consumer struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	next uint64
}

func newConsumer(t *testing.T, address string) *consumer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(4 * waitTimeout))
	return &consumer{t: t, conn: conn, r: bufio.NewReader(conn)}
}

// send sends calls in one write. The IDs on a connection start at 1.
func (c *consumer) send(calls ...invocation) {
	c.t.Helper()
	var b []byte
	for _, inv := range calls {
		c.next++
		b = append(b, inv.frame(c.next)...)
	}
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// dubboResponse is the response to a call. text is the value if the status is dubboOK, otherwise
// the error.
type dubboResponse struct {
	id     uint64
	status byte
	text   string
}

// receive reads the next response.
func (c *consumer) receive() dubboResponse {
	c.t.Helper()
	frame, err := readDubbo(c.r)
	if err != nil {
		c.t.Fatalf("no response: %v", err)
	}
	resp := dubboResponse{id: dubboID(frame), status: frame[3]}
	body := frame[dubboHeadSize:]
	if resp.status == dubboOK && len(body) > 0 {
		body = body[1:] // skip the flag of a value
	}
	text, rest, ok := readText(body)
	if !ok || len(rest) > 0 {
		c.t.Fatalf("the body of a response is %q, want one text", frame[dubboHeadSize:])
	}
	resp.text = text
	return resp
}

// call sends one call and returns its response.
func (c *consumer) call(inv invocation) dubboResponse {
	c.t.Helper()
	c.send(inv)
	resp := c.receive()
	if resp.id != c.next {
		c.t.Fatalf("response %d to call %d, want %d", resp.id, c.next, c.next)
	}
	return resp
}

// listenDubbo returns a Dubbo listener whose route table has the same name.
func listenDubbo(name, address string, extra ...object) object {
	return networkListener(name, address, object{"type": "proxy", "config": object{
		"downstream_protocol": "dubbo", "upstream_protocol": "dubbo", "router_config_name": name}}, extra...)
}

// routeWhen returns a route to cluster for requests that match all fields, each "name: value" or
// "name~expression".
func routeWhen(cluster string, fields ...string) object {
	headers := list{}
	for _, f := range fields {
		if name, value, ok := strings.Cut(f, ": "); ok {
			headers = append(headers, object{"name": name, "value": value})
		} else {
			name, value, _ := strings.Cut(f, "~")
			headers = append(headers, object{"name": name, "value": value, "regex": true})
		}
	}
	return object{"match": object{"headers": headers}, "route": object{"cluster_name": cluster}}
}

// withAction returns route with more keys in its action.
func withAction(route, extra object) object {
	return route.with(object{"route": route["route"].(object).with(extra)})
}

// rpcProxy runs a Dubbo proxy with routes to providers. Each provider is a cluster, named by its
// key.
func rpcProxy(t *testing.T, providers map[string]*provider, routes ...object) (address string, w *weft) {
	t.Helper()
	address = freeAddress()
	clusters := list{}
	for name, p := range providers {
		clusters = append(clusters, cluster(name, nil, p.address))
	}
	w = startWeft(t, setup{
		listeners: list{listenDubbo("front", address)},
		tables:    list{routeTable("front", routes...)},
		clusters:  clusters,
	}.config())
	return address, w
}

// diffIgnoringID describes how two frames differ other than by ID, or returns "" if they do not.
func diffIgnoringID(got, want []byte) string {
	a, b := bytes.Clone(got), bytes.Clone(want)
	copy(a[4:12], b[4:12])
	if bytes.Equal(a, b) {
		return ""
	}
	return fmt.Sprintf("got\n%q, want\n%q", a, b)
}
