package origin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455, section 4.2.2
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// connection is a connection that an origin has accepted. One goroutine serves it.
type connection struct {
	net.Conn
	set    *Set
	origin string
	proxy  string // the header of the PROXY protocol
	tls    string // server name, ALPN and version
}

// errClosing ends a connection.
var errClosing = errors.New("the origin closes the connection")

// http2Preface is the beginning of the client's preface, up to the first empty line.
const http2Preface = "PRI * HTTP/2.0\r\n\r\n"

func (c *connection) serveHTTP1() { c.serveHTTP1From(bufio.NewReader(c)) }

func (c *connection) serveHTTP1From(r *bufio.Reader) {
	for {
		head, err := wire.ReadHead(r)
		if err != nil {
			return
		}
		if string(head) == http2Preface {
			c.serveFrames(r)
			return
		}
		if err := c.exchange(r, head); err != nil {
			return
		}
	}
}

// servePROXY reads a header of the PROXY protocol, version 1 or 2, and then serves HTTP/1.1.
func (c *connection) servePROXY() {
	r := bufio.NewReader(c)
	first := make([]byte, 6)
	if _, err := io.ReadFull(r, first); err != nil {
		return
	}
	switch string(first) {
	case "PROXY ":
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		c.proxy = strings.TrimSpace(string(first) + line)
	case "\r\n\r\n\x00\r":
		head := make([]byte, 10)
		if _, err := io.ReadFull(r, head); err != nil {
			return
		}
		body := make([]byte, int(head[8])<<8|int(head[9]))
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		c.proxy = fmt.Sprintf("v2 %02x %02x %s", head[6], head[7], hex.EncodeToString(body[:min(8, len(body))]))
	default:
		c.proxy = "none " + hex.EncodeToString(first)
	}
	c.serveHTTP1From(r)
}

// serveTLS serves HTTP/1.1, or HTTP/2 if ALPN selects it.
func (c *connection) serveTLS(certificate tls.Certificate, protocols ...string) {
	conn := tls.Server(c.Conn, &tls.Config{
		Certificates: []tls.Certificate{certificate}, NextProtos: protocols, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
	})
	if err := conn.HandshakeContext(context.Background()); err != nil {
		return
	}
	state := conn.ConnectionState()
	c.Conn = conn
	c.tls = fmt.Sprintf("sni=%s alpn=%s v=%s", state.ServerName, state.NegotiatedProtocol, tls.VersionName(state.Version))
	if len(state.PeerCertificates) > 0 {
		c.tls += " client=" + state.PeerCertificates[0].Subject.CommonName
	}
	if state.NegotiatedProtocol == "h2" {
		c.serveHTTP2()
		return
	}
	c.serveHTTP1()
}

// exchange reads the rest of a request and responds. An error ends the connection.
func (c *connection) exchange(r *bufio.Reader, head []byte) error {
	line, fields := wire.ParseHead(head)
	record := &Record{Origin: c.origin, Line: line, Fields: fields, Proxy: c.proxy, TLS: c.tls}
	d, err := parseDirectives(fields, c.origin, c.set.record(record))
	if err != nil {
		return err
	}
	if expect, _ := wire.Get(fields, "expect"); expect == "100-continue" && !d.no100 {
		c.set.update(func() { record.Continued = true })
		if _, err := io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return err
		}
	}
	if d.outcome == resetImmediately {
		return c.reset()
	}
	if head := tunnelResponse(line, fields, d); head != "" {
		return c.echo(r, head, func(b []byte) { record.Body = append(record.Body, b...) })
	}
	err = c.readBody(r, record)
	if err != nil {
		return err
	}
	method, _, _ := strings.Cut(line, " ")
	switch d.outcome {
	case resetConn, resetImmediately:
		return c.reset()
	case closeConn:
		return errClosing
	case hang:
		_, err := r.ReadByte()
		return errors.Join(err, errClosing)
	case respond:
	}
	return c.respond(d, method)
}

// tunnelResponse returns the response that begins a tunnel, or "".
func tunnelResponse(line string, fields []wire.Field, d directives) string {
	if strings.HasPrefix(line, "CONNECT ") {
		return "HTTP/1.1 200 OK\r\n\r\n"
	}
	upgrade, _ := wire.Get(fields, "upgrade")
	connection, _ := wire.Get(fields, "connection")
	if upgrade == "" || d.noUpgrade || !strings.Contains(strings.ToLower(connection), "upgrade") {
		return ""
	}
	key, _ := wire.Get(fields, "sec-websocket-key")
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455
	return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + upgrade + "\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
}

// echo sends greeting, and then returns each received piece with the prefix "echo:". It calls keep
// with each piece.
func (c *connection) echo(r io.Reader, greeting string, keep func([]byte)) error {
	if _, err := io.WriteString(c, greeting); err != nil {
		return err
	}
	piece := make([]byte, 64<<10)
	for {
		n, err := r.Read(piece)
		if err != nil {
			return err
		}
		c.set.update(func() { keep(piece[:n]) })
		if _, err := c.Write(append([]byte("echo:"), piece[:n]...)); err != nil {
			return err
		}
	}
}

// readBody reads the body of a request into its record. A body with a length appears there as it
// arrives.
func (c *connection) readBody(r *bufio.Reader, record *Record) error {
	if coding, _ := wire.Get(record.Fields, "transfer-encoding"); strings.Contains(coding, "chunked") {
		body, trailers, err := wire.ReadChunked(r)
		c.set.update(func() { record.Body, record.Trailers = body, trailers })
		return err
	}
	length, found := wire.Get(record.Fields, "content-length")
	if !found {
		return nil
	}
	n, err := strconv.Atoi(length)
	if err != nil {
		return err
	}
	piece := make([]byte, 64<<10)
	for n > 0 {
		size, err := r.Read(piece[:min(n, len(piece))])
		c.set.update(func() { record.Body = append(record.Body, piece[:size]...) })
		if err != nil {
			return err
		}
		n -= size
	}
	return nil
}

// respond sends the response that the directives describe.
func (c *connection) respond(d directives, method string) error {
	time.Sleep(d.delay)
	if d.early {
		if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := c.Write(d.appendHead(nil)); err != nil {
		return err
	}
	if !d.hasNoBody(method) {
		if err := c.sendBody(d); err != nil {
			return err
		}
	}
	if d.closing {
		return errClosing
	}
	return nil
}

// appendHead appends the head of the response.
func (d *directives) appendHead(b []byte) []byte {
	reason := "Status"
	if d.status == 200 {
		reason = "OK"
	}
	b = fmt.Appendf(b, "HTTP/1.1 %d %s\r\n", d.status, reason)
	for _, f := range d.fields {
		b = fmt.Appendf(b, "%s: %s\r\n", f.Name, f.Value)
	}
	if _, found := wire.Get(d.fields, "content-type"); !found && !d.noContentType {
		b = append(b, "Content-Type: text/plain\r\n"...)
	}
	if d.closing && !d.untilClose {
		b = append(b, "Connection: close\r\n"...)
	}
	switch {
	case d.untilClose:
	case d.chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case d.status != 204:
		b = fmt.Appendf(b, "Content-Length: %d\r\n", len(d.body))
	}
	if len(d.trailers) > 0 {
		b = append(b, "Trailer: "...)
		for i, f := range d.trailers {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, f.Name...)
		}
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

func (c *connection) sendBody(d directives) error {
	if d.bodyDelay >= 0 {
		if d.chunked {
			if _, err := io.WriteString(c, "1\r\n!\r\n"); err != nil {
				return err
			}
		}
		time.Sleep(d.bodyDelay)
	}
	body := d.body
	if d.cut >= 0 {
		body = body[:min(d.cut, len(body))]
	}
	var out bytes.Buffer
	if d.chunked && !d.untilClose {
		if len(body) > 0 {
			_, _ = fmt.Fprintf(&out, "%x\r\n%s\r\n", len(body), body) // writes to memory do not fail
		}
		if d.cut < 0 {
			_, _ = out.WriteString("0\r\n")
			for _, f := range d.trailers {
				_, _ = fmt.Fprintf(&out, "%s: %s\r\n", f.Name, f.Value)
			}
			_, _ = out.WriteString("\r\n")
		}
	} else {
		_, _ = out.Write(body)
	}
	if _, err := c.Write(out.Bytes()); err != nil || d.cut < 0 {
		return err
	}
	time.Sleep(30 * time.Millisecond) // the proxy receives the bytes before the reset
	return c.reset()
}

// reset closes the connection with a TCP reset.
func (c *connection) reset() error {
	conn := c.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			return err
		}
	}
	return errClosing // Set.remove closes the connection
}
