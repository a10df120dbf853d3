package e2e

import (
	"errors"
	"io"
	"net/http"
	"testing"
)

// TestGRPCHealthWhileDraining verifies that health checks that are open when the drain starts,
// and whose message arrives afterwards, get NOT_SERVING.
func TestGRPCHealthWhileDraining(t *testing.T) {
	t.Parallel()
	w, front, c := startGRPCProxy(t, object{"stream_filters": list{streamFilter("healthcheck", object{"grpc": true})}},
		list{cluster("app", nil, "127.0.0.1:1")}, routeTo("/", "app"))
	const message, serving, notServing = "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x02\x08\x01", "\x00\x00\x00\x00\x02\x08\x02"
	type result struct {
		body string
		err  error
	}
	// open starts a call. The returned function sends the message and waits for the response.
	open := func() func() result {
		body, pw := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+front+"/grpc.health.v1.Health/Check", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		responses := make(chan result, 1)
		go func() {
			resp, err := c.Do(req)
			if err != nil {
				responses <- result{err: err}
				return
			}
			defer resp.Body.Close()
			received, err := io.ReadAll(resp.Body)
			responses <- result{string(received), errors.Join(err, statusOK(resp.Trailer))}
		}()
		return func() result {
			if _, err := io.WriteString(pw, message); err != nil {
				return result{err: err}
			}
			_ = pw.Close() // never fails
			return <-responses
		}
	}
	if got := open()(); got.body != serving || got.err != nil {
		t.Fatalf("before the drain the response is %q, %v; want SERVING", got.body, got.err)
	}
	var calls []func() result
	for range 20 {
		calls = append(calls, open())
	}
	eventually(t, "the calls have arrived", func() bool { return w.metric("weft_listener_requests_active") == 20 })
	w.signal(sigterm)
	// The connection drains a moment after the process: until then, a call may get SERVING.
	eventually(t, "a call gets NOT_SERVING", func() bool {
		if len(calls) == 0 {
			t.Fatal("all calls get SERVING, want NOT_SERVING")
		}
		got := calls[0]()
		calls = calls[1:]
		if got.err != nil || got.body != serving && got.body != notServing {
			t.Fatalf("the response is %q, %v; want SERVING or NOT_SERVING", got.body, got.err)
		}
		return got.body == notServing
	})
	for _, call := range calls {
		if got := call(); got.body != notServing || got.err != nil {
			t.Errorf("while draining the response is %q, %v; want NOT_SERVING", got.body, got.err)
		}
	}
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// statusOK returns an error unless the trailers have grpc-status 0.
func statusOK(trailer http.Header) error {
	if status := trailer.Get("Grpc-Status"); status != "0" {
		return errors.New("grpc-status " + status)
	}
	return nil
}
