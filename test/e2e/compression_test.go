package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// decoded returns a reader that decodes coding, or body if coding is not supported.
func decoded(t *testing.T, coding string, body io.Reader) io.Reader {
	t.Helper()
	switch coding {
	case "gzip":
		r, err := gzip.NewReader(body)
		if err != nil {
			t.Fatal(err)
		}
		return r
	case "zstd":
		r, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}
	return body
}

func gzipText(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// clients returns a client for each HTTP version.
func clients(t *testing.T) map[string]*http.Client {
	t.Helper()
	out := map[string]*http.Client{}
	for _, name := range []string{"Http1", "Http2"} {
		transport := &http.Transport{DisableCompression: true, Protocols: httpProtocols(name)}
		t.Cleanup(transport.CloseIdleConnections)
		out[name] = &http.Client{Transport: transport, Timeout: 4 * waitTimeout}
	}
	return out
}

// compressionProxy runs a proxy with filters in front of app. It serves clients of every HTTP
// version and uses the version upstream to reach app.
func compressionProxy(t *testing.T, upstream string, filters list, app http.HandlerFunc) (url string, w *weft) {
	t.Helper()
	server := httptest.NewUnstartedServer(app)
	server.Config.Protocols = httpProtocols(upstream)
	server.Start()
	t.Cleanup(server.Close)
	front := freeAddress()
	w = startWeft(t, setup{
		listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
			"downstream_protocol": "Auto", "upstream_protocol": upstream, "router_config_name": "front"}}, object{"stream_filters": filters})},
		tables:   list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", nil, server.Listener.Addr().String())},
	}.config())
	return "http://" + front, w
}

// TestResponsesAreCompressed verifies that responses of any size, between any two HTTP versions,
// are compressed and decode to the original content.
func TestResponsesAreCompressed(t *testing.T) {
	t.Parallel()
	filters := list{streamFilter("compressor", object{"content_type": list{"text/plain"}, "min_content_length": 1})}
	for _, upstream := range []string{"Http1", "Http2"} {
		url, w := compressionProxy(t, upstream, filters, func(w http.ResponseWriter, r *http.Request) {
			var size int
			_, _ = fmt.Sscan(r.URL.Query().Get("size"), &size)
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("ETag", `"1"`)
			if r.URL.Path == "/declared" {
				w.Header().Set("Content-Length", fmt.Sprint(size))
			} else {
				w.Header().Set(http.TrailerPrefix+"X-Sum", "sum")
				w.(http.Flusher).Flush()
			}
			_, _ = io.Copy(w, io.LimitReader(randomStream(7, int64(size)), int64(size)/2))
			_, _ = io.WriteString(w, strings.Repeat("x", size-size/2))
		})
		for version, c := range clients(t) {
			for _, path := range []string{"/declared", "/streamed"} {
				for _, size := range []int{1, 1000, 100_000, 3 << 20} {
					for _, accept := range []string{"gzip", "zstd", "br"} {
						name := fmt.Sprintf("%s to %s %s %d %s", version, upstream, path, size, accept)
						request, err := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("%s%s?size=%d", url, path, size), http.NoBody)
						if err != nil {
							t.Fatal(err)
						}
						request.Header.Set("Accept-Encoding", accept)
						response, err := c.Do(request)
						if err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						coding := response.Header.Get("Content-Encoding")
						sum, n, err := readSum(decoded(t, coding, response.Body))
						if err != nil || n != int64(size) {
							t.Errorf("%s: %d bytes, %v; want %d, nil", name, n, err, size)
						}
						want, _, _ := readSum(io.MultiReader(io.LimitReader(randomStream(7, int64(size)), int64(size)/2), strings.NewReader(strings.Repeat("x", size-size/2))))
						if sum != want {
							t.Errorf("%s: the body differs", name)
						}
						if compressed := accept != "br"; compressed != (coding == accept) || compressed != (response.Header.Get("ETag") == `W/"1"`) || response.Header.Get("Vary") != "Accept-Encoding" {
							t.Errorf("%s: %v, want Vary: Accept-Encoding, and a coding and a weak ETag unless br is requested", name, response.Header)
						}
						_, _ = io.Copy(io.Discard, response.Body) // read up to the trailers
						if path == "/streamed" && response.Trailer.Get("X-Sum") != "sum" {
							t.Errorf("%s: the trailers are %v, want \"sum\"", name, response.Trailer)
						}
						_ = response.Body.Close()
					}
				}
			}
		}
		if got := w.metric("weft_filter_compressor_responses_total", `encoding="zstd"`); got != 16 {
			t.Errorf("%v responses compressed with zstd, want 16", got)
		}
	}
}

// TestCompressionDoesNotDelayEvents verifies that compression does not delay events. The upstream
// sends the next event after the client has received the previous one.
func TestCompressionDoesNotDelayEvents(t *testing.T) {
	t.Parallel()
	received := make(chan struct{})
	filters := list{streamFilter("compressor", object{"content_type": list{"text/event-stream"}})}
	for _, upstream := range []string{"Http1", "Http2"} {
		url, _ := compressionProxy(t, upstream, filters, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for n := range 5 {
				fmt.Fprintf(w, "data: %d\n\n", n)
				w.(http.Flusher).Flush()
				select {
				case <-received:
				case <-r.Context().Done():
					return
				}
			}
		})
		for version, c := range clients(t) {
			for _, coding := range []string{"gzip", "zstd"} {
				request, err := http.NewRequestWithContext(t.Context(), "GET", url, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Accept-Encoding", coding)
				response, err := c.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				events := decoded(t, response.Header.Get("Content-Encoding"), response.Body)
				for n := range 5 {
					event := make([]byte, len("data: 0\n\n"))
					if _, err := io.ReadFull(events, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", n) {
						t.Fatalf("%s to %s, %s: event %d is %q, %v; want data: %d", version, upstream, coding, n, event, err, n)
					}
					received <- struct{}{}
				}
				if rest, err := io.ReadAll(events); err != nil || len(rest) > 0 {
					t.Errorf("%s to %s, %s: after the events %q, %v; want none", version, upstream, coding, rest, err)
				}
				_ = response.Body.Close()
			}
		}
	}
}

func TestRequestsAreDecompressed(t *testing.T) {
	t.Parallel()
	filters := list{streamFilter("decompressor", object{"max_decompressed_size": "4MB", "max_inflate_ratio": 100})}
	for _, upstream := range []string{"Http1", "Http2"} {
		url, w := compressionProxy(t, upstream, filters, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // Weft aborted the request
			}
			w.Header().Set("X-Encoding", r.Header.Get("Content-Encoding"))
			_, _ = io.WriteString(w, digest(body))
		})
		random := new(strings.Builder)
		_, _ = io.Copy(random, randomStream(3, 2<<20))
		damaged := []byte(gzipText(t, "hello, hello, hello"))
		damaged[len(damaged)-1] ^= 0xff
		for version, c := range clients(t) {
			for _, test := range []struct{ name, sent, body, want string }{
				{"small", gzipText(t, "hello"), "hello", "200"},
				{"large", gzipText(t, random.String()), random.String(), "200"},
				{"decompression bomb", gzipText(t, strings.Repeat("x", 3<<20)), "", "413"},
				{"larger than the limit", gzipText(t, random.String()+random.String()+"x"), "", "413"},
				{"damaged", string(damaged), "", "400"},
				{"plain", "hello", "", "400"},
			} {
				got := sendRequest(t, c, "POST", url, test.sent, "Content-Encoding: gzip")
				if fmt.Sprint(got.status) != test.want {
					t.Errorf("%s to %s, %s: %d, want %s", version, upstream, test.name, got.status, test.want)
				}
				if test.want == "200" && (got.body != digest([]byte(test.body)) || got.header.Get("X-Encoding") != "") {
					t.Errorf("%s to %s, %s: the upstream got a different body, in %q", version, upstream, test.name, got.header.Get("X-Encoding"))
				}
			}
			if got := sendRequest(t, c, "POST", url, "not compressed"); got.status != 200 || got.body != digest([]byte("not compressed")) {
				t.Errorf("%s to %s, identity: %d, want 200 and the digest of the body", version, upstream, got.status)
			}
		}
		if got := w.metric("weft_filter_decompressor_refused_total"); got != 8 {
			t.Errorf("%v requests were rejected, want 8", got)
		}
	}
}

func compressionExample(t *testing.T) {
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		describeRequest(w, r)
	})
	e := loadExample(t, "compression.json")
	e.replace(`"hosts": [{"address": "`+e.address("2647")+`"}]`, `"hosts": [{"address": "`+app.address+`"}]`)
	e.run("compression.json")
	c := newClient(t)
	for _, test := range []struct{ port, path, accept, coding string }{
		{"2645", "/", "gzip, zstd", "zstd"}, {"2645", "/", "gzip, zstd;q=0.5", "gzip"}, {"2645", "/", "br", ""},
		{"2645", "/secret", "gzip, zstd", ""}, {"2646", "/", "gzip, zstd", "gzip"},
	} {
		got := sendRequest(t, c, "GET", "http://"+e.address(test.port)+test.path, "", "Accept-Encoding: "+test.accept)
		text, err := io.ReadAll(decoded(t, got.header.Get("Content-Encoding"), strings.NewReader(got.body)))
		if err != nil || got.header.Get("Content-Encoding") != test.coding || !strings.HasPrefix(string(text), "GET "+test.path) {
			t.Errorf("%+v: %v, %q, %v; want the coding of the case and the path", test, got.header, text, err)
		}
		if hidden := test.port == "2645" && test.path == "/"; hidden == strings.Contains(string(text), "Accept-Encoding") {
			t.Errorf("%+v: the upstream got\n%s", test, text)
		}
	}
	if got := sendRequest(t, c, "POST", "http://"+e.address("2645")+"/", gzipText(t, "packed"), "Content-Encoding: gzip"); got.status != 200 || strings.Contains(got.body, "Content-Encoding") || !strings.HasSuffix(got.body, "packed") {
		t.Errorf("POST: %d\n%s", got.status, got.body)
	}
	if curl, err := exec.LookPath("curl"); err == nil {
		out, err := exec.CommandContext(t.Context(), curl, "-sS", "--http2-prior-knowledge", "--compressed", "http://"+e.address("2645")+"/curl").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "GET /curl") {
			t.Errorf("curl: %v\n%s", err, out)
		}
	}
}
