package http1

import (
	"context"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
)

// echoUpgrader is an engine that takes over connections. It reports the upgrade request and echoes
// the bytes that follow.
type echoUpgrader struct {
	rejects  bool
	upgrades chan string // "GET /path body settings" for each call of Upgrade
}

func (e *echoUpgrader) Upgrade(_ *network.Conn, u stream.Upgrade) network.Handler {
	e.upgrades <- strings.Join([]string{u.Request.Method, u.Request.Path, string(u.Body), u.Settings}, " ")
	if e.rejects {
		return nil
	}
	return e
}

func (e *echoUpgrader) ServeConn(_ context.Context, conn *network.Conn) error {
	b := make([]byte, len("trailing"))
	for read := 0; read < len(b); {
		n, err := conn.Read(b[read:])
		if read += n; err != nil {
			return err
		}
	}
	_, err := conn.Write(append([]byte("echo: "), b...))
	return err
}

const h2cHeaders = "Host: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"

func TestUpgradeToHTTP2(t *testing.T) { // RFC 7540 3.2
	for name, test := range map[string]struct{ request, want string }{
		"without a body":        {"GET /a HTTP/1.1\r\n" + h2cHeaders + "\r\n", "GET /a  AAMAAABk"},
		"with a body":           {"POST /a HTTP/1.1\r\n" + h2cHeaders + "Content-Length: 5\r\n\r\nhello", "POST /a hello AAMAAABk"},
		"after another request": {"GET /first HTTP/1.1\r\nHost: h\r\n\r\nGET /a HTTP/1.1\r\n" + h2cHeaders + "\r\n", "GET /a  AAMAAABk"},
	} {
		t.Run(name, func(t *testing.T) {
			upgrader := &echoUpgrader{upgrades: make(chan string, 1)}
			proxy := newTestProxy(t, func(o *stream.ServerOptions) { o.H2C = upgrader })
			proxy.serve(func(c *peer) {
				if c.head() != "" {
					c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n")
				}
				c.head()
			})
			c := proxy.dial()
			defer c.Close()
			c.send(test.request + "trail")
			if name == "after another request" {
				c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n")
			}
			c.expect("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			c.send("ing")
			c.expect("echo: trailing")
			if got := c.rest(); got != "" {
				t.Errorf("then got %q, want EOF", got)
			}
			if got := <-upgrader.upgrades; got != test.want {
				t.Errorf("Upgrade got %q, want %q", got, test.want)
			}
		})
	}
}

func TestIneligibleUpgradeIsServedAsHTTP1(t *testing.T) { // RFC 9110 7.8
	const large = 40 << 10 // larger than maxInlineBody, so the engine does not wait for the complete body
	for name, test := range map[string]struct {
		headers, body  string
		noH2C, rejects bool
	}{
		"listener without HTTP/2":       {headers: h2cHeaders, noH2C: true},
		"rejected by the HTTP/2 engine": {headers: h2cHeaders, rejects: true},
		"Connection: close":             {headers: h2cHeaders + "Connection: close\r\n"},
		"large body":                    {headers: h2cHeaders + "Content-Length: 40960\r\n", body: strings.Repeat("x", large)},
		"chunked body":                  {headers: h2cHeaders + "Transfer-Encoding: chunked\r\n", body: "1\r\nx\r\n0\r\n\r\n"},
		"expects 100-continue":          {headers: h2cHeaders + "Expect: 100-continue\r\nContent-Length: 1\r\n", body: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			upgrader := &echoUpgrader{rejects: test.rejects, upgrades: make(chan string, 1)}
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				if !test.noH2C {
					o.H2C = upgrader
				}
			})
			proxy.serve(func(c *peer) {
				if head := c.head(); strings.Contains(strings.ToLower(head), "upgrade") || strings.Contains(head, "HTTP2-Settings") {
					t.Errorf("the host got %q, want no upgrade headers", head)
				}
				c.read(len(test.body))
				c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			})
			c := proxy.dial()
			defer c.Close()
			c.send("POST / HTTP/1.1\r\n" + test.headers + "\r\n" + test.body)
			if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") {
				t.Errorf("response = %q, want 200", got)
			}
			if called := len(upgrader.upgrades) > 0; called != test.rejects {
				t.Errorf("Upgrade called: %v, want %v", called, test.rejects)
			}
		})
	}
}
