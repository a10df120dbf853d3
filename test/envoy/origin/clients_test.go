package origin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/certs"
	"github.com/weft-proxy/weft/test/envoy/client"
)

// TestTCPClients verifies what clients of TCP report.
func TestTCPClients(t *testing.T) {
	set := listen(t)
	for _, halfClose := range []bool{false, true} {
		out := client.Run(set.Ports()["t1"], &client.Script{
			Kind: client.TCP, HalfClose: halfClose, Parts: []client.Part{{Data: []byte("one")}, {Data: []byte("two"), Pause: 50e6}},
		}, "a")
		if out.Received == nil || *out.Received != "echo:oneecho:two" || out.Closed != halfClose {
			t.Errorf("half-close %v: outcome %+v, want echo:oneecho:two, and the end of the connection after a half-close", halfClose, out)
		}
	}
}

// TestFrameClients verifies what clients that send frames report.
func TestFrameClients(t *testing.T) {
	set := listen(t)
	for _, test := range []struct {
		name string
		send func(*client.FrameWriter)
		want []string // of stream 1
	}{
		{"a request", func(f *client.FrameWriter) { f.Settings(); f.Request(1, true) }, []string{"HEADERS 200", "DATA 7", "END_STREAM"}},
		{"a stream of messages", func(f *client.FrameWriter) {
			f.Settings()
			f.Request(1, false, "x-o-stream", "1", "content-type", "application/grpc")
			f.Data(1, false, "abc")
			f.Pause(50e6)
			f.Data(1, true, "")
		}, []string{"HEADERS 200", "DATA 8", "HEADERS trailers grpc-status=0", "END_STREAM"}},
		{"a malformed response", func(f *client.FrameWriter) { f.Settings(); f.Request(1, true, "x-o-malformed", "head-twice") },
			[]string{"HEADERS 200", "HEADERS 200", "DATA 3", "END_STREAM"}},
		{"a reset", func(f *client.FrameWriter) { f.Settings(); f.Request(1, true, "x-o-seq", "reset", "x-o-refused", "1") }, []string{"RST_STREAM 7"}},
		{"no credit", func(f *client.FrameWriter) { f.Settings(); f.Request(1, true, "x-o-len", "100000") }, []string{"HEADERS 200", "DATA 65535"}},
	} {
		out := client.Run(set.Ports()["h1"], &client.Script{Kind: client.Frames, Frames: test.send}, "a")
		if got := out.Frames["stream 1"]; !slices.Equal(got, test.want) {
			t.Errorf("%s: frames %q, want %q", test.name, got, test.want)
		}
	}
	if records := set.Take("a"); len(records) == 0 {
		t.Error("the requests do not belong to the case a")
	}
}

// TestTLSClients verifies what clients report about a session.
func TestTLSClients(t *testing.T) {
	set := listen(t)
	dir := t.TempDir()
	if err := certs.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		origin, certificate string
		alpn                []string
		session, record     string
		version             string // of the response; "" for HTTP/2
	}{
		{"s1", "", nil, `TLS 1.3, ALPN "", certificate origin`, "sni=origin.test alpn= v=TLS 1.3", "1.1"},
		{"s1", certs.Client, nil, `TLS 1.3, ALPN "", certificate origin`, "sni=origin.test alpn= v=TLS 1.3 client=client", "1.1"},
		{"s2", "", []string{"h2", "http/1.1"}, `TLS 1.3, ALPN "h2", certificate origin`, "sni=origin.test alpn=h2 v=TLS 1.3", ""},
	} {
		script := request(client.HTTP1)
		script.TLS = &client.TLS{Dir: dir, ServerName: "origin.test", ALPN: test.alpn, Certificate: test.certificate}
		out := client.Run(set.Ports()[test.origin], script, "a")
		records := set.Take("a")
		if out.TLS != test.session || len(out.Responses) != 1 || out.Responses[0].Version != test.version || len(records) != 1 || records[0].TLS != test.record {
			t.Errorf("%s: outcome %+v, records %+v; want the session %s, %s", test.origin, out, records, test.session, test.record)
		}
	}
	out := client.Run(set.Ports()["o1"], &client.Script{Kind: client.HTTP1, Method: "GET", Path: "/", TLS: &client.TLS{}}, "a")
	if !strings.HasPrefix(out.TLS, "no session: ") {
		t.Errorf("outcome %+v of an origin without TLS, want no session", out)
	}
}
