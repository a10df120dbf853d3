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

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registrytest"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/zookeeper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal records the log of a test.
type journal struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(line))
	return len(line), nil
}

// count returns the number of lines that contain a text.
func (j *journal) count(text string) int {
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

// peer is a session with its log.
type peer struct {
	*registrytest.Session
	journal *journal
}

// open opens a session until the end of the test. The default SessionTimeout is 5 s.
func open(t testing.TB, options registry.Options) *peer {
	t.Helper()
	options.SessionTimeout = cmp.Or(options.SessionTimeout, 5*time.Second)
	p := &peer{journal: &journal{}}
	options.Log = slog.New(slog.NewTextHandler(p.journal, nil))
	t.Cleanup(func() { // after the end of the session
		if t.Failed() {
			t.Logf("state: %+v\n%s", p.State(), strings.Join(p.journal.lines, ""))
		}
	})
	p.Session = registrytest.Open(t, zookeeper.New, options)
	return p
}

// witness is a plain client that observes what others write.
type witness struct {
	t testing.TB
	*zk.Conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func watch(t testing.TB, address string) witness {
	t.Helper()
	conn, events, err := zk.Connect(strings.Split(address, ","), 20*time.Second, zk.WithLogger(quiet{}))
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
	return witness{t, conn}
}

// put writes a znode and its parents, like a client without a password.
func (w witness) put(path, text string) {
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
func (w witness) create(path, text string) bool {
	w.t.Helper()
	_, err := w.Create(path, []byte(text), 0, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		w.t.Fatalf("%s: %v", path, err)
	}
	return err == nil
}

// children waits until a znode has n children, and returns them.
func (w witness) children(path string, n int) []string {
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
