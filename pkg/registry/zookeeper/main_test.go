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

func (j *logBuffer) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(line))
	return len(line), nil
}

// count returns the number of lines that contain a text.
func (j *logBuffer) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, line := range j.lines {
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
	p := &testSession{log: &logBuffer{}}
	options.Log = slog.New(slog.NewTextHandler(p.log, nil))
	t.Cleanup(func() { // after the end of the session
		if t.Failed() {
			t.Logf("state: %+v\n%s", p.State(), strings.Join(p.log.lines, ""))
		}
	})
	p.Session = registrytest.Open(t, zookeeper.New, options)
	return p
}

// zkClient is a plain client that observes what others write.
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
func (w zkClient) put(path, text string) {
	w.t.Helper()
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			w.create(path[:i], "")
		}
	}
	if !w.create(path, text) {
		if _, err := w.Set(path, []byte(text), -1); err != nil {
			w.t.Fatalf("%s: %v", path, err)
		}
	}
}

// create creates a znode, and reports whether it did not exist.
func (w zkClient) create(path, text string) bool {
	w.t.Helper()
	_, err := w.Create(path, []byte(text), 0, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		w.t.Fatalf("%s: %v", path, err)
	}
	return err == nil
}

// children waits until a znode has n children, and returns them.
func (w zkClient) children(path string, n int) []string {
	w.t.Helper()
	limit := time.After(registrytest.Timeout)
	for {
		exists, _, came, err := w.ExistsW(path)
		if err != nil {
			w.t.Fatal(err)
		}
		var names []string
		if exists {
			if names, _, came, err = w.ChildrenW(path); err != nil {
				w.t.Fatal(err)
			}
		}
		if len(names) == n {
			return names
		}
		select {
		case <-came:
		case <-limit:
			w.t.Fatalf("%s has the children %q, want %d", path, names, n)
		}
	}
}
