package zookeeper

import (
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// A node that changes is read again at once, and then not for a while: for each of its
// children a little, so that 10,000 that come one by one are not read 10,000 times.
const (
	readPause      = 20 * time.Millisecond
	readPauseChild = 20 * time.Microsecond
)

// kind is what of a node counts.
type kind int

const (
	children  kind = iota // the names below it
	urls                  // URLs below it, as Dubbo writes them
	data                  // its data
	instances             // its data, an instance as Curator writes them
)

// content is what is known of a node. It is not changed.
type content struct {
	exists   bool
	names    []string // sorted; of kind urls the marks of those that are URLs
	urls     []registry.URL
	skipped  int    // children that are no URLs, or data that are no instance
	first    string // why the first was skipped
	data     string
	instance *registry.Instance
}

// equal reports whether there is nothing new in d.
func (c *content) equal(d *content) bool {
	return c != nil && c.exists == d.exists && c.data == d.data && c.skipped == d.skipped && slices.Equal(c.names, d.names)
}

// node is a path that is read and watched for services. The loop owns it.
//
// A watch tells of one change. It is set again by the read that follows, and the node is
// dirty from the event on until a read that began after it has ended: no change is
// between.
type node struct {
	path  string
	kind  kind
	users map[*service]struct{} // none: it is kept for its watch

	known  *content // nil: it was not read yet; else of this session or one before
	denied error    // why the server does not let it be read
	readAt time.Time

	armed    bool // the server watches it for this session
	dirty    bool // it may be another now
	reading  bool
	waiting  bool // for a timer, to be read
	sweeping bool // it is read to be compared
	failures int  // in a row
}

// use returns the node of a path for a service.
func (r *Registry) use(path string, k kind, s *service) *node {
	n := r.nodes[path]
	if n == nil {
		n = &node{path: path, kind: k, users: map[*service]struct{}{}, dirty: true}
		r.nodes[path] = n
	}
	n.users[s] = struct{}{}
	r.attendNode(n)
	return n
}

// release ends a service's use of a node. What was known of one that nobody uses is
// forgotten, but not that it is watched: a watch cannot be taken back.
func (r *Registry) release(n *node, s *service) {
	delete(n.users, s)
	if len(n.users) > 0 {
		return
	}
	n.known, n.denied, n.dirty = nil, nil, true
	if !n.armed && !n.reading {
		delete(r.nodes, n.path)
	}
}

// touch takes the event of a watch, which it was the last one of.
func (r *Registry) touch(path string) {
	n := r.nodes[path]
	if n == nil {
		return
	}
	n.armed, n.dirty = false, true
	if len(n.users) == 0 && !n.reading {
		delete(r.nodes, path)
		return
	}
	r.attendNode(n)
}

// disarm forgets all watches: they were of another session.
func (r *Registry) disarm() {
	for path, n := range r.nodes {
		n.armed = false
		if len(n.users) == 0 && !n.reading {
			delete(r.nodes, path)
		}
	}
}

// attendNode has a node read if it is to be.
func (r *Registry) attendNode(n *node) {
	if !n.dirty || n.reading || n.waiting || !r.session.ready || len(n.users) == 0 {
		return
	}
	if n.known != nil {
		pause := readPause + time.Duration(len(n.known.names))*readPauseChild
		if wait := time.Until(n.readAt.Add(pause)); wait > 0 && !n.sweeping {
			r.attendNodeAfter(n, wait)
			return
		}
	}
	n.reading = true
	r.enqueue(func() work {
		if len(n.users) == 0 { // released while it was queued
			r.finishRead(n, r.session.epoch, nil, nil)
			return nil
		}
		n.dirty = false
		epoch, q := r.session.epoch, query{path: n.path, kind: n.kind, armed: n.armed, before: n.known}
		return func(conn *zk.Conn) func() {
			found, err := q.read(conn)
			return func() { r.finishRead(n, epoch, found, err) }
		}
	})
}

// attendNodeAfter has it read after a while.
func (r *Registry) attendNodeAfter(n *node, d time.Duration) {
	n.waiting = true
	r.afterFunc(d, func() {
		n.waiting = false
		r.attendNode(n)
	})
}

// finishRead takes what a read that began in an epoch has found. Nil and nil: nothing was
// read.
func (r *Registry) finishRead(n *node, epoch int, found *content, err error) {
	n.reading = false
	swept := n.sweeping
	n.sweeping = false
	switch {
	case len(n.users) == 0:
		if !n.armed {
			delete(r.nodes, n.path)
		}
		return
	case epoch != r.session.epoch || found == nil && err == nil:
		n.dirty = true
	case err != nil:
		r.failRead(n, err)
	default:
		n.failures, n.readAt = 0, time.Now()
		changed := n.denied != nil || !n.known.equal(found)
		// Dirty: there was an event since, and the watch that this read has set is gone.
		n.armed = !n.dirty
		if swept && changed && n.known != nil && n.armed {
			r.log.Warn("a watch of ZooKeeper has not told of a change", "node", n.path)
			n.armed, n.dirty = false, true
		}
		r.learn(n, found, changed)
	}
	r.attendNode(n)
}

// learn takes new content of a node.
func (r *Registry) learn(n *node, found *content, changed bool) {
	before := n.known
	n.known, n.denied = found, nil
	if found.skipped > 0 && (before == nil || before.skipped == 0) {
		r.log.Warn("ZooKeeper has what is none of Dubbo's", "node", n.path, "skipped", found.skipped, "first", found.first)
	}
	if changed {
		for s := range n.users {
			r.stale[s] = struct{}{}
		}
	}
}

// failRead notes that a node could not be read. What is known of it stays.
func (r *Registry) failRead(n *node, err error) {
	n.dirty = true
	n.failures++
	if !isLost(err) {
		if n.denied == nil {
			r.log.Warn("ZooKeeper does not let a node be read", "node", n.path, "error", err)
		}
		n.denied = err
		r.standing.Update(func(s *registry.State) { s.LastError = n.path + ": " + err.Error() })
		for s := range n.users {
			r.stale[s] = struct{}{}
		}
	}
	r.attendNodeAfter(n, backoff(n.failures))
}

// resync compares all that is wanted with what is there, when there is time.
func (r *Registry) resync() {
	if len(r.sweeping) > 0 {
		return // it is at it
	}
	for _, n := range r.nodes {
		r.sweeping = append(r.sweeping, func() {
			if len(n.users) > 0 && !n.dirty && !n.reading {
				n.dirty, n.sweeping = true, true
				r.attendNode(n)
			}
		})
	}
	for _, e := range r.entries {
		r.sweeping = append(r.sweeping, func() {
			e.doubt()
			r.startReconcile(e)
		})
	}
}

// query is how a node is read.
type query struct {
	path   string
	kind   kind
	armed  bool     // the server watches it: another watch would be one too many
	before *content // nil: none; what it has is not read twice
}

// read reads the node, and sets a watch unless there is one. It runs on a worker.
func (q query) read(conn *zk.Conn) (*content, error) {
	const most = 5
	for range most {
		found, err := q.get(conn)
		if !errors.Is(err, zk.ErrNoNode) {
			return found, err
		}
		if q.armed {
			return &content{}, nil
		}
		exists, _, _, err := conn.ExistsW(q.path)
		if err != nil {
			return nil, err
		}
		if !exists {
			return &content{}, nil
		}
		// It was created between the two.
	}
	return nil, errors.New("it comes and goes")
}

// get reads what is there.
func (q query) get(conn *zk.Conn) (*content, error) {
	found := &content{exists: true}
	switch q.kind {
	case children, urls:
		var err error
		if q.armed {
			found.names, _, err = conn.Children(q.path)
		} else {
			found.names, _, _, err = conn.ChildrenW(q.path)
		}
		if err != nil {
			return nil, err
		}
		slices.Sort(found.names)
		if q.kind == urls {
			found.parse(q.before)
		}
	case data, instances:
		var text []byte
		var err error
		if q.armed {
			text, _, err = conn.Get(q.path)
		} else {
			text, _, _, err = conn.GetW(q.path)
		}
		if err != nil {
			return nil, err
		}
		found.data = string(text)
		if q.kind == instances {
			found.parseInstance()
		}
	}
	return found, nil
}

// parse reads names as URLs, and leaves out those that are none. What was read before is
// taken from there: most of a long list is. Of the names their marks are kept: a name is as
// long as the URL, and is only to tell whether it is another.
func (c *content) parse(before *content) {
	all := c.names
	c.names, c.urls = make([]string, 0, len(all)), make([]registry.URL, 0, len(all))
	known := map[string]int{}
	if before != nil {
		for i, m := range before.names {
			known[m] = i
		}
	}
	for _, name := range all {
		m := mark(name)
		if i, ok := known[m]; ok {
			c.names, c.urls = append(c.names, before.names[i]), append(c.urls, before.urls[i])
			continue
		}
		u, err := registry.ParseEncoded(name)
		if err != nil {
			c.skip(err)
			continue
		}
		c.names, c.urls = append(c.names, m), append(c.urls, u)
	}
}

// mark returns what stands for a name: no two names have the same.
func mark(name string) string {
	sum := sha256.Sum256([]byte(name))
	return string(sum[:16])
}

func (c *content) skip(err error) {
	if c.skipped == 0 {
		c.first = err.Error()
	}
	c.skipped++
}
