package zookeeper

import (
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
)

// The pause between two reads of a node is readPause, plus readPauseChild for each child, so that
// 10,000 children that are added one by one do not cause 10,000 reads.
const (
	readPause      = 20 * time.Millisecond
	readPauseChild = 20 * time.Microsecond
)

// kind selects the part of a node to read, and the format of that part.
type kind int

const (
	kindChildren  kind = iota // the names of its children
	kindURLs                  // its children as URLs in Dubbo's encoding
	kindData                  // its data
	kindInstances             // its data as an instance in Curator's format
)

// content is the content of a node. It is immutable.
type content struct {
	exists          bool
	names           []string // of the children, sorted; for kindURLs, hashes of the valid ones in that order
	urls            []registry.URL
	skippedCount    int    // number of invalid children, or 1 if the data is invalid
	firstSkipReason string // why the first of them was skipped
	data            string
	instance        *registry.Instance
}

// equal reports whether c and d have the same content.
func (c *content) equal(d *content) bool {
	return c != nil && c.exists == d.exists && c.data == d.data && c.skippedCount == d.skippedCount && slices.Equal(c.names, d.names)
}

// node is a path that the Registry reads and watches for interfaces. The loop owns it.
//
// A watch reports one change, and the next read sets it again. The node is dirty from the watch
// event until a read begins. An event during that read makes it dirty again, so that no change is
// missed.
type node struct {
	path  string
	kind  kind
	users map[*subscribedInterface]struct{} // interfaces that use the node; a node without users exists because of its watch

	content *content // nil: not read yet; may be from an earlier session
	readErr error    // why the server rejects reads
	readAt  time.Time

	watched     bool // the server watches the node for this connection
	dirty       bool // the node may have changed
	reading     bool
	readDelayed bool // a timer delays the next read
	comparing   bool // the current read is a comparison
	failures    int  // consecutive failures
}

// useNode records that an interface uses the node of a path, and returns the node.
func (r *Registry) useNode(path string, k kind, s *subscribedInterface) *node {
	n := r.nodes[path]
	if n == nil {
		n = &node{path: path, kind: k, users: map[*subscribedInterface]struct{}{}, dirty: true}
		r.nodes[path] = n
	}
	n.users[s] = struct{}{}
	r.readIfDirty(n)
	return n
}

// releaseNode ends an interface's use of a node. An unused node loses its content, but stays while
// it is watched, because a watch cannot be removed.
func (r *Registry) releaseNode(n *node, s *subscribedInterface) {
	delete(n.users, s)
	if len(n.users) > 0 {
		return
	}
	n.content, n.readErr, n.dirty = nil, nil, true
	if !n.watched && !n.reading {
		delete(r.nodes, n.path)
	}
}

// onWatchEvent handles a watch event, which ends the watch.
func (r *Registry) onWatchEvent(path string) {
	n := r.nodes[path]
	if n == nil {
		return
	}
	n.watched, n.dirty = false, true
	if len(n.users) == 0 && !n.reading {
		delete(r.nodes, path)
		return
	}
	r.readIfDirty(n)
}

// clearWatches clears all watches, because they belonged to another connection.
func (r *Registry) clearWatches() {
	for path, n := range r.nodes {
		n.watched = false
		if len(n.users) == 0 && !n.reading {
			delete(r.nodes, path)
		}
	}
}

// readIfDirty reads a node if it is dirty.
func (r *Registry) readIfDirty(n *node) {
	if !n.dirty || n.reading || n.readDelayed || !r.session.ready || len(n.users) == 0 {
		return
	}
	if n.content != nil {
		interval := readPause + time.Duration(len(n.content.names))*readPauseChild
		if wait := time.Until(n.readAt.Add(interval)); wait > 0 && !n.comparing {
			r.readAfter(n, wait)
			return
		}
	}
	n.reading = true
	r.enqueue(func() work {
		if len(n.users) == 0 { // the node was released while the read was queued
			r.finishRead(n, r.session.epoch, nil, nil)
			return nil
		}
		n.dirty = false
		epoch, q := r.session.epoch, query{path: n.path, kind: n.kind, watched: n.watched, previous: n.content}
		return func(c *client) func() {
			content, err := q.read(c)
			return func() { r.finishRead(n, epoch, content, err) }
		}
	})
}

// readAfter reads the node after d.
func (r *Registry) readAfter(n *node, d time.Duration) {
	n.readDelayed = true
	r.afterFunc(d, func() {
		n.readDelayed = false
		r.readIfDirty(n)
	})
}

// finishRead processes the result of a read that began in epoch. If read and err are nil, the read
// was skipped.
func (r *Registry) finishRead(n *node, epoch int, read *content, err error) {
	n.reading = false
	comparison := n.comparing
	n.comparing = false
	switch {
	case len(n.users) == 0:
		if !n.watched {
			delete(r.nodes, n.path)
		}
		return
	case epoch != r.session.epoch || read == nil && err == nil:
		n.dirty = true
	case err != nil:
		r.onReadFailed(n, err)
	default:
		n.failures, n.readAt = 0, time.Now()
		changed := n.readErr != nil || !n.content.equal(read)
		// A dirty node got an event during the read, which ended the watch of this read.
		n.watched = !n.dirty
		if comparison && changed && n.content != nil && n.watched {
			r.log.Warn("ZooKeeper watch missed a change", "node", n.path)
			n.watched, n.dirty = false, true
		}
		r.setContent(n, read, changed)
	}
	r.readIfDirty(n)
}

// setContent stores the content of a node. If changed is true, it schedules a refresh of the
// interfaces that use the node.
func (r *Registry) setContent(n *node, found *content, changed bool) {
	previous := n.content
	n.content, n.readErr = found, nil
	if found.skippedCount > 0 && (previous == nil || previous.skippedCount == 0) {
		r.log.Warn("skipped invalid entries of a ZooKeeper node", "node", n.path, "skipped", found.skippedCount, "first", found.firstSkipReason)
	}
	if changed {
		for s := range n.users {
			r.staleInterfaces[s] = struct{}{}
		}
	}
}

// onReadFailed records a failed read. The previous content stays.
func (r *Registry) onReadFailed(n *node, err error) {
	n.dirty = true
	n.failures++
	if !isLost(err) {
		if n.readErr == nil {
			r.log.Warn("cannot read a ZooKeeper node", "node", n.path, "error", err)
		}
		n.readErr = err
		r.stateTracker.Update(func(s *registry.State) { s.LastError = n.path + ": " + err.Error() })
		for s := range n.users {
			r.staleInterfaces[s] = struct{}{}
		}
	}
	r.readAfter(n, backoff(n.failures))
}

// resync schedules comparisons of all nodes and registrations with the server, which run when the
// loop is idle.
func (r *Registry) resync() {
	if len(r.pendingComparisons) > 0 {
		return // still running
	}
	for _, n := range r.nodes {
		r.pendingComparisons = append(r.pendingComparisons, func() {
			if len(n.users) > 0 && !n.dirty && !n.reading {
				n.dirty, n.comparing = true, true
				r.readIfDirty(n)
			}
		})
	}
	for _, e := range r.entries {
		r.pendingComparisons = append(r.pendingComparisons, func() {
			e.markUnconfirmed()
			r.startReconcile(e)
		})
	}
}

// query is one read of a node.
type query struct {
	path     string
	kind     kind
	watched  bool     // the server watches the node already; do not set a second watch
	previous *content // nil: none; its URLs are reused
}

// read reads the node, and sets a watch unless there is one. It runs on a worker.
func (q query) read(c *client) (*content, error) {
	if q.watched {
		return q.readIfExists(c.conn)
	}
	c.hostProvider.watches.add(q.path)
	defer c.hostProvider.watches.remove(q.path)
	const attempts = 5
	for range attempts {
		read, err := q.readIfExists(c.conn)
		if err != nil || read.exists {
			return read, err
		}
		exists, _, err := c.conn.Exists(q.path) // sets a watch also if there is no node
		if err != nil || !exists {
			return read, err
		}
		// The node was created after the first request: try again.
	}
	return nil, errors.New("the node is created and deleted repeatedly")
}

// readIfExists reads the current content. If there is no node, it returns empty content.
func (q query) readIfExists(conn *zk.Conn) (*content, error) {
	c := &content{exists: true}
	var err error
	switch q.kind {
	case kindChildren, kindURLs:
		c.names, _, err = conn.Children(q.path)
	case kindData, kindInstances:
		var text []byte
		text, _, err = conn.Get(q.path)
		c.data = string(text)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return &content{}, nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(c.names)
	switch q.kind {
	case kindURLs:
		c.parse(q.previous)
	case kindInstances:
		c.parseInstance()
	case kindChildren, kindData:
	}
	return c, nil
}

// parse decodes names as URLs, and skips invalid ones. It reuses URLs of previous, which usually
// contains most of them. It replaces the names with hashes, because the names are as long as the
// URLs and are only compared.
func (c *content) parse(previous *content) {
	names := c.names
	c.names, c.urls = make([]string, 0, len(names)), make([]registry.URL, 0, len(names))
	indexes := map[string]int{}
	if previous != nil {
		for i, hash := range previous.names {
			indexes[hash] = i
		}
	}
	for _, name := range names {
		hash := hashName(name)
		if i, ok := indexes[hash]; ok {
			c.names, c.urls = append(c.names, previous.names[i]), append(c.urls, previous.urls[i])
			continue
		}
		u, err := registry.ParseEncoded(name)
		if err != nil {
			c.skip(err)
			continue
		}
		c.names, c.urls = append(c.names, hash), append(c.urls, u)
	}
}

// hashName returns a hash that stands for a name.
func hashName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return string(sum[:16])
}

func (c *content) skip(err error) {
	if c.skippedCount == 0 {
		c.firstSkipReason = err.Error()
	}
	c.skippedCount++
}
