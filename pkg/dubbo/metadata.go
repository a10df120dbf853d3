package dubbo

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/registry"
)

// metadataCache fetches the metadata of revisions, once for all services and instances, and retries
// after a failure. Its methods are safe for concurrent use. The caller of get holds subscriber.mu;
// the goroutines of the cache call instances and onChange without a lock.
type metadataCache struct {
	tasks     *tasks                                // immutable
	log       *slog.Logger                          // immutable
	instances func(revisionKey) []registry.Instance // immutable; returns the instances that have a revision
	onChange  func(revisionKey)                     // immutable; called when the result of get changes
	slots     chan struct{}                         // semaphore: one element for each fetch that holds a slot

	mu        mutex[rank2]
	revisions map[revisionKey]*revision // guarded by mu, like the revisions
	sweepAt   int                       // guarded by mu; number of revisions at which the next sweep runs
}

// revisionKey identifies a revision.
type revisionKey struct {
	session               *session
	application, revision string
}

func revisionKeyOf(s *session, i registry.Instance) revisionKey {
	return revisionKey{s, i.Application, application.Revision(i)}
}

// matches reports whether an instance has the revision.
func (k revisionKey) matches(i registry.Instance) bool {
	return i.Application == k.application && application.Revision(i) == k.revision
}

// revision is the result of fetching one revision. The zero value means that there is no result
// yet.
type revision struct {
	metadata *application.MetadataInfo // nil: not fetched yet
	err      error                     // of the last attempt; nil: no attempt, or success
}

const (
	fetchTimeout         = 5 * time.Second
	maxConcurrentFetches = 32 // maximum number of fetches that hold a slot
	fetchSlotTime        = 500 * time.Millisecond
	// firstFetchBackoff is the backoff before the second attempt. It doubles with each attempt.
	// Dubbo registers an instance shortly before the instance serves its metadata.
	firstFetchBackoff = 50 * time.Millisecond
	maxRevisions      = 1024 // from this number on, Weft drops unneeded revisions
)

var errRegistryClosed = errors.New("the registry is no longer in use")

func newMetadataCache(t *tasks, log *slog.Logger, instances func(revisionKey) []registry.Instance, changed func(revisionKey)) *metadataCache {
	return &metadataCache{
		tasks: t, log: log, instances: instances, onChange: changed,
		slots:     make(chan struct{}, maxConcurrentFetches),
		revisions: map[revisionKey]*revision{},
	}
}

// get returns the revisions of instances of a session, and starts to fetch each on first use. It
// returns nil if some revisions have no result yet. The element of an instance without a revision
// is zero. needed returns the revisions that a sweep must keep.
func (c *metadataCache) get(s *session, instances []registry.Instance, needed func() map[revisionKey]bool) []revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := false
	for _, i := range instances {
		if key := revisionKeyOf(s, i); key.revision != "" {
			r := c.revisions[key]
			if r == nil {
				r = c.add(key, needed)
			}
			pending = pending || *r == revision{}
		}
	}
	if pending {
		return nil
	}
	result := make([]revision, len(instances))
	for n, i := range instances {
		if r := c.revisions[revisionKeyOf(s, i)]; r != nil {
			result[n] = *r
		}
	}
	return result
}

// add adds a revision, and starts to fetch it. The caller holds mu.
func (c *metadataCache) add(key revisionKey, needed func() map[revisionKey]bool) *revision {
	if len(c.revisions) >= max(maxRevisions, c.sweepAt) {
		keep := needed()
		for key, r := range c.revisions {
			if r.metadata != nil && !keep[key] {
				delete(c.revisions, key)
			}
		}
		c.sweepAt = 2 * len(c.revisions) // sweeps stay rare if most revisions are needed
	}
	r := &revision{}
	c.revisions[key] = r
	c.tasks.run(func(ctx context.Context) { c.fetch(ctx, key, r) })
	return r
}

// fetch tries to fetch the metadata of a revision until it succeeds, or no instance has the
// revision. After fetchTimeout without a result it records errNoResponse, so that snapshots do not
// wait longer. Each attempt needs one of maxConcurrentFetches slots. It releases the slot after
// fetchSlotTime even if it continues, so that dead instances do not block live ones.
func (c *metadataCache) fetch(ctx context.Context, key revisionKey, r *revision) {
	firstResultTimer := time.AfterFunc(fetchTimeout, func() { c.record(ctx, key, r, nil, errNoResponse, true) })
	defer firstResultTimer.Stop()
	backoff := firstFetchBackoff
	for attempt := 0; ; attempt++ {
		c.slots <- struct{}{} // the other fetches release their slots within fetchSlotTime
		releaseSlot := sync.OnceFunc(func() { <-c.slots })
		slotTimer := time.AfterFunc(fetchSlotTime, releaseSlot)
		instances := c.instances(key)
		needed := len(instances) > 0 && ctx.Err() == nil
		var metadata *application.MetadataInfo
		var err error
		if needed {
			metadata, err = fetchOnce(ctx, key.session.openRegistry(), instances[attempt%len(instances)])
		}
		slotTimer.Stop()
		releaseSlot()
		if !needed {
			c.drop(ctx, key, r)
			return
		}
		c.record(ctx, key, r, metadata, err, false)
		if err == nil {
			return
		}
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		backoff = min(2*backoff, maxBackoff)
	}
}

// fetchOnce makes one attempt to fetch the metadata of an instance's revision.
func fetchOnce(ctx context.Context, source registry.Registry, i registry.Instance) (*application.MetadataInfo, error) {
	if source == nil {
		return nil, errRegistryClosed
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return application.Fetch(ctx, source, i)
}

// record records the result of an attempt. If ifFirst is set, an earlier result stays.
func (c *metadataCache) record(ctx context.Context, key revisionKey, r *revision, metadata *application.MetadataInfo, err error, ifFirst bool) {
	c.mu.Lock()
	previous := *r
	if ifFirst && (previous != revision{} || ctx.Err() != nil) {
		c.mu.Unlock()
		return
	}
	*r = revision{metadata, err}
	c.mu.Unlock()
	if err != nil && previous.err == nil && ctx.Err() == nil {
		c.log.Warn("cannot fetch metadata; instances with this metadata are not used; retrying",
			logRegistry, key.session.key.String(), logApplication, key.application, logError, err)
	}
	if previous.err == nil || err == nil {
		c.onChange(key)
	}
}

// drop deletes a revision that no instance has. If an instance has it again, get fetches it again.
func (c *metadataCache) drop(ctx context.Context, key revisionKey, r *revision) {
	c.mu.Lock()
	if c.revisions[key] == r {
		delete(c.revisions, key)
	}
	c.mu.Unlock()
	if ctx.Err() == nil {
		c.onChange(key)
	}
}
