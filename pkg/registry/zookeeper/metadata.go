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
	path            string
	reading         bool
	lostConnections int                 // number of lost connections during the read
	result          chan metadataResult // capacity 1
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
	read := &metadataRead{path: r.layout.metadata(application, revision), result: make(chan metadataResult, 1)}
	r.callbacks.post(func() {
		r.metadataReads[read] = struct{}{}
		r.readMetadata(read)
	})
	defer r.callbacks.post(func() { delete(r.metadataReads, read) })
	var result metadataResult
	select {
	case result = <-read.result:
	case <-ctx.Done():
		result.err = context.Cause(ctx)
	case <-r.ended:
		result.err = ErrClosed
	}
	switch {
	case errors.Is(result.err, zk.ErrNoNode), result.err == nil && len(result.text) == 0:
		result.err = registry.ErrNoMetadata
	}
	if result.err != nil {
		return nil, fmt.Errorf("metadata of %s, revision %s: %w", application, revision, result.err)
	}
	return result.text, nil
}

// readMetadata performs a read, and retries it after a lost connection.
func (r *Registry) readMetadata(read *metadataRead) {
	if _, pending := r.metadataReads[read]; !pending || read.reading || !r.session.ready {
		return
	}
	read.reading = true
	r.enqueue(func() work {
		return func(c *client) func() {
			text, _, err := c.conn.Get(read.path)
			return func() {
				read.reading = false
				if isLost(err) && read.lostConnections < maxLostConnections {
					read.lostConnections++
					r.afterFunc(backoff(read.lostConnections), func() { r.readMetadata(read) })
					return
				}
				delete(r.metadataReads, read)
				read.result <- metadataResult{text, err}
			}
		}
	})
}
