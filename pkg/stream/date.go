package stream

import (
	"sync/atomic"
	"time"
)

// imfFixdate is the layout of RFC 9110 5.6.7.
const imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"

// DateCache caches the text of the current second for Date headers (RFC 9110 6.6.1). The zero value
// is ready to use; it is safe for concurrent use.
type DateCache struct{ current atomic.Pointer[cachedDate] }

type cachedDate struct {
	unix int64
	text string
}

// Date returns t as an IMF-fixdate (RFC 9110 5.6.7).
func (c *DateCache) Date(t time.Time) string {
	unix := t.Unix()
	if s := c.current.Load(); s != nil && s.unix == unix {
		return s.text
	}
	s := &cachedDate{unix, t.UTC().Format(imfFixdate)}
	c.current.Store(s)
	return s.text
}
