package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// metadataRead is a read of metadata that waits for a session. The loop owns it.
type metadataRead struct {
	path   string
	asking bool
	lost   int
	answer chan reply // capacity 1
}

type reply struct {
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
	q := &metadataRead{path: r.layout.metadata(application, revision), answer: make(chan reply, 1)}
	r.mailbox.post(func() {
		r.inquiries[q] = struct{}{}
		r.ask(q)
	})
	defer r.mailbox.post(func() { delete(r.inquiries, q) })
	var got reply
	select {
	case got = <-q.answer:
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

// ask performs a read, and retries it after a lost connection.
func (r *Registry) ask(q *metadataRead) {
	if _, there := r.inquiries[q]; !there || q.asking || !r.session.ready {
		return
	}
	q.asking = true
	r.enqueue(func() work {
		return func(conn *zk.Conn) func() {
			text, _, err := conn.Get(q.path)
			return func() {
				q.asking = false
				if isLost(err) && q.lost < patienceLost {
					q.lost++
					r.afterFunc(backoff(q.lost), func() { r.ask(q) })
					return
				}
				delete(r.inquiries, q)
				q.answer <- reply{text, err}
			}
		}
	})
}
