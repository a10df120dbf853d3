package client

import (
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// serve accepts one connection and sends text on it. If hold is set, the connection stays open
// until the end of the test.
func serve(t *testing.T, text string, hold bool) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Read(make([]byte, 1<<10))
		conn.Write([]byte(text))
		if hold {
			<-done
		}
	}()
	t.Cleanup(func() {
		close(done)
		l.Close()
		<-ended
	})
	return l.Addr().(*net.TCPAddr).Port
}

func TestResponses(t *testing.T) {
	ok := Response{Version: "1.1", Status: 200, Fields: []wire.Field{{Name: "Content-Length", Value: "2"}}, Body: []byte("hi")}
	cut := ok
	cut.Fields, cut.Body, cut.Cut = []wire.Field{{Name: "Content-Length", Value: "9"}}, []byte("hi"), true
	chunked := Response{Version: "1.1", Status: 200, Fields: []wire.Field{{Name: "Transfer-Encoding", Value: "chunked"}},
		Body: []byte("abcde"), Trailers: []wire.Field{{Name: "T", Value: "1"}}}
	for _, test := range []struct {
		name, text string
		hold       bool
		method     string
		want       Outcome
	}{
		{"a response", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true, "GET", Outcome{Responses: []Response{ok}}},
		{"a response, and then the end", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, "GET", Outcome{Responses: []Response{ok}, Closed: true}},
		{"more than a response", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhimore", true, "GET", Outcome{Responses: []Response{ok}, Extra: "more"}},
		{"an incomplete body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", false, "GET", Outcome{Responses: []Response{cut}, Closed: true}},
		{"chunks and trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: 1\r\n\r\n", true, "GET",
			Outcome{Responses: []Response{chunked}}},
		{"an interim response", "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true, "GET",
			Outcome{Responses: []Response{{Version: "1.1", Status: 103}, ok}}},
		{"a response to HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true, "HEAD",
			Outcome{Responses: []Response{{Version: "1.1", Status: 200, Fields: ok.Fields}}}},
		{"nothing", "", true, "GET", Outcome{Responses: []Response{{Missing: true, TimedOut: true}}}},
		{"the end", "", false, "GET", Outcome{Responses: []Response{{Missing: true}}, Closed: true}},
		{"half a head", "HTTP/1.1 20", false, "GET", Outcome{Responses: []Response{{Missing: true, Partial: "HTTP/1.1 20"}}, Closed: true, Extra: "HTTP/1.1 20"}},
		{"no HTTP", "hello\r\n\r\n", true, "GET", Outcome{Responses: []Response{{Missing: true, Partial: "hello"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			script := &Script{Kind: HTTP1, Method: test.method, Path: "/", Host: "a.test", Timeout: time.Second}
			got := Run(serve(t, test.text, test.hold), script, "case-1")
			got.Elapsed = 0
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("outcome %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestResponseOfAnotherProtocol(t *testing.T) {
	script := &Script{Kind: HTTP2, Method: "GET", Scheme: "http", Path: "/", Host: "a.test", Timeout: 5 * time.Second}
	begin := time.Now()
	out := Run(serve(t, "HTTP/1.1 400 Bad Request\r\n\r\n", true), script, "case-1")
	if out.Error == "" || time.Since(begin) > 4*time.Second {
		t.Errorf("HTTP/1.1 in response to HTTP/2: outcome %+v after %v, want an error without a wait", out, time.Since(begin))
	}
}

func TestAppendRequest(t *testing.T) {
	for _, test := range []struct {
		script Script
		want   string
	}{
		{Script{Method: "GET", Path: "/", Host: "a"}, "GET / HTTP/1.1\r\nHost: a\r\nX-Case: c-1\r\n\r\n"},
		{Script{Method: "POST", Path: "/", Host: "a", Body: []byte{}}, "POST / HTTP/1.1\r\nHost: a\r\nX-Case: c-1\r\nContent-Length: 0\r\n\r\n"},
		{Script{Method: "POST", Path: "/", Host: "", Version: "1.0", Body: []byte("hi"), Fields: []wire.Field{{Name: "content-length", Value: "2"}}},
			"POST / HTTP/1.0\r\nHost: \r\ncontent-length: 2\r\nX-Case: c-1\r\n\r\nhi"},
	} {
		if got := string(test.script.appendRequest(nil, "c-1")); got != test.want {
			t.Errorf("appendRequest = %q, want %q", got, test.want)
		}
	}
}
