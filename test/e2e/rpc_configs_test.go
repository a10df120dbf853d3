package e2e

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// startRPCUpstream starts an RPC server that responds to each request with the string that it
// received.
func startRPCUpstream(t *testing.T, p *frame.Protocol) (address string) {
	t.Helper()
	return startTCPServer(t, func(c net.Conn) {
		frames := frameReader{c: c, p: p}
		for {
			f, err := frames.next()
			if err != nil {
				return // the client closed the connection, or the test detects the error
			}
			var out []byte
			switch f.Kind {
			case frame.Request:
				out = p.AppendResponse(nil, f.ID, f.Text)
			case frame.Ping:
				out = p.AppendPong(nil, f.ID)
			case frame.Response, frame.Pong, frame.OneWay:
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
}

// frameReader reads frames from a connection.
type frameReader struct {
	c    net.Conn
	p    *frame.Protocol
	rest []byte
}

func (r *frameReader) next() (frame.Frame, error) {
	for {
		n, f, err := r.p.Parse(r.rest)
		if err != nil {
			return f, err
		}
		if n > 0 {
			f.Text = append([]byte(nil), f.Text...)
			r.rest = r.rest[n:]
			return f, nil
		}
		b := make([]byte, 4<<10)
		if n, err = r.c.Read(b); err != nil {
			return f, err
		}
		r.rest = append(r.rest, b[:n]...)
	}
}

// checkCalls sends several requests on one connection before it reads a response, and verifies that
// each gets its own response.
func checkCalls(t *testing.T, address string, p *frame.Protocol) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	const requests = 8
	var out []byte
	for id := range uint64(requests) {
		out = p.AppendRequest(out, 100+id, frame.Text{Token: id})
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for frames := (frameReader{c: c, p: p}); len(seen) < requests; {
		f, err := frames.next()
		if err != nil {
			t.Fatalf("%s: after %d of %d responses: %v", p.Name(), len(seen), requests, err)
		}
		if f.Kind != frame.Response {
			continue
		}
		if seen[f.ID] || !p.HasText(f.Text, frame.Text{Token: f.ID - 100}) {
			t.Errorf("%s: response %d does not match its request, or is a duplicate", p.Name(), f.ID)
		}
		seen[f.ID] = true
	}
}

func findProtocol(t *testing.T, name string) *frame.Protocol {
	t.Helper()
	p, err := frame.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dubboPair runs both files as a chain: client, sidecar, sidecar, server.
func dubboPair(t *testing.T) {
	p := findProtocol(t, "dubbo")
	server := loadExample(t, "dubbo_server.json")
	server.run("dubbo_server.json", "APP_ADDRESS="+startRPCUpstream(t, p))
	client := loadExample(t, "dubbo_client.json")
	client.replace(client.address("2646"), server.address("2646"))
	w := client.run("dubbo_client.json")
	checkCalls(t, client.address("2645"), p)
	w.stdout.await(t, 0, " dubbo/2 ") // access log
}

// dubboServerExample verifies that the port detects the protocol.
func dubboServerExample(t *testing.T) {
	p := findProtocol(t, "dubbo")
	e := loadExample(t, "dubbo_server.json")
	e.run("dubbo_server.json", "APP_ADDRESS="+startRPCUpstream(t, p))
	checkCalls(t, e.address("2646"), p)
	if got := sendRequest(t, newClient(t), http.MethodGet, "http://"+e.address("2646")+"/health", ""); got.status != 200 || got.body != "alive\n" {
		t.Errorf("GET /health: %d %q; want 200 \"alive\"", got.status, got.body)
	}
	if got := sendRequest(t, newClient(t), http.MethodGet, "http://"+e.address("2646")+"/", "", "service: a"); got.status != 501 {
		t.Errorf("HTTP for the provider: %d, want 501", got.status)
	}
}

func olderRPCExample(t *testing.T) {
	p := findProtocol(t, "dubbo")
	e := loadExample(t, "older_form_rpc.json")
	e.replace(e.address("2846"), startRPCUpstream(t, p))
	e.run("older_form_rpc.json")
	checkCalls(t, e.address("2845"), p)
}

// boltPair runs both files with both versions of the protocol.
func boltPair(t *testing.T) {
	for name, version := range map[string]string{"bolt": " bolt/1 ", "boltv2": " bolt/2 "} {
		t.Run(name, func(t *testing.T) {
			p := findProtocol(t, name)
			server := loadExample(t, "bolt_server.json")
			server.run("bolt_server.json", "APP_ADDRESS="+startRPCUpstream(t, p))
			client := loadExample(t, "bolt_client.json")
			client.replace(client.address("2746"), server.address("2746"))
			canary := startRPCUpstream(t, p)
			client.replace(client.address("2747"), canary)
			w := client.run("bolt_client.json")
			checkCalls(t, client.address("2745"), p)
			w.stdout.await(t, 0, version) // access log
			if log := w.stdout.String(); strings.Contains(log, canary) {
				t.Errorf("calls of version 1.0 went to the canary: %s", log)
			}
			checkCallVersion2(t, client.address("2745"), p)
			w.stdout.await(t, 0, canary)
		})
	}
}

// checkCallVersion2 calls version 2.0 of the service that checkCalls calls.
func checkCallVersion2(t *testing.T, address string, p *frame.Protocol) {
	t.Helper()
	request := p.AppendRequest(nil, 7, frame.Text{Token: 7})
	version2 := bytes.ReplaceAll(request, []byte("EchoService:1.0"), []byte("EchoService:2.0"))
	if bytes.Equal(version2, request) {
		t.Fatalf("%s: %q names no version", p.Name(), request)
	}
	if p.Name() == "boltv2" { // its frames end with a checksum
		end := len(version2) - crc32.Size
		version2 = binary.BigEndian.AppendUint32(version2[:end], crc32.ChecksumIEEE(version2[:end]))
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(version2); err != nil {
		t.Fatal(err)
	}
	frames := frameReader{c: c, p: p}
	if f, err := frames.next(); err != nil || f.Kind != frame.Response || f.ID != 7 || !p.HasText(f.Text, frame.Text{Token: 7}) {
		t.Errorf("%s: response to version 2.0: %+v, %v; want a response with id 7 and its text", p.Name(), f, err)
	}
}

// boltServerExample verifies that bytes of an unknown protocol reach the upstream.
func boltServerExample(t *testing.T) {
	e := loadExample(t, "bolt_server.json")
	e.run("bolt_server.json", "APP_ADDRESS="+startTCPServer(t, func(c net.Conn) { _, _ = io.Copy(c, c) }))
	c, err := net.Dial("tcp", e.address("2746"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	const text = "\x16\x03\x01 is an unknown protocol"
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Errorf("echo %q, %v; want %q", got, err, text)
	}
}
