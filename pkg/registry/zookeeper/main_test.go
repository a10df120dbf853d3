package zookeeper_test

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	"github.com/weft-proxy/weft/pkg/registry/zookeeper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer records the log of a test.
type logBuffer struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(line))
	return len(line), nil
}

// count returns the number of lines that contain a text.
func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, line := range b.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// testSession is a session with its log.
type testSession struct {
	*registrytest.Session
	log *logBuffer
}

// open opens a session until the end of the test. The default SessionTimeout is 5 s.
func open(t testing.TB, options registry.Options) *testSession {
	t.Helper()
	options.SessionTimeout = cmp.Or(options.SessionTimeout, 5*time.Second)
	s := &testSession{log: &logBuffer{}}
	options.Log = slog.New(slog.NewTextHandler(s.log, nil))
	t.Cleanup(func() { // after the end of the session
		if t.Failed() {
			t.Logf("state: %+v\n%s", s.State(), strings.Join(s.log.lines, ""))
		}
	})
	s.Session = registrytest.Open(t, zookeeper.New, options)
	return s
}

// zkClient is a plain client that reads and writes znodes.
type zkClient struct {
	t testing.TB
	*zk.Conn
}

type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

func dialZK(t testing.TB, address string) zkClient {
	t.Helper()
	conn, events, err := zk.Connect(strings.Split(address, ","), 20*time.Second, zk.WithLogger(discardLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range events {
			continue
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return zkClient{t, conn}
}

// put writes a znode and its parents, like a client without a password.
func (c zkClient) put(path, text string) {
	c.t.Helper()
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			c.create(path[:i], "")
		}
	}
	if !c.create(path, text) {
		if _, err := c.Set(path, []byte(text), -1); err != nil {
			c.t.Fatalf("%s: %v", path, err)
		}
	}
}

// create creates a znode, and reports whether it did not exist.
func (c zkClient) create(path, text string) bool {
	c.t.Helper()
	_, err := c.Create(path, []byte(text), 0, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		c.t.Fatalf("%s: %v", path, err)
	}
	return err == nil
}

// children waits until a znode has n children, and returns them.
func (c zkClient) children(path string, n int) []string {
	c.t.Helper()
	deadline := time.After(registrytest.Timeout)
	for {
		exists, _, changed, err := c.ExistsW(path)
		if err != nil {
			c.t.Fatal(err)
		}
		var names []string
		if exists {
			if names, _, changed, err = c.ChildrenW(path); err != nil {
				c.t.Fatal(err)
			}
		}
		if len(names) == n {
			return names
		}
		select {
		case <-changed:
		case <-deadline:
			c.t.Fatalf("%s has the children %q, want %d", path, names, n)
		}
	}
}
