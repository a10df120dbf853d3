package origin_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/envoy/certs"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/origin"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// listen starts origins until the end of the test.
func listen(t *testing.T) *origin.Set {
	t.Helper()
	dir := t.TempDir()
	if err := certs.Write(dir); err != nil {
		t.Fatal(err)
	}
	certificate, err := certs.Load(dir, certs.Origin)
	if err != nil {
		t.Fatal(err)
	}
	set, err := origin.Listen(func(ip string) (int, error) {
		l, err := net.Listen("tcp", ip+":0")
		if err != nil {
			return 0, err
		}
		return l.Addr().(*net.TCPAddr).Port, l.Close()
	}, certificate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	return set
}

// request returns a script with one request whose fields are alternating names and values.
func request(kind client.Kind, fields ...string) *client.Script {
	s := &client.Script{Kind: kind, Method: "GET", Path: "/p", Host: "a.test", Scheme: "http", Timeout: 5 * time.Second}
	for pair := range slices.Chunk(fields, 2) {
		s.Fields = append(s.Fields, wire.Field{Name: pair[0], Value: pair[1]})
	}
	return s
}

// TestResponses verifies what clients and origins report if there is no proxy between them.
func TestResponses(t *testing.T) {
	set := listen(t)
	for _, test := range []struct {
		name   string
		origin string
		script *client.Script
		status int // 0: no response
		body   string
		cut    bool
		reset  string
		closed bool
	}{
		{"HTTP/1.1", "o1", request(client.HTTP1), 200, "from o1", false, "", false},
		{"a chunked body", "o1", request(client.HTTP1, "x-o-chunked", "1"), 200, "from o1", false, "", false},
		{"a body until the connection closes", "o2", request(client.HTTP1, "x-o-untilclose", "1"), 200, "from o2", false, "", true},
		{"a body that is cut", "o1", request(client.HTTP1, "x-o-len", "100", "x-o-cut", "3"), 200, "xxx", true, "", true},
		{"a reset", "o1", request(client.HTTP1, "x-o-seq", "reset"), 0, "", false, "", true},
		{"HTTP/2", "h1", request(client.HTTP2), 200, "from h1", false, "", false},
		{"HTTP/2 at an origin for HTTP/1.1", "o1", request(client.HTTP2), 200, "from o1", false, "", false},
		{"a reset stream", "h2", request(client.HTTP2, "x-o-seq", "reset", "x-o-refused", "1"), 0, "", false, "7", false},
		{"more than one window of HTTP/2", "h1", request(client.HTTP2, "x-o-len", "200000"), 200, "", false, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := client.Run(set.Ports()[test.origin], test.script, "case-1")
			if len(out.Responses) != 1 || out.Error != "" {
				t.Fatalf("outcome %+v, want one response", out)
			}
			r := out.Responses[0]
			if r.Status != test.status || r.Missing != (test.status == 0) || test.body != "" && string(r.Body) != test.body || r.Cut != test.cut || r.Reset != test.reset {
				t.Errorf("response %+v, want status %d, body %q, cut %v, reset %q", r, test.status, test.body, test.cut, test.reset)
			}
			if out.Closed != test.closed {
				t.Errorf("closed = %v, want %v", out.Closed, test.closed)
			}
			records := set.Take("case-1")
			if len(records) != 1 || records[0].Origin != test.origin {
				t.Fatalf("records %+v, want one at %s", records, test.origin)
			}
			if id, _ := wire.Get(records[0].Fields, wire.CaseField); id != "case-1" {
				t.Errorf("the request has the case %q, want case-1", id)
			}
		})
	}
}

func TestRecordsBelongToCases(t *testing.T) {
	set := listen(t)
	for _, id := range []string{"a", "b", "a"} {
		client.Run(set.Ports()["o1"], request(client.HTTP1), id)
	}
	client.Run(set.Ports()["o2"], &client.Script{Kind: client.Raw, Parts: []client.Part{{Data: []byte("GET /anonymous HTTP/1.1\r\n\r\n")}}}, "c")
	client.Run(set.Ports()["t1"], &client.Script{Kind: client.Raw, Timeout: 50 * time.Millisecond, Parts: []client.Part{{Data: []byte("hi")}}}, "c")
	for _, test := range []struct {
		ids  []string
		want []string
	}{
		{[]string{"b"}, []string{"o1"}}, {[]string{"a", ""}, []string{"o1", "o1", "o2", "t1"}}, {[]string{"a", "b", "c", ""}, nil},
	} {
		var got []string
		for _, r := range set.Take(test.ids...) {
			got = append(got, r.Origin)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("Take(%q) has records of %q, want %q", test.ids, got, test.want)
		}
	}
}

func TestAttemptsOfACaseAreCounted(t *testing.T) {
	set := listen(t)
	script := request(client.HTTP1, "x-o-seq", "503,200")
	script.Repeat = 2
	out := client.Run(set.Ports()["o1"], script, "a")
	if len(out.Responses) != 2 || out.Responses[0].Status != 503 || out.Responses[1].Status != 200 {
		t.Errorf("responses %+v, want 503 and then 200", out.Responses)
	}
	if out = client.Run(set.Ports()["o1"], script, "b"); out.Responses[0].Status != 503 {
		t.Errorf("the first response of another case is %d, want 503", out.Responses[0].Status)
	}
}

func TestTunnelsAndPROXY(t *testing.T) {
	set := listen(t)
	upgrade := request(client.HTTP1, "Connection", "Upgrade", "Upgrade", "websocket")
	upgrade.Tunnel = []byte("hi")
	if out := client.Run(set.Ports()["o1"], upgrade, "a"); out.Tunnel == nil || *out.Tunnel != "echo:hi" {
		t.Errorf("outcome %+v, want a tunnel with echo:hi", out)
	}
	behind := request(client.HTTP1)
	behind.Preface = []byte("PROXY TCP4 1.2.3.4 5.6.7.8 1000 80\r\n")
	client.Run(set.Ports()["p1"], behind, "b")
	if records := set.Take("b"); len(records) != 1 || records[0].Proxy != "PROXY TCP4 1.2.3.4 5.6.7.8 1000 80" {
		t.Errorf("records %+v, want one with the header of the PROXY protocol", records)
	}
}

func TestTLS(t *testing.T) {
	set := listen(t)
	for name, want := range map[string]string{"s1": "sni=origin.test alpn= v=TLS 1.3", "s2": "sni=origin.test alpn=h2 v=TLS 1.3"} {
		config := &tls.Config{InsecureSkipVerify: true, ServerName: "origin.test"} //nolint:gosec // a self-signed certificate
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+strconv.Itoa(set.Ports()[name]), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(wire.CaseField, name)
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(body) != "from "+name {
			t.Errorf("%s: body %q, %v, want from %[1]s", name, body, err)
		}
		if records := set.Take(name); len(records) != 1 || records[0].TLS != want {
			t.Errorf("%s: records %+v, want one with %s", name, records, want)
		}
	}
}
