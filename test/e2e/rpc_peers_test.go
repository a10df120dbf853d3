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

// rpc is an RPC protocol for tests. It encodes requests as Java clients do, and decodes frames with
// codec.
type rpc struct {
	*frame.Protocol
	codec xprotocol.Codec
	// lengthAt is the offset of the length of the last part in a request header. kindAt is the
	// offset of the byte that says whether the request expects a response. In a one-way request
	// this byte is oneWay.
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
	dubboCode := func(reason protocol.Reason) int { return int(reason.Spec().Dubbo) }
	boltCode := func(reason protocol.Reason) int { return int(reason.Spec().Bolt) }
	for _, r := range []*rpc{
		{codec: dubbo.Codec{}, lengthAt: 12, kindAt: 2, oneWay: 0x82, serializationAt: 2, foreign: 0xc6, code: dubboCode},
		{codec: bolt.V1(), lengthAt: 18, kindAt: 1, oneWay: 2, serializationAt: 9, foreign: 11, timeoutAt: 10, code: boltCode},
		{codec: bolt.V2(), lengthAt: 20, kindAt: 2, oneWay: 2, serializationAt: 10, foreign: 11, timeoutAt: 12, code: boltCode},
	} {
		name := r.codec.Traits().Name
		r.Protocol = findProtocol(t, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
}

// request returns a call that expects a response.
func (r *rpc) request(id uint64) []byte { return r.AppendRequest(nil, id, frame.Text{Token: id}) }

// withHeader returns a request with one more header: an attachment, or an entry of the Bolt header.
func (r *rpc) withHeader(t *testing.T, request []byte, name, value string) []byte {
	t.Helper()
	var req protocol.Request
	var v xprotocol.FrameView
	if err := r.codec.ReadRequest(request, &req, &v); err != nil {
		t.Fatal(err)
	}
	req.Header.Add(name, value)
	out, err := r.codec.AppendRequest(nil, request, &req, &v, 0)
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

// withByte returns a copy of request with another byte in its header.
func (r *rpc) withByte(t *testing.T, request []byte, offset int, b byte) []byte {
	t.Helper()
	out := bytes.Clone(request)
	head, err := r.codec.ParseFrame(out)
	if err != nil {
		t.Fatal(err)
	}
	out[offset] = b
	r.codec.SetID(out, head.ID) // updates the checksum
	return out
}

// rawFrame is a complete frame.
type rawFrame struct {
	xprotocol.Frame
	bytes []byte
}

// next reads the next frame that is not a heartbeat. It acknowledges heartbeats.
func (r *rpc) next(c net.Conn, rest *[]byte) (rawFrame, error) {
	for {
		f, err := r.codec.ParseFrame(*rest)
		if err != nil {
			return rawFrame{}, err
		}
		if f.Size > 0 && len(*rest) >= f.Size {
			got := rawFrame{f, bytes.Clone((*rest)[:f.Size])}
			*rest = (*rest)[f.Size:]
			if f.Kind != xprotocol.Heartbeat {
				return got, nil
			}
			if _, err := c.Write(r.codec.AppendHeartbeatAck(nil, got.bytes)); err != nil {
				return rawFrame{}, err
			}
			continue
		}
		b := make([]byte, 4<<10)
		n, err := c.Read(b)
		if err != nil {
			return rawFrame{}, err
		}
		*rest = append(*rest, b[:n]...)
	}
}

// startServer starts a server that responds with success to every request that expects a response,
// and sends what it received to got.
func (r *rpc) startServer(t *testing.T) (address string, got <-chan rawFrame) {
	t.Helper()
	received := make(chan rawFrame, 1024)
	text := make([]byte, frame.Size)
	return startTCPServer(t, func(c net.Conn) {
		for rest := []byte(nil); ; {
			f, err := r.next(c, &rest)
			if err != nil {
				return // the client disconnected
			}
			received <- f
			if f.Kind != xprotocol.Request {
				continue
			}
			if _, err := c.Write(r.AppendResponse(nil, f.ID, text)); err != nil {
				return
			}
		}
	}), received
}

// startProxy runs Weft for the protocol with a route table.
func (r *rpc) startProxy(t *testing.T, extend object, clusters list, routes ...object) (address string, w *weft) {
	t.Helper()
	address = freeAddress()
	w = startWeft(t, setup{
		listeners: list{networkListener("front", address, object{"type": "proxy", "config": object{
			"downstream_protocol": r.Name(), "upstream_protocol": r.Name(),
			"router_config_name": "front", "extend_config": extend,
		}})},
		tables:   list{routeTable("front", routes...)},
		clusters: clusters,
	}.config())
	return address, w
}

// rpcClient is a client with one connection.
type rpcClient struct {
	*rpc
	t    *testing.T
	conn net.Conn
	rest []byte
}

func (r *rpc) dial(t *testing.T, address string) *rpcClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed the connection
	_ = conn.SetDeadline(time.Now().Add(4 * waitTimeout))
	return &rpcClient{rpc: r, t: t, conn: conn}
}

func (c *rpcClient) send(frames ...[]byte) {
	c.t.Helper()
	if _, err := c.conn.Write(bytes.Join(frames, nil)); err != nil {
		c.t.Fatal(err)
	}
}

// rpcResponse is a response, decoded by the codec.
type rpcResponse struct {
	id     uint64
	code   int
	ok     bool
	header *protocol.Header
}

// receive reads the next response.
func (c *rpcClient) receive() rpcResponse {
	c.t.Helper()
	f, err := c.next(c.conn, &c.rest)
	if err != nil || f.Kind != xprotocol.Response {
		c.t.Fatalf("got a frame of kind %d, %v; want a response", f.Kind, err)
	}
	var resp protocol.Response
	var v xprotocol.FrameView
	if err := c.codec.ReadResponse(f.bytes, &resp, &v); err != nil {
		c.t.Fatal(err)
	}
	return rpcResponse{f.ID, resp.Code, resp.Status == 200, &resp.Header}
}

// checkCall makes a call and verifies that it succeeds.
func (c *rpcClient) checkCall(id uint64) {
	c.t.Helper()
	c.send(c.request(id))
	if got := c.receive(); got.id != id || !got.ok {
		c.t.Errorf("call %d: response %d with code %d; want %d and success", id, got.id, got.code, id)
	}
}

// closeAndDrain half-closes the connection and returns everything that Weft still sends.
func (c *rpcClient) closeAndDrain() []byte {
	c.t.Helper()
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // the read reports the error
	}
	extra, err := io.ReadAll(c.conn)
	if err != nil {
		c.t.Error(err)
	}
	return append(c.rest, extra...)
}
