package e2e

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/bolt"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/dubbo"
	"github.com/weft-proxy/weft/test/bench/frame"
)

// rpc is an RPC protocol for tests. They encode requests as Java does, and decode frames with the
// codec.
type rpc struct {
	*frame.Protocol
	codec xprotocol.Codec
	// lengthAt is the offset of the length of the last part in a request header. kindAt is the
	// offset of the byte that says whether the request expects a response; if it does not, the byte
	// is oneWay.
	lengthAt, kindAt int
	oneWay           byte
	// serializationAt is the offset of the serialization in a request header. foreign is its value
	// for a serialization that Weft does not parse.
	serializationAt int
	foreign         byte
	timeoutAt       int                              // offset of the timeout in a request header; 0: none
	code            func(reason protocol.Reason) int // status for a reason
}

// eachRPC runs a test for each protocol.
func eachRPC(t *testing.T, test func(t *testing.T, r *rpc)) {
	t.Helper()
	dubboCode := func(reason protocol.Reason) int { return int(reason.Traits().Dubbo) }
	boltCode := func(reason protocol.Reason) int { return int(reason.Traits().Bolt) }
	for _, r := range []*rpc{
		{codec: dubbo.Codec{}, lengthAt: 12, kindAt: 2, oneWay: 0x82, serializationAt: 2, foreign: 0xc6, code: dubboCode},
		{codec: bolt.V1(), lengthAt: 18, kindAt: 1, oneWay: 2, serializationAt: 9, foreign: 11, timeoutAt: 10, code: boltCode},
		{codec: bolt.V2(), lengthAt: 20, kindAt: 2, oneWay: 2, serializationAt: 10, foreign: 11, timeoutAt: 12, code: boltCode},
	} {
		name := r.codec.Traits().Name
		r.Protocol = framed(t, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
}

// request returns a call that expects a response.
func (r *rpc) request(id uint64) []byte { return r.AppendRequest(nil, id, frame.Text{Token: id}) }

// adding returns a request with one more header: an attachment, or an entry of the Bolt header.
func (r *rpc) adding(t *testing.T, request []byte, name, value string) []byte {
	t.Helper()
	var q protocol.Request
	var v xprotocol.FrameView
	if err := r.codec.ReadRequest(request, &q, &v); err != nil {
		t.Fatal(err)
	}
	q.Header.Add(name, value)
	out, err := r.codec.AppendRequest(nil, request, &q, &v, 0)
	if err != nil {
		t.Fatal(err)
	}
	head, err := r.codec.ParseFrame(out)
	if err != nil {
		t.Fatal(err)
	}
	r.codec.SetID(out, head.ID)
	return out
}

// patched returns a copy of request with another byte in its header.
func (r *rpc) patched(t *testing.T, request []byte, at int, b byte) []byte {
	t.Helper()
	out := bytes.Clone(request)
	head, err := r.codec.ParseFrame(out)
	if err != nil {
		t.Fatal(err)
	}
	out[at] = b
	r.codec.SetID(out, head.ID) // updates the checksum
	return out
}

// whole is a complete frame.
type whole struct {
	xprotocol.Frame
	bytes []byte
}

// next reads the next frame that is not a heartbeat. It acknowledges heartbeats.
func (r *rpc) next(c net.Conn, rest *[]byte) (whole, error) {
	for {
		f, err := r.codec.ParseFrame(*rest)
		if err != nil {
			return whole{}, err
		}
		if f.Size > 0 && len(*rest) >= f.Size {
			got := whole{f, bytes.Clone((*rest)[:f.Size])}
			*rest = (*rest)[f.Size:]
			if f.Kind != xprotocol.Heartbeat {
				return got, nil
			}
			if _, err := c.Write(r.codec.AppendHeartbeatAck(nil, got.bytes)); err != nil {
				return whole{}, err
			}
			continue
		}
		b := make([]byte, 4<<10)
		n, err := c.Read(b)
		if err != nil {
			return whole{}, err
		}
		*rest = append(*rest, b[:n]...)
	}
}

// app starts a server that responds with success to every request that expects a response, and
// sends what it received to got.
func (r *rpc) app(t *testing.T) (address string, got <-chan whole) {
	t.Helper()
	told := make(chan whole, 1024)
	text := make([]byte, frame.Size)
	return accept(t, func(c net.Conn) {
		for rest := []byte(nil); ; {
			f, err := r.next(c, &rest)
			if err != nil {
				return // the client disconnected
			}
			told <- f
			if f.Kind != xprotocol.Request {
				continue
			}
			if _, err := c.Write(r.AppendAnswer(nil, f.ID, text)); err != nil {
				return
			}
		}
	}), told
}

// proxy runs Weft for the protocol with a route table.
func (r *rpc) proxy(t *testing.T, extend object, clusters list, routes ...object) (address string, w *weft) {
	t.Helper()
	address = free()
	w = run(t, setup{
		listeners: list{chained("front", address, object{"type": "proxy", "config": object{
			"downstream_protocol": r.Name(), "upstream_protocol": r.Name(),
			"router_config_name": "front", "extend_config": extend,
		}})},
		tables:   list{table("front", routes...)},
		clusters: clusters,
	}.config())
	return address, w
}

// rpcCaller is a client with one connection.
type rpcCaller struct {
	*rpc
	t    *testing.T
	conn net.Conn
	rest []byte
}

func (r *rpc) dial(t *testing.T, address string) *rpcCaller {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	_ = conn.SetDeadline(time.Now().Add(4 * patience))
	return &rpcCaller{rpc: r, t: t, conn: conn}
}

func (c *rpcCaller) send(frames ...[]byte) {
	c.t.Helper()
	if _, err := c.conn.Write(bytes.Join(frames, nil)); err != nil {
		c.t.Fatal(err)
	}
}

// replied is a response, decoded by the codec.
type replied struct {
	id     uint64
	code   int
	ok     bool
	header *protocol.Header
}

// answer reads the next response.
func (c *rpcCaller) answer() replied {
	c.t.Helper()
	f, err := c.next(c.conn, &c.rest)
	if err != nil || f.Kind != xprotocol.Response {
		c.t.Fatalf("a frame of kind %d, %v; want an answer", f.Kind, err)
	}
	var a protocol.Response
	var v xprotocol.FrameView
	if err := c.codec.ReadResponse(f.bytes, &a, &v); err != nil {
		c.t.Fatal(err)
	}
	return replied{f.ID, a.Code, a.Status == 200, &a.Header}
}

// holds makes a call and verifies that it succeeds.
func (c *rpcCaller) holds(id uint64) {
	c.t.Helper()
	c.send(c.request(id))
	if got := c.answer(); got.id != id || !got.ok {
		c.t.Errorf("call %d: answer %d with code %d", id, got.id, got.code)
	}
}

// end half-closes the connection and returns everything that Weft still sends.
func (c *rpcCaller) end() []byte {
	c.t.Helper()
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // the read reports the error
	}
	more, err := io.ReadAll(c.conn)
	if err != nil {
		c.t.Error(err)
	}
	return append(c.rest, more...)
}
