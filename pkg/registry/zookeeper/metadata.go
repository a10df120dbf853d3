package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
)

// metadataRead is a read of metadata that waits for a session. The loop owns it.
type metadataRead struct {
	path    string
	reading bool
	lost    int
	result  chan metadataResult // capacity 1
}

type metadataResult struct {
	text []byte
	err  error
}

// Metadata returns the metadata of a revision: see registry.Registry. While the registry is
// unavailable, it waits until ctx ends.
func (r *Registry) Metadata(ctx context.Context, application, revision string) ([]byte, error) {
	for _, name := range []string{application, revision} {
		if err := checkElement(name); err != nil {
			return nil, fmt.Errorf("metadata of %q, revision %q: %w", application, revision, err)
		}
	}
	q := &metadataRead{path: r.layout.metadata(application, revision), result: make(chan metadataResult, 1)}
	r.callbacks.post(func() {
		r.metadataReads[q] = struct{}{}
		r.readMetadata(q)
	})
	defer r.callbacks.post(func() { delete(r.metadataReads, q) })
	var got metadataResult
	select {
	case got = <-q.result:
	case <-ctx.Done():
		got.err = context.Cause(ctx)
	case <-r.ended:
		got.err = ErrClosed
	}
	switch {
	case errors.Is(got.err, zk.ErrNoNode), got.err == nil && len(got.text) == 0:
		got.err = registry.ErrNoMetadata
	}
	if got.err != nil {
		return nil, fmt.Errorf("metadata of %s, revision %s: %w", application, revision, got.err)
	}
	return got.text, nil
}

// readMetadata performs a read, and retries it after a lost connection.
func (r *Registry) readMetadata(q *metadataRead) {
	if _, there := r.metadataReads[q]; !there || q.reading || !r.session.ready {
		return
	}
	q.reading = true
	r.enqueue(func() work {
		return func(conn *zk.Conn) func() {
			text, _, err := conn.Get(q.path)
			return func() {
				q.reading = false
				if isLost(err) && q.lost < maxLostConnections {
					q.lost++
					r.afterFunc(backoff(q.lost), func() { r.readMetadata(q) })
					return
				}
				delete(r.metadataReads, q)
				q.result <- metadataResult{text, err}
			}
		}
	})
}
