// Package cache saves the last accepted resources of a control plane in a file. Weft can then start
// when the control plane does not respond. The file has no secrets and no private keys: the caller
// leaves them out.
package cache

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"
)

// Keys of log lines.
const (
	logPath  = "path"
	logError = "error"
)

// Status is the status of a Cache.
type Status struct {
	Path       string    `json:"path"`                 // of the file; "": no cache
	ReceivedAt time.Time `json:"received_at,omitzero"` // when the saved resources were received
	InUse      bool      `json:"in_use"`               // the saved resources are active because the control plane does not respond
	Failure    string    `json:"failure,omitempty"`    // why a save or load failed; "": none since the last save
}

// Cache is the cache in a directory. It is safe for concurrent use, except Save and Close. Only
// Status may be called on a nil Cache; it then returns the zero value.
type Cache struct {
	file  file // immutable
	log   *slog.Logger
	saves chan *Contents // capacity 1: the contents to save

	mu     sync.Mutex
	status Status // guarded by mu
}

// New returns the cache in dir. It does not access the directory.
func New(dir string, owner Owner, log *slog.Logger) *Cache {
	c := &Cache{file: file{dir: dir, owner: owner}, log: log, saves: make(chan *Contents, 1)}
	c.status.Path = c.file.path()
	return c
}

// Status returns the current status.
func (c *Cache) Status() (s Status) {
	if c == nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Cache) update(change func(s *Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
}

// Run saves the contents that Save queues, until Close is called.
func (c *Cache) Run() {
	for contents := range c.saves {
		err := c.file.save(contents)
		if err != nil {
			c.log.Error("cannot write the xDS cache", logPath, c.file.path(), logError, err)
		}
		c.update(func(s *Status) {
			s.Failure = ""
			if err != nil {
				s.Failure = err.Error()
			} else {
				s.ReceivedAt = contents.ReceivedAt
			}
		})
	}
}

// Save queues contents and drops queued contents that Run has not saved yet. Calls must not
// overlap.
func (c *Cache) Save(contents *Contents) {
	select {
	case <-c.saves:
	default:
	}
	c.saves <- contents
}

// Close ends Run after the last save. The caller must not call Save again.
func (c *Cache) Close() { close(c.saves) }

// Load returns the contents that were saved last. If there are none, the error matches
// fs.ErrNotExist (errors.Is). Load also fails if the contents are not usable or were received more
// than maxAge before now. A maxAge of 0 means no limit.
func (c *Cache) Load(now time.Time, maxAge time.Duration) (*Contents, error) {
	contents, err := c.file.load(now, maxAge)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.update(func(s *Status) { s.Failure = err.Error() })
	}
	return contents, err
}

// SetInUse records that contents are active because the control plane does not respond.
func (c *Cache) SetInUse(contents *Contents) {
	c.update(func(s *Status) { s.ReceivedAt, s.InUse = contents.ReceivedAt, true })
}

// EndUse records that the control plane responds, and reports whether the cache was in use.
func (c *Cache) EndUse() (inUse bool) {
	c.update(func(s *Status) { inUse, s.InUse = s.InUse, false })
	return inUse
}
