package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// toolTimeout is the timeout of one run of another program.
const toolTimeout = 60 * time.Second

// target is the server that a client calls: an origin, or Weft in front of one.
type target struct {
	address string
	origin  *origin
	drain   func(t *testing.T) // shuts the server down gracefully and waits for its exit
}

// targets maps each server under test to the function that starts it. net-http is Go's own
// server, without Weft: it shows that the tests can pass.
func targets() map[string]func(t *testing.T) target {
	weftTarget := func(upstream string, http2 bool) func(t *testing.T) target {
		return func(t *testing.T) target {
			t.Helper()
			o := startOrigin(t, http2)
			w := startWeft(t, listener{upstream: upstream, hosts: []string{o.address}})
			return target{w.addresses[0], o, func(t *testing.T) {
				t.Helper()
				w.terminate(t)
				if status := w.awaitExit(t, waitTimeout); status != 0 {
					t.Errorf("weft exited with status %d, want 0", status)
				}
			}}
		}
	}
	return map[string]func(t *testing.T) target{
		"net-http": func(t *testing.T) target {
			t.Helper()
			o := startOrigin(t, true)
			return target{o.address, o, o.drain}
		},
		"weft-to-http1": weftTarget("Http1", false),
		"weft-to-http2": weftTarget("Http2", true),
	}
}

// forEachTarget runs a test on each target in parallel.
func forEachTarget(t *testing.T, test func(t *testing.T, srv target)) {
	t.Helper()
	t.Parallel()
	for name, start := range targets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// run runs a program and returns its output; it fails the test if the program fails.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// curl runs curl for HTTP/2 with prior knowledge. Its output has heads, content, trailers, and a
// last line with the version and the status.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	program := requireTool(t, "curl", "curl")
	return run(t, program, append([]string{
		"--http2-prior-knowledge", "--silent", "--show-error", "--include", "--max-time", "30", "--noproxy", "*",
		"--write-out", "HTTP/%{http_version} %{response_code}\n",
	}, args...)...)
}

// tempFile writes a file of size bytes.
func tempFile(t *testing.T, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkContains reports an error for each part that the text does not contain.
func checkContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

func TestCurlGets(t *testing.T) {
	forEachTarget(t, func(t *testing.T, srv target) {
		out := curl(t, "http://"+srv.address+"/path?query")
		checkContains(t, out, "HTTP/2 200", "GET /path ", "\nHTTP/2 200\n")
		out = curl(t, "--head", "http://"+srv.address+"/bytes/1234")
		checkContains(t, out, "content-length: 1234\r\n", "\nHTTP/2 200\n")
	})
}

func TestCurlUploads10MB(t *testing.T) {
	forEachTarget(t, func(t *testing.T, srv target) {
		const size = 10 << 20
		out := curl(t, "--data-binary", "@"+tempFile(t, size), "http://"+srv.address+"/upload")
		checkContains(t, out, "POST /upload ", " 10485760\n", "\nHTTP/2 200\n")
		out = curl(t, "--upload-file", tempFile(t, size), "-H", "Content-Length:", "http://"+srv.address+"/unsized")
		checkContains(t, out, "PUT /unsized ", " 10485760\n", "\nHTTP/2 200\n")
	})
}

func TestCurlDownloads10MB(t *testing.T) {
	forEachTarget(t, func(t *testing.T, srv target) {
		out := curl(t, "--output", os.DevNull, "--write-out", "%{size_download}\n", "http://"+srv.address+"/bytes/10485760")
		checkContains(t, out, "10485760\n")
	})
}

// TestTrailersInBothDirections verifies that request and response trailers are forwarded: the
// origin copies the request trailer to the response. The response has no Content-Length, because
// HTTP/1.1 has trailers only after chunks.
func TestTrailersInBothDirections(t *testing.T) {
	nghttp := requireTool(t, "nghttp", "nghttp2-client")
	forEachTarget(t, func(t *testing.T, srv target) {
		out := curl(t, "--header", "X-Before: in the head", "http://"+srv.address+"/trailers")
		checkContains(t, out, "content\n", "\nx-after: in the head\r\n")
		out = run(t, nghttp, "-v", "--no-content-length", "-d", tempFile(t, 1000), "--trailer", "x-before: behind", "http://"+srv.address+"/trailers")
		checkContains(t, out, "x-after: behind")
	})
}

// TestNghttpWithPriorities verifies that clients never receive a push, and that clients that send
// priorities are served.
func TestNghttpWithPriorities(t *testing.T) {
	nghttp := requireTool(t, "nghttp", "nghttp2-client")
	forEachTarget(t, func(t *testing.T, srv target) {
		for _, args := range [][]string{
			{"--weight=256"},
			{"--weight=1", "--no-dep"},
			{"--multiply=20", "--no-push"},
			{"--max-concurrent-streams=1", "--window-bits=10", "--connection-window-bits=12"},
			{"--header-table-size=0"},
			{"--padding=200"},
		} {
			out := run(t, nghttp, append(args, "-v", "http://"+srv.address+"/bytes/20000")...)
			checkContains(t, out, ":status: 200", "content-length: 20000")
			for _, unwanted := range []string{"PUSH_PROMISE", "recv RST_STREAM", "recv (stream_id=0)"} {
				if strings.Contains(out, unwanted) {
					t.Errorf("%v: nghttp got %s:\n%s", args, unwanted, out)
				}
			}
			if regexp.MustCompile(`recv GOAWAY[^\n]*\n[^\n]*error_code=[^N]`).MatchString(out) {
				t.Errorf("%v: nghttp got a GOAWAY with an error:\n%s", args, out)
			}
		}
	})
}

// h2load runs h2load and verifies that all requests succeed.
func h2load(t *testing.T, want string, args ...string) {
	t.Helper()
	out := run(t, requireTool(t, "h2load", "nghttp2-client"), args...)
	checkContains(t, out, want+" succeeded, 0 failed, 0 errored, 0 timeout", "status codes: "+want+" 2xx")
}

func TestH2LoadWithManyStreams(t *testing.T) {
	requireTool(t, "h2load", "nghttp2-client")
	forEachTarget(t, func(t *testing.T, srv target) {
		h2load(t, "100", "-n100", "-c1", "-m100", "http://"+srv.address+"/wait/50ms")
		h2load(t, "5000", "-n5000", "-c5", "-m100", "http://"+srv.address+"/bytes/1024")
		h2load(t, "400", "-n400", "-c4", "-m20", "-d", tempFile(t, 100_000), "http://"+srv.address+"/upload")
		h2load(t, "50", "-n50", "-c2", "-m25", "-w10", "-W12", "http://"+srv.address+"/bytes/100000")
	})
}

// TestDrainCompletesOpenStreams verifies that a drain completes every open stream. h2load has 100
// requests in flight when the drain begins.
func TestDrainCompletesOpenStreams(t *testing.T) {
	requireTool(t, "h2load", "nghttp2-client")
	forEachTarget(t, func(t *testing.T, srv target) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			srv.origin.awaitRequests(t, 100)
			srv.drain(t)
		}()
		h2load(t, "100", "-n100", "-c4", "-m25", "http://"+srv.address+"/wait/1s")
		<-ended
	})
}

// TestDrainUnderLoad verifies that a refused connection is the only error of a client under load
// during a drain. Requests on existing connections succeed, or GOAWAY reports that the client may
// retry them.
func TestDrainUnderLoad(t *testing.T) {
	forEachTarget(t, func(t *testing.T, srv target) {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: waitTimeout}
		// All clients use the connection of this request. If each opened one, the kernel could reset
		// those that the server has not accepted when its listener closes.
		if err := get(client, "http://"+srv.address+"/bytes/100"); err != nil {
			t.Fatal(err)
		}
		var responses atomic.Int64
		var clients sync.WaitGroup
		for range 16 {
			clients.Go(func() {
				for {
					switch err := get(client, "http://"+srv.address+"/bytes/100"); {
					case err == nil:
						responses.Add(1)
					case errors.Is(err, syscall.ECONNREFUSED):
						return
					default:
						t.Errorf("after %d responses: %v", responses.Load(), err)
						return
					}
				}
			})
		}
		srv.origin.awaitRequests(t, 1000)
		srv.drain(t)
		clients.Wait()
		if responses.Load() < 900 {
			t.Errorf("%d requests got a response, want at least 900", responses.Load())
		}
	})
}

// get requests url, and returns an error unless the response has status 200 and a body of 100
// bytes.
func get(client *http.Client, url string) error {
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, r.Body)
	_ = r.Body.Close() // the body was read
	if err == nil && (r.StatusCode != http.StatusOK || n != 100) {
		return fmt.Errorf("status %s, body of %d bytes, want 200 and 100 bytes", r.Status, n)
	}
	return err
}

// TestHTTP1ClientToHTTP2Upstream verifies the translation from HTTP/1.1 to HTTP/2.
func TestHTTP1ClientToHTTP2Upstream(t *testing.T) {
	t.Parallel()
	curl := requireTool(t, "curl", "curl")
	o := startOrigin(t, true)
	w := startWeft(t, listener{downstream: "Http1", upstream: "Http2", hosts: []string{o.address}})
	url := "http://" + w.addresses[0]
	args := []string{"--silent", "--show-error", "--include", "--max-time", "30", "--noproxy", "*"}
	checkContains(t, run(t, curl, append(args, url+"/path?query")...), "HTTP/1.1 200 OK\r\n", "GET /path 2 0\n")
	checkContains(t, run(t, curl, append(args, "--data-binary", "@"+tempFile(t, 10<<20), url+"/upload")...), "POST /upload 2 10485760\n")
	checkContains(t, run(t, curl, append(args, "--header", "X-Before: value", url+"/trailers")...), "content\n", "x-after: value\r\n")
	checkContains(t, run(t, curl, append(args, "--head", url+"/bytes/1234")...), "1234\r\n")
}

func TestUpgradeToH2C(t *testing.T) {
	t.Parallel()
	nghttp := requireTool(t, "nghttp", "nghttp2-client")
	o := startOrigin(t, true)
	w := startWeft(t, listener{downstream: "Http1,Http2", hosts: []string{o.address}})
	out := run(t, nghttp, "-v", "--upgrade", "http://"+w.addresses[0]+"/direct")
	checkContains(t, out, "101 Switching Protocols", ":status: 200", "response of the proxy")
	checkContains(t, curl(t, "http://"+w.addresses[0]+"/direct"), "\nHTTP/2 200\n") // prior knowledge, on the same port
}
