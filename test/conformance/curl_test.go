package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestCurl verifies that common curl requests through Weft to a net/http origin succeed.
func TestCurl(t *testing.T) {
	curl := requireTool(t, "curl", "curl")
	front := serve(t, plain().snapshot("127.0.0.1:0", startDescribingOrigin(t)))
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, []byte(strings.Repeat("0123456789abcdef", 1<<16)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		args     []string // before the URL
		path     string
		want     []string // parts of curl's output: response heads, then content
		unwanted []string
	}{
		{
			name: "a GET", path: "/a",
			want: []string{"HTTP/1.1 200 OK\r\n", "request: GET /a HTTP/1.1 host=shop.test length=0 te=[] size=0\n"},
		},
		{
			name: "an unchanged path", args: []string{"--path-as-is"}, path: "/a/../b/./c//d%2Fe?f=%20",
			want: []string{"request: GET /a/../b/./c//d%2Fe?f=%20 HTTP/1.1 "},
		},
		{
			name: "a HEAD", args: []string{"--head"}, path: "/a",
			want: []string{"HTTP/1.1 200 OK\r\n", "X-Method: HEAD\r\n", "Content-Length: 1234\r\n"}, unwanted: []string{"request: "},
		},
		{
			name: "an HTTP/1.0 request", args: []string{"--http1.0"}, path: "/stream",
			want: []string{"HTTP/1.1 200 OK\r\n", "Connection: close\r\n", "onetwothree"}, unwanted: []string{"Transfer-Encoding"},
		},
		{
			name: "a streamed response", path: "/stream",
			want: []string{"Transfer-Encoding: chunked\r\n", "onetwothree"}, unwanted: []string{"Content-Length", "Connection:"},
		},
		{
			name: "a form", args: []string{"--data", "a=b&c=d"}, path: "/form",
			want: []string{"request: POST /form HTTP/1.1 host=shop.test length=7 te=[] size=7\n"},
		},
		{
			name: "an upload of known length that waits for 100", args: []string{"--upload-file", large, "--header", "Expect: 100-continue", "--expect100-timeout", "20"}, path: "/up",
			want: []string{"HTTP/1.1 100 Continue\r\n", "HTTP/1.1 200 OK\r\n", "request: PUT /up HTTP/1.1 host=shop.test length=1048576 te=[] size=1048576\n"},
		},
		{
			name: "a chunked upload", args: []string{"--upload-file", large, "--header", "Transfer-Encoding: chunked", "--header", "Expect:"}, path: "/up",
			want: []string{"request: PUT /up HTTP/1.1 host=shop.test length=-1 te=[chunked] size=1048576\n"},
		},
		{
			name: "a chunked upload that waits for 100", args: []string{"--upload-file", large, "--header", "Transfer-Encoding: chunked", "--header", "Expect: 100-continue", "--expect100-timeout", "20"}, path: "/up",
			want: []string{"HTTP/1.1 100 Continue\r\n", "request: PUT /up HTTP/1.1 host=shop.test length=-1 te=[chunked] size=1048576\n"},
		},
		{
			name: "an upload rejected without 100 Continue", args: []string{"--upload-file", large, "--header", "Expect: 100-continue", "--expect100-timeout", "20"}, path: "/reject",
			want: []string{"HTTP/1.1 403 Forbidden\r\n", "Connection: close\r\n"}, unwanted: []string{"100 Continue"},
		},
		{
			name: "an absolute target", args: []string{"--request-target", "http://other.test/b?c"}, path: "/a",
			want: []string{"request: GET /b?c HTTP/1.1 host=other.test "},
		},
		{
			name: "a large head", args: []string{"--header", "X-Large: " + strings.Repeat("a", 10_000)}, path: "/a",
			want: []string{"HTTP/1.1 200 OK\r\n"},
		},
		{
			name: "a head that is too large", args: []string{"--header", "X-Large: " + strings.Repeat("a", 20_000)}, path: "/a",
			want: []string{"HTTP/1.1 431 Request Header Fields Too Large\r\n"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"--silent", "--show-error", "--include", "--max-time", "20", "--noproxy", "*", "--header", "Host: shop.test"}, c.args...)
			got := run(t, curl, append(args, "http://"+front+c.path)...)
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("curl printed\n%s\nwithout %q", quote(got), part)
				}
			}
			for _, part := range c.unwanted {
				if strings.Contains(got, part) {
					t.Errorf("curl printed\n%s\nwith %q", quote(got), part)
				}
			}
		})
	}
}

// TestCurlReusesConnection verifies with curl's connection count that curl sends several requests
// on one connection.
func TestCurlReusesConnection(t *testing.T) {
	curl := requireTool(t, "curl", "curl")
	front := "http://" + serve(t, plain().snapshot("127.0.0.1:0", startDescribingOrigin(t)))
	got := run(t, curl, "--silent", "--show-error", "--max-time", "20", "--noproxy", "*", "--output", "/dev/null", "--write-out", "%{http_code} %{num_connects}\n",
		front+"/a", "--output", "/dev/null", front+"/stream", "--output", "/dev/null", front+"/b", "--output", "/dev/null", front+"/stream")
	if want := "200 1\n200 0\n200 0\n200 0\n"; got != want {
		t.Errorf("statuses and connects: %q, want %q", got, want)
	}
}

// TestCurlConnectTunnel verifies that curl can use Weft as a CONNECT proxy.
func TestCurlConnectTunnel(t *testing.T) {
	curl := requireTool(t, "curl", "curl")
	inner := serve(t, plain().snapshot("127.0.0.1:0", startDescribingOrigin(t)))
	outer := plain()
	outer.AllowConnect = true
	front := serve(t, outer.snapshot("127.0.0.1:0", startConnectOrigin(t, inner)))
	got := run(t, curl, "--silent", "--show-error", "--max-time", "20", "--proxytunnel", "--proxy", "http://"+front, "http://shop.test:80/inner")
	if want := "request: GET /inner HTTP/1.1 host=shop.test length=0 te=[] size=0\n"; got != want {
		t.Errorf("curl printed %q, want %q", got, want)
	}
}

// startConnectOrigin starts an origin that responds to every CONNECT with a tunnel to address.
func startConnectOrigin(t *testing.T, address string) string {
	return startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		inner := dial(t, address)
		defer inner.Close()
		outer, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer outer.Close()
		_, _ = io.WriteString(outer, "HTTP/1.1 200 OK\r\n\r\n") // if the write fails, curl reports an error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(inner, outer)
			halfClose(&harness{TB: t}, inner)
		}()
		_, _ = io.Copy(outer, inner)
		_ = outer.Close()
		<-ended
	})
}

// startDescribingOrigin starts an origin that responds with a description of the request.
func startDescribingOrigin(t *testing.T) string {
	return startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method)
		switch {
		case r.URL.Path == "/reject":
			w.WriteHeader(http.StatusForbidden)
			return
		case r.URL.Path == "/stream":
			for _, part := range []string{"one", "two", "three"} {
				_, _ = io.WriteString(w, part) // the client may have disconnected
				_ = http.NewResponseController(w).Flush()
			}
			return
		case r.Method == http.MethodHead:
			w.Header().Set("Content-Length", "1234")
			return
		}
		size, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return // the client has disconnected
		}
		_, _ = io.WriteString(w, "request: "+r.Method+" "+r.RequestURI+" "+r.Proto+" host="+r.Host+
			" length="+strconv.FormatInt(r.ContentLength, 10)+" te=["+strings.Join(r.TransferEncoding, ",")+"] size="+strconv.FormatInt(size, 10)+"\n")
	})
}

// startOrigin starts an HTTP/1.1 net/http server until the end of the test.
func startOrigin(t *testing.T, response http.HandlerFunc) (address string) {
	s := httptest.NewServer(response)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
