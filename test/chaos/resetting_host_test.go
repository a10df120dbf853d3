package chaos

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// resettingHost is a host of one protocol that resets some of its connections, before or during a
// response.
type resettingHost struct {
	address       string
	resetFraction float64  // fraction of the responses that the host cuts off
	posts         opCounts // POSTs, and all RPC calls

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// errReset reports that the host must close the connection with a RST.
var errReset = errors.New("broken off")

// newResettingHost starts a host that serves each connection with serve. If serve returns errReset,
// the host closes the connection with a RST.
func (r *testRun) newResettingHost(purpose uint64, serve func(h *resettingHost, c net.Conn) error) *resettingHost {
	r.Helper()
	l := r.listen("127.0.0.1:0")
	h := &resettingHost{address: l.Addr().String(), resetFraction: 0.2, rng: r.newRand(purpose)}
	var conns sync.WaitGroup
	var openConns sync.Map // keys are net.Conn
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			openConns.Store(c, true)
			conns.Go(func() {
				defer openConns.Delete(c)
				if err := serve(h, c); errors.Is(err, errReset) {
					_ = c.(*net.TCPConn).SetLinger(0) // Close sends a RST
				}
				_ = c.Close() // the connection may already be closed
			})
		}
	})
	r.Cleanup(func() {
		_ = l.Close() // ends the accept loop
		openConns.Range(func(c, _ any) bool {
			_ = c.(net.Conn).Close() // ends the goroutine of the connection
			return true
		})
		conns.Wait()
	})
	return h
}

// truncate selects how many bytes of a response of size bytes the host sends. complete is true if
// the host sends all of them.
func (h *resettingHost) truncate(size int) (sent int, complete bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rng.Float64() >= h.resetFraction {
		return size, true
	}
	// Edge cases are frequent: no byte at all, all but one byte.
	return []int{0, 1, size / 2, size - 1, h.rng.IntN(size)}[h.rng.IntN(5)], false
}

// sendResponse sends a response or a part of it. After a part, it waits until Weft can have
// forwarded the part and returns errReset.
func (h *resettingHost) sendResponse(c net.Conn, response []byte) error {
	sent, complete := h.truncate(len(response))
	if _, err := c.Write(response[:sent]); err != nil {
		return err
	}
	if complete {
		return nil
	}
	sleep(nil, time.Duration(sent%8)*time.Millisecond)
	return errReset
}

// responseBody returns the response body for a request with a token and records a POST.
func (h *resettingHost) responseBody(method, uri string) (string, error) {
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return "", err
	}
	token := u.Query().Get("token")
	size, err := strconv.Atoi(u.Query().Get("size"))
	if err != nil {
		return "", err
	}
	if method == http.MethodPost {
		h.posts.record(token)
	}
	return bodyFor(token, size), nil
}

// serveHTTP1 responds in HTTP/1.1, alternately with Content-Length and chunked.
func serveHTTP1(h *resettingHost, c net.Conn) error {
	r := bufio.NewReader(c)
	for n := 0; ; n++ {
		request, err := http.ReadRequest(r)
		if err != nil {
			return err
		}
		text, err := h.responseBody(request.Method, request.RequestURI)
		if err != nil {
			return err
		}
		response := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		if n%2 == 1 {
			half := len(text) / 2
			response = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n",
				half, text[:half], len(text)-half, text[half:])
		}
		if err := h.sendResponse(c, response); err != nil {
			return err
		}
	}
}

// serveHTTP2 responds in HTTP/2, one stream at a time, with DATA frames that fit into the initial
// windows.
func serveHTTP2(h *resettingHost, c net.Conn) error {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	var out, block bytes.Buffer
	framer := http2.NewFramer(&out, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	encoder := hpack.NewEncoder(&block)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for {
		if _, err := c.Write(out.Bytes()); err != nil {
			return err
		}
		out.Reset()
		fr, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		switch fr := fr.(type) {
		case *http2.SettingsFrame:
			if !fr.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !fr.IsAck() {
				err = framer.WritePing(true, fr.Data)
			}
		case *http2.MetaHeadersFrame:
			var text string
			if text, err = h.responseBody(fr.PseudoValue("method"), fr.PseudoValue("path")); err != nil {
				return err
			}
			block.Reset()
			err = errors.Join(
				encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"}),
				framer.WriteHeaders(http2.HeadersFrameParam{StreamID: fr.StreamID, BlockFragment: block.Bytes(), EndHeaders: true}),
				framer.WriteData(fr.StreamID, false, []byte(text[:len(text)/2])),
				framer.WriteData(fr.StreamID, true, []byte(text[len(text)/2:])),
				h.sendResponse(c, out.Bytes()),
			)
			out.Reset()
		}
		if err != nil {
			return err
		}
	}
}

// serveResettingRPC responds in Dubbo.
func serveResettingRPC(h *resettingHost, c net.Conn) error {
	p, err := frame.Find("dubbo")
	if err != nil {
		return err
	}
	for r := bufio.NewReader(c); ; {
		raw, err := readDubbo(r)
		if err != nil {
			return err
		}
		_, f, err := p.Parse(raw)
		if err != nil {
			return err
		}
		switch f.Kind {
		case frame.Ping:
			_, err = c.Write(p.AppendPong(nil, f.ID))
		case frame.Request:
			h.posts.record(string(f.Text))
			err = h.sendResponse(c, p.AppendResponse(nil, f.ID, f.Text))
		default: // other frames need no response
		}
		if err != nil {
			return err
		}
	}
}
