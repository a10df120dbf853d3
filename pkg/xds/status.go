package xds

import (
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
)

// Resource is what is told of one resource.
type Resource struct {
	Version string    `json:"version"`           // the last that was accepted; "": none was
	Updated time.Time `json:"updated"`           // when that was
	Refused string    `json:"refused,omitempty"` // why the last one was not; "": it was
	At      time.Time `json:"refused_at,omitzero"`
}

// track notes what became of an update.
func (s *Source) track(_ *feed, u ads.Update, wrong []ads.Wrong, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tracked[u.Type]
	if of == nil {
		of = map[string]*Resource{}
		s.tracked[u.Type] = of
	}
	for _, n := range u.Changed {
		r := of[n.Name]
		if r == nil {
			r = &Resource{}
			of[n.Name] = r
		}
		r.Version, r.Updated, r.Refused, r.At = versionOf(u, n), now, "", time.Time{}
	}
	for _, w := range wrong {
		r := of[w.Name]
		r.Refused, r.At = w.Reason, now
	}
	for _, name := range u.Removed {
		delete(of, name)
	}
}

func versionOf(u ads.Update, n ads.Resource) string {
	if n.Version != "" {
		return n.Version
	}
	return u.Version
}
