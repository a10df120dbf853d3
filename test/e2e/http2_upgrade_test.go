package e2e

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
)

// h2frame is an HTTP/2 frame (RFC 9113 4.1).
type h2frame struct {
	frameType, flags byte
	stream           uint32
	payload          string
}

func readFrame(t *testing.T, r *bufio.Reader) h2frame {
	t.Helper()
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatalf("no frame: %v", err)
	}
	payload := make([]byte, int(head[0])<<16|int(binary.BigEndian.Uint16(head[1:])))
	if _, err := io.ReadFull(r, payload); err != nil {
		t.Fatalf("incomplete frame: %v", err)
	}
	return h2frame{head[3], head[4], binary.BigEndian.Uint32(head[5:]), string(payload)}
}

// TestUpgradeToH2C verifies Upgrade: h2c (RFC 7540 3.2). A listener of both protocols switches and
// sends the response on stream 1. A listener of HTTP/1.1 ignores the upgrade.
func TestUpgradeToH2C(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_, _ = io.WriteString(w, strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Upgrade"), r.Header.Get("Http2-Settings"), string(content)}, ","))
	})
	front := func(downstream string) string {
		address := freeAddress()
		startWeft(t, setup{
			listeners: list{networkListener("front", address, object{"type": "proxy", "config": object{
				"downstream_protocol": downstream, "upstream_protocol": "Http1", "router_config_name": "front"}})},
			tables:   list{routeTable("front", routeTo("/", "app"))},
			clusters: list{cluster("app", nil, app.address)},
		}.config())
		return address
	}
	const upgradeHeaders = "Host: shop.test\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n"
	for _, downstream := range []string{"Http1,Http2", "Auto"} {
		t.Run(downstream, func(t *testing.T) {
			t.Parallel()
			address := front(downstream)
			for name, test := range map[string]struct{ request, want string }{
				"without body": {"GET /a HTTP/1.1\n" + upgradeHeaders + "\n", "GET,/a,,,"},
				"with body":    {"POST /a HTTP/1.1\n" + upgradeHeaders + "Content-Length: 5\n\nhello", "POST,/a,,,hello"},
			} {
				t.Run(name, func(t *testing.T) {
					w := dialRaw(t, address).send(test.request)
					resp, err := http.ReadResponse(w.r, nil)
					if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "h2c" {
						t.Fatalf("the response is %v, %v; want 101 with Upgrade: h2c", resp, err)
					}
					if _, err := io.WriteString(w, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
						t.Fatal(err)
					}
					const data, headers, settings, endStream = 0, 1, 4, 1
					if f := readFrame(t, w.r); f.frameType != settings {
						t.Errorf("the first frame is %+v, want SETTINGS", f)
					}
					head, content := false, ""
					for ended := false; !ended; {
						f := readFrame(t, w.r)
						if f.frameType != data && f.frameType != headers {
							continue
						}
						if f.stream != 1 {
							t.Fatalf("frame %+v, want a frame of stream 1", f)
						}
						head = head || f.frameType == headers
						if f.frameType == data {
							content += f.payload
						}
						ended = f.flags&endStream != 0
					}
					if !head || content != test.want {
						t.Errorf("stream 1 has %q, with headers: %t; want %q", content, head, test.want)
					}
				})
			}
		})
	}
	t.Run("Http1", func(t *testing.T) {
		t.Parallel()
		w := dialRaw(t, front("Http1")).send("GET /a HTTP/1.1\n" + upgradeHeaders + "\n")
		if resp, body := w.readResponse("GET"); resp.StatusCode != http.StatusOK || body != "GET,/a,,," {
			t.Errorf("a listener without HTTP/2 responds %d and %q, want 200 without an upgrade", resp.StatusCode, body)
		}
	})
}
