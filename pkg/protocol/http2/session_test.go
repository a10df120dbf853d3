package http2

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// epoch is the time at which the tests start.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// pair is a client and a server session that exchange bytes.
type pair struct {
	t              *testing.T
	client, server *Session
	toServer       []byte
	toClient       []byte
	prefaceRead    bool
}

// newPair returns a pair whose sessions have exchanged their settings.
func newPair(t *testing.T, client, server Config) *pair {
	t.Helper()
	client.Role, server.Role = Client, Server
	p := &pair{t: t, client: NewSession(client), server: NewSession(server)}
	p.toServer = p.client.AppendPreface(p.toServer)
	p.toClient = p.server.AppendPreface(p.toClient)
	p.exchangePending()
	return p
}

// deliverToServer passes the pending bytes to the server and returns its events.
func (p *pair) deliverToServer() []Event {
	p.t.Helper()
	if !p.prefaceRead {
		n, err := ParsePreface(p.toServer)
		if n == 0 || err != nil {
			p.t.Fatalf("ParsePreface = %d, %v; want the complete preface", n, err)
		}
		p.toServer = p.toServer[n:]
		p.prefaceRead = true
	}
	var events []Event
	p.toServer, p.toClient, events = handleAll(p.t, p.server, p.toServer, p.toClient)
	return events
}

// deliverToClient passes the pending bytes to the client and returns its events.
func (p *pair) deliverToClient() []Event {
	p.t.Helper()
	var events []Event
	p.toClient, p.toServer, events = handleAll(p.t, p.client, p.toClient, p.toServer)
	return events
}

// exchangePending exchanges bytes until none are pending, and ignores the events.
func (p *pair) exchangePending() {
	p.t.Helper()
	for len(p.toServer)+len(p.toClient) > 0 {
		p.deliverToServer()
		p.deliverToClient()
	}
}

// handleAll passes all complete frames of in to s, and fails if one is an error.
func handleAll(t *testing.T, s *Session, in, out []byte) (rest, replies []byte, events []Event) {
	t.Helper()
	for {
		f, n, err := ParseFrame(in, s.MaxFrameSize())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return in, out, events
		}
		var e Event
		if out, err = s.Handle(out, f, epoch, &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind != NoEvent {
			events = append(events, e)
		}
		in = in[n:]
	}
}

// onlyEvent returns the only event of events, and fails if it is not of kind.
func onlyEvent(t *testing.T, events []Event, kind EventKind) Event {
	t.Helper()
	if len(events) != 1 || events[0].Kind != kind {
		t.Fatalf("events %+v, want one of %v", events, kind)
	}
	return events[0]
}

// sendRequest sends req from the client and returns the streams of both sessions.
func (p *pair) sendRequest(req *protocol.Request, end bool) (client, server *Stream) {
	p.t.Helper()
	var err error
	p.toServer, client, err = p.client.AppendRequest(p.toServer, req, RequestOptions{End: end})
	if err != nil {
		p.t.Fatal(err)
	}
	e := onlyEvent(p.t, p.deliverToServer(), HeadersArrived)
	if e.End != end {
		p.t.Fatalf("request ends: %v, want %v", e.End, end)
	}
	return client, e.Stream
}

func newGetRequest(path string) *protocol.Request {
	var x protocol.Exchange
	x.Reset()
	r := &x.Request
	r.Method, r.Scheme, r.Authority, r.Path = "GET", "http", "example.org", path
	return r
}

func newResponse(status int, length int64) *protocol.Response {
	var x protocol.Exchange
	x.Reset()
	x.Response.Status, x.Response.ContentLength = status, length
	return &x.Response
}

func fieldsText(h *protocol.Header) string {
	var text strings.Builder
	for name, value := range h.All() {
		fmt.Fprintf(&text, "%s: %s\n", name, value)
	}
	return text.String()
}

// TestExchange verifies a request with a body, and its response with a body and trailers.
func TestExchange(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	req := newGetRequest("/a?b=c")
	req.Method = "POST"
	req.Header.Add("X-Capital", "1")
	req.Header.Add("authorization", "secret")
	req.Header.Add("Connection", "close")
	cs, ss := p.sendRequest(req, false)

	var x protocol.Exchange
	x.Reset()
	if _, err := p.server.TakeRequest(&x.Request, nil); err != nil {
		t.Fatal(err)
	}
	got := x.Request
	if got.Method != "POST" || got.Scheme != "http" || got.Authority != "example.org" || got.Path != "/a?b=c" || got.ContentLength != -1 {
		t.Fatalf("request %+v, want POST http://example.org/a?b=c without a length", got)
	}
	if text, want := fieldsText(&got.Header), "x-capital: 1\nauthorization: secret\n"; text != want {
		t.Fatalf("fields %q, want %q", text, want)
	}

	p.toServer, _, _ = p.client.AppendData(p.toServer, cs, []byte("question"), true)
	e := onlyEvent(t, p.deliverToServer(), DataArrived)
	if string(e.Data) != "question" || !e.End || e.Stream != ss {
		t.Fatalf("event %+v, want \"question\" with End on the request's stream", e)
	}
	p.toClient = p.server.ReportConsumed(p.toClient, ss, len(e.Data))

	var err error
	resp := newResponse(200, -1)
	resp.Header.Add("Content-Type", "application/grpc")
	if p.toClient, err = p.server.AppendResponse(p.toClient, ss, resp, ResponseOptions{Server: "weft"}); err != nil {
		t.Fatal(err)
	}
	onlyEvent(t, p.deliverToClient(), HeadersArrived)
	x.Response.Header.Reset()
	p.client.TakeResponse(cs, &x.Response, nil)
	if text, want := fieldsText(&x.Response.Header), "content-type: application/grpc\nserver: weft\n"; x.Response.Status != 200 || text != want {
		t.Fatalf("response %d %q, want 200 %q", x.Response.Status, text, want)
	}

	p.toClient, _, _ = p.server.AppendData(p.toClient, ss, []byte("answer"), false)
	var trailer protocol.Header
	trailer.Add("grpc-status", "0")
	if p.toClient, err = p.server.AppendTrailer(p.toClient, ss, &trailer); err != nil {
		t.Fatal(err)
	}
	events := p.deliverToClient()
	if len(events) != 2 || events[0].Kind != DataArrived || events[1].Kind != TrailersArrived {
		t.Fatalf("events %+v, want data and trailers", events)
	}
	p.client.TakeTrailer(&x.Response.Trailer, nil)
	if text, want := fieldsText(&x.Response.Trailer), "grpc-status: 0\n"; text != want {
		t.Fatalf("trailers %q, want %q", text, want)
	}
	if cs.State() != Closed || ss.State() != Closed || p.client.Len()+p.server.Len() != 0 {
		t.Fatalf("states %v, %v, want closed", cs.State(), ss.State())
	}
	p.toServer = p.client.Release(p.toServer, cs, Cancel)
	p.toClient = p.server.Release(p.toClient, ss, Cancel)
	if len(p.toServer)+len(p.toClient) != 0 {
		t.Fatalf("releasing closed streams sends %x, %x; want nothing", p.toServer, p.toClient)
	}
}

// TestSmallestTableSizeIsSignaled verifies that the encoder applies each table size of one SETTINGS
// frame, not only the last. The peer's decoder has evicted the entries above the smallest size (RFC
// 7541 4.2).
func TestSmallestTableSizeIsSignaled(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	for range 3 { // example.org is in the table
		p.sendRequest(newGetRequest("/"), true)
	}
	sizes := AppendSettings(nil, Setting{SettingHeaderTableSize, 0}, Setting{SettingHeaderTableSize, 4096})
	f, _, _ := ParseFrame(sizes, MinFrameSize)
	if _, err := p.client.Handle(nil, f, epoch, new(Event)); err != nil {
		t.Fatal(err)
	}
	b, _, err := p.client.AppendRequest(nil, newGetRequest("/"), RequestOptions{End: true})
	if err != nil {
		t.Fatal(err)
	}
	const want = "\x20\x3f\xe1\x1f\x82\x86\x84\x41\x0bexample.org"
	if got := string(b[FrameHeaderLen:]); got != want {
		t.Fatalf("block %x, want %x", got, want)
	}
}

// TestEvictedNamesAreNotRetained verifies that an entry of the table does not retain the memory of
// an evicted entry with the same name. Otherwise a peer could make the decoder retain many times
// the table's size.
func TestEvictedNamesAreNotRetained(t *testing.T) {
	d := newDecoder()
	large := appendText([]byte{0x40, 1, 'n'}, strings.Repeat("v", 2000))
	small := []byte{0x7e, 1, 's'} // its name is an index to the newest entry
	if err := d.decode(append(large, small...)); err != nil {
		t.Fatal(err)
	}
	first, second := d.table.at(1), d.table.at(0)
	if first.name != "n" || second.name != "n" {
		t.Fatalf("entries named %q and %q, want n", first.name, second.name)
	}
	if unsafe.StringData(first.name) == unsafe.StringData(second.name) {
		t.Fatal("the names of both entries share storage")
	}
}

func TestSessionContinuesAfterShrink(t *testing.T) {
	p := newPair(t, Config{}, Config{})
	req := &protocol.Request{Method: "GET", Scheme: "http", Authority: "shop.test", Path: "/"}
	req.ContentLength = -1
	req.Header.Add("x-user", "ada") // added to the tables of both sides when it is sent again
	for range 4 {
		client, server := p.sendRequest(req, true)
		var err error
		resp := &protocol.Response{Status: 200}
		resp.ContentLength = -1
		resp.Header.Add("x-shard", "7")
		if p.toClient, err = p.server.AppendResponse(p.toClient, server, resp, ResponseOptions{End: true}); err != nil {
			t.Fatal(err)
		}
		p.server.Shrink() // no effect: the stream is not released
		var received protocol.Response
		onlyEvent(t, p.deliverToClient(), HeadersArrived)
		p.client.TakeResponse(client, &received, nil)
		if got := received.Header.Get("x-shard"); received.Status != 200 || got != "7" {
			t.Fatalf("response %d with x-shard %q, want 200 with \"7\"", received.Status, got)
		}
		p.toClient = p.server.Release(p.toClient, server, NoError)
		p.toServer = p.client.Release(p.toServer, client, NoError)
		p.exchangePending()
		p.server.Shrink()
		p.client.Shrink()
		if p.server.Len() != 0 || p.client.Len() != 0 {
			t.Fatalf("server has %d streams, client %d, want none", p.server.Len(), p.client.Len())
		}
	}
}
