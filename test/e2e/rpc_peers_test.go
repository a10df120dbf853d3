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

// rpc is a protocol as peers of these tests speak it: they make frames as Java
// peers do, and read those that they get with the codec.
type rpc struct {
	*frame.Protocol
	codec xprotocol.Codec
	// lengthAt is where a request's head has the length of what comes last, kindAt
	// where it says whether it wants an answer, and oneWay what it says if not.
	lengthAt, kindAt int
	oneWay           byte
	// serializationAt is where a request's head names its serialization, and
	// foreign what stands there for one that Weft does not read.
	serializationAt int
	foreign         byte
	timeoutAt       int                              // where a request's head has its timeout; 0: it has none
	code            func(reason protocol.Reason) int // the status that tells of a reason
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

// request is a call that wants an answer.
func (r *rpc) request(id uint64) []byte { return r.AppendRequest(nil, id, frame.Text{Token: id}) }

// adding returns a request with one more field: an attachment, or an entry of the
// header.
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

// patched returns a request with another byte in its head.
func (r *rpc) patched(t *testing.T, request []byte, at int, b byte) []byte {
	t.Helper()
	out := bytes.Clone(request)
	head, err := r.codec.ParseFrame(out)
	if err != nil {
		t.Fatal(err)
	}
	out[at] = b
	r.codec.SetID(out, head.ID) // the checksum is another
	return out
}

// whole is a frame that was read.
type whole struct {
	xprotocol.Frame
	bytes []byte
}

// next reads a frame that is no heartbeat.
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

// app is an application that answers every request that wants it with success, and
// tells what it got.
func (r *rpc) app(t *testing.T) (address string, got <-chan whole) {
	t.Helper()
	told := make(chan whole, 1024)
	text := make([]byte, frame.Size)
	return accept(t, func(c net.Conn) {
		for rest := []byte(nil); ; {
			f, err := r.next(c, &rest)
			if err != nil {
				return // the caller has gone
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

// proxy runs weft for the protocol with a route table.
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

// rpcCaller is a caller with one connection.
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

// replied is an answer as the codec reads it.
type replied struct {
	id     uint64
	code   int
	ok     bool
	header *protocol.Header
}

// answer reads the next answer.
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

// holds makes a call and holds that it succeeds.
func (c *rpcCaller) holds(id uint64) {
	c.t.Helper()
	c.send(c.request(id))
	if got := c.answer(); got.id != id || !got.ok {
		c.t.Errorf("call %d: answer %d with code %d", id, got.id, got.code)
	}
}

// end tells weft that nothing more comes, and returns all that it still says.
func (c *rpcCaller) end() []byte {
	c.t.Helper()
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // the read tells
	}
	more, err := io.ReadAll(c.conn)
	if err != nil {
		c.t.Error(err)
	}
	return append(c.rest, more...)
}
