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
	refuses bool
	seen    chan string // "GET /path body settings" for each call of Upgrade
}

func (n *echoUpgrader) Upgrade(_ *network.Conn, u stream.Upgrade) network.Handler {
	n.seen <- strings.Join([]string{u.Request.Method, u.Request.Path, string(u.Body), u.Settings}, " ")
	if n.refuses {
		return nil
	}
	return n
}

func (n *echoUpgrader) ServeConn(_ context.Context, conn *network.Conn) error {
	b := make([]byte, len("behind"))
	for read := 0; read < len(b); {
		m, err := conn.Read(b[read:])
		if read += m; err != nil {
			return err
		}
	}
	_, err := conn.Write(append([]byte("next got "), b...))
	return err
}

const askH2C = "Host: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"

func TestUpgradeToHTTP2(t *testing.T) { // RFC 7540 3.2
	for name, test := range map[string]struct{ request, seen string }{
		"without a body":        {"GET /a HTTP/1.1\r\n" + askH2C + "\r\n", "GET /a  AAMAAABk"},
		"with a body":           {"POST /a HTTP/1.1\r\n" + askH2C + "Content-Length: 5\r\n\r\nhello", "POST /a hello AAMAAABk"},
		"after another request": {"GET /own HTTP/1.1\r\nHost: h\r\n\r\nGET /a HTTP/1.1\r\n" + askH2C + "\r\n", "GET /a  AAMAAABk"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &echoUpgrader{seen: make(chan string, 1)}
			b := newTestProxy(t, func(o *stream.ServerOptions) { o.H2C = n })
			b.serve(func(c *peer) {
				if c.head() != "" {
					c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n")
				}
				c.head()
			})
			c := b.dial()
			defer c.Close()
			c.send(test.request + "beh")
			if name == "after another request" {
				c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n")
			}
			c.expect("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			c.send("ind")
			c.expect("next got behind")
			if got := c.rest(); got != "" {
				t.Errorf("then got %q, want EOF", got)
			}
			if got := <-n.seen; got != test.seen {
				t.Errorf("Upgrade got %q, want %q", got, test.seen)
			}
		})
	}
}

func TestIneligibleUpgradeIsServedAsHTTP1(t *testing.T) { // RFC 9110 7.8
	const large = 40 << 10 // larger than the engine waits for
	for name, test := range map[string]struct {
		request, content string
		none, refuses    bool
	}{
		"listener without HTTP/2":       {request: askH2C, none: true},
		"rejected by the HTTP/2 engine": {request: askH2C, refuses: true},
		"Connection: close":             {request: askH2C + "Connection: close\r\n"},
		"large body":                    {request: askH2C + "Content-Length: 40960\r\n", content: strings.Repeat("x", large)},
		"chunked body":                  {request: askH2C + "Transfer-Encoding: chunked\r\n", content: "1\r\nx\r\n0\r\n\r\n"},
		"expects 100-continue":          {request: askH2C + "Expect: 100-continue\r\nContent-Length: 1\r\n", content: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &echoUpgrader{refuses: test.refuses, seen: make(chan string, 1)}
			b := newTestProxy(t, func(o *stream.ServerOptions) {
				if !test.none {
					o.H2C = n
				}
			})
			b.serve(func(c *peer) {
				if head := c.head(); strings.Contains(strings.ToLower(head), "upgrade") || strings.Contains(head, "HTTP2-Settings") {
					t.Errorf("the host got %q", head)
				}
				c.read(len(test.content))
				c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			})
			c := b.dial()
			defer c.Close()
			c.send("POST / HTTP/1.1\r\n" + test.request + "\r\n" + test.content)
			if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") {
				t.Errorf("response = %q, want 200", got)
			}
			if requested := len(n.seen) > 0; requested != test.refuses {
				t.Errorf("Upgrade called: %v, want %v", requested, test.refuses)
			}
		})
	}
}
