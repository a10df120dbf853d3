package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

// callTimeout is the timeout of a call.
const callTimeout = 10 * time.Second

// remote is a client of the service of the Java peers.
type remote struct {
	Say         func(ctx context.Context, text string) (string, error)               `dubbo:"say"`
	Nothing     func(ctx context.Context, text string) (any, error)                  `dubbo:"nothing"`
	Fail        func(ctx context.Context, message string) (string, error)            `dubbo:"fail"`
	Refuse      func(ctx context.Context, message string) (string, error)            `dubbo:"refuse"`
	Sleep       func(ctx context.Context, text string, millis int64) (string, error) `dubbo:"sleep"`
	Reverse     func(ctx context.Context, data []byte) ([]byte, error)               `dubbo:"reverse"`
	Attachments func(ctx context.Context) (map[any]any, error)                       `dubbo:"attachments"`
}

// consumer runs scenarios.
type consumer struct {
	client  *client.Client
	remotes map[string]*remote // by port

	mu      sync.Mutex
	reports *json.Encoder // guarded by mu
}

func consume(reports *os.File) error {
	cli, err := client.NewClient(client.WithClientProtocolDubbo(), client.WithClientNoCheck())
	if err != nil {
		return err
	}
	c := &consumer{client: cli, remotes: map[string]*remote{}, reports: json.NewEncoder(reports)}
	if _, err := fmt.Fprintln(reports, "ready 0"); err != nil {
		return err
	}
	return commands(c.runScenario)
}

// line is one report. The order of its fields is the same in all peers.
type line struct {
	Call      string `json:"call,omitempty"`
	Value     any    `json:"value,omitempty"`
	Exception string `json:"exception,omitempty"`
	Message   string `json:"message,omitempty"`
	ElapsedMS *int64 `json:"elapsed_ms,omitempty"`
	End       string `json:"end,omitempty"`
	Problem   string `json:"problem,omitempty"`
}

func (c *consumer) report(l line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reports.Encode(l); err != nil {
		fail(err)
	}
}

// runScenario runs the scenario of a command: SCENARIO PORT.
func (c *consumer) runScenario(command string) {
	words := strings.Fields(command)
	if len(words) < 2 {
		fail(fmt.Errorf("invalid command %q", command))
	}
	end := line{End: words[0]}
	scenario, ok := scenarios()[words[0]]
	r, err := c.remote(words[1])
	switch {
	case !ok:
		end.Problem = "no such scenario"
	case err != nil:
		end.Problem = err.Error()
	default:
		scenario(c, r)
	}
	c.report(end)
}

// remote returns the client of the service at a port. There is one for each port.
func (c *consumer) remote(port string) (*remote, error) {
	if r := c.remotes[port]; r != nil {
		return r, nil
	}
	r := &remote{}
	_, err := c.client.DialWithService(service, r,
		client.WithURL("dubbo://127.0.0.1:"+port+"/"+service),
		client.WithProtocolDubbo(),
		client.WithSerialization(constant.Hessian2Serialization),
		client.WithClusterFailFast(),
		client.WithRetries(0),
		client.WithRequestTimeout(callTimeout),
	)
	c.remotes[port] = r
	return r, err
}

// hostPort matches addresses of loopback, which differ between runs.
var hostPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// call makes a call and reports its result.
func (c *consumer) call(name string, f func() (any, error)) {
	start := time.Now()
	value, err := f()
	elapsed := time.Since(start).Milliseconds()
	l := line{Call: name, ElapsedMS: &elapsed}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		l.Exception, l.Message = fmt.Sprintf("%T", err), hostPort.ReplaceAllString(first, "ADDRESS")
	} else {
		l.Value = short(value)
	}
	c.report(l)
}

// short returns value, or for bytes and long texts their length and checksum.
func short(value any) any {
	switch v := value.(type) {
	case []byte:
		return fmt.Sprintf("%d bytes, crc %08x", len(v), crc32.ChecksumIEEE(v))
	case string:
		if len(v) > 400 {
			return fmt.Sprintf("%d bytes of text, crc %08x", len(v), crc32.ChecksumIEEE([]byte(v)))
		}
	case nil:
		return "nil"
	}
	return value
}

func scenarios() map[string]func(*consumer, *remote) {
	return map[string]func(*consumer, *remote){
		"value":             (*consumer).value,
		"null":              (*consumer).null,
		"user-exception":    (*consumer).userException,
		"runtime-exception": (*consumer).runtimeException,
		"concurrent":        (*consumer).concurrent,
		"attachments":       (*consumer).attachments,
	}
}

// say calls the method that every provider has.
func (c *consumer) say(name string, r *remote, text string) {
	c.call(name, func() (any, error) { return r.Say(context.Background(), text) })
}

func (c *consumer) value(r *remote) {
	c.say("short", r, "hello")
	c.say("empty", r, "")
	c.say("beyond the first plane", r, "\u00e4\u20ac\U0001f600")
	c.say("of two chunks", r, strings.Repeat("x", 70_000))
	c.call("bytes both ways", func() (any, error) {
		data := make([]byte, 500_000) // the library accepts no frame of a megabyte
		for i := range data {
			data[i] = byte(i * 31 >> 3)
		}
		return r.Reverse(context.Background(), data)
	})
}

func (c *consumer) null(r *remote) {
	c.call("result", func() (any, error) { return r.Nothing(context.Background(), "x") })
	c.say("afterwards", r, "still here")
}

func (c *consumer) userException(r *remote) {
	c.call("refuse", func() (any, error) { return r.Refuse(context.Background(), "not today") })
	c.say("afterwards", r, "still here")
}

func (c *consumer) runtimeException(r *remote) {
	c.call("fail", func() (any, error) { return r.Fail(context.Background(), "out of order") })
	c.say("afterwards", r, "still here")
}

// concurrent makes a hundred calls concurrently. The first calls get their responses last.
func (c *consumer) concurrent(r *remote) {
	var mu sync.Mutex
	responses, wrongResponses, firstDone := 0, 0, -1
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			want, delay := fmt.Sprint("call ", i), int64(100-i)*5
			if i == 0 {
				delay = 1000 // until other calls have finished
			}
			got, err := r.Sleep(context.Background(), want, delay)
			mu.Lock()
			defer mu.Unlock()
			responses++
			if err != nil || got != want {
				wrongResponses++
			}
			if firstDone < 0 {
				firstDone = i
			}
		})
	}
	calls.Wait()
	c.report(line{Call: "responses", Value: responses})
	c.report(line{Call: "responses of another call, or none", Value: fmt.Sprint(wrongResponses)})
	c.report(line{Call: "out of order", Value: firstDone != 0})
}

func (c *consumer) attachments(r *remote) {
	sent := map[string]any{"user-key": "user value", "unicode": "\u00e4\u20ac"}
	ctx := context.WithValue(context.Background(), constant.AttachmentKey, sent)
	seen := func(ctx context.Context) func() (any, error) {
		return func() (any, error) {
			got, err := r.Attachments(ctx)
			return []any{got["user-key"], got["unicode"]}, err
		}
	}
	c.call("seen by the provider", seen(ctx))
	c.call("the next call has none", seen(context.Background()))
}
