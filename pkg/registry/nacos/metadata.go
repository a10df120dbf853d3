package nacos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Metadata returns the metadata of a revision: see registry.Registry. Nacos stores it as a
// configuration whose name is the application, in a group whose name is the revision. While the
// registry is unavailable, Metadata retries until ctx ends.
func (r *Registry) Metadata(ctx context.Context, application, name string) ([]byte, error) {
	text, err := r.readMetadata(ctx, revision{application, name}.metadata())
	if err != nil {
		return nil, fmt.Errorf("metadata of %s, revision %s: %w", application, name, err)
	}
	return text, nil
}

func (r *Registry) readMetadata(ctx context.Context, d configKey) ([]byte, error) {
	if !d.isValid() {
		return nil, fmt.Errorf("%q or %q is not a valid name in Nacos", d.id, d.group)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(r.openCtx, func() { stop(ErrClosed) })()
	for failures := 1; ; failures++ {
		text, exists, err := r.readConfig(ctx, d)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.noteResult(err)
		switch {
		case err == nil && (!exists || len(text) == 0):
			return nil, registry.ErrNoMetadata
		case err == nil || !isUnavailable(err):
			return text, err
		}
		timer := time.NewTimer(backoff(failures))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// isNotFound reports whether an error is a 404 response.
func isNotFound(err error) bool {
	var statusErr *statusError
	return errors.As(err, &statusErr) && statusErr.status == http.StatusNotFound
}
