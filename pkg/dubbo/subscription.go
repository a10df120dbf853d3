package dubbo

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// subscription is the subscription to a service at one registry. Weft does not trust a snapshot
// that looks like a loss in the registry:
//
//	no provider is left                    Weft retains the previous providers, and those
//	                                       removed shortly before, because the sessions
//	                                       of many providers expire one by one
//	more than half are missing in the
//	  first snapshot of another session    Weft retains the missing providers
//
// Retained providers are used next to reported ones until the registry reports them again, or
// EmptyProtection has passed. Retaining a dead provider costs little, because Weft ejects it
// after a few failed attempts. Dropping a live provider can make the service unavailable. Weft
// trusts snapshots that are Authoritative.
type subscription struct {
	spec     *spec         // guarded by subscriber.mu
	since    time.Time     // immutable
	session  *session      // immutable; one reference
	consumer *registration // immutable

	// Guarded by subscriber.mu.
	ended             bool               // unsubscribed
	stop              func()             // nil: not started
	deadline          time.Time          // the planner waits until then for the first snapshot
	instanceSnapshot  *registry.Snapshot // the last snapshot, if it has instances
	instanceSession   int                // number of the session in which instanceSnapshot arrived
	resolveErr        error              // why metadata of some instances cannot be fetched; nil: no failure
	pendingSnapshot   *registry.Snapshot // the snapshot to evaluate next; nil: none
	pendingSession    int                // number of the session in which pendingSnapshot arrived
	sawEmpty          bool               // pendingSnapshot, or a snapshot that it replaced, was empty and not authoritative
	currentSnapshot   registry.Snapshot  // the last evaluated snapshot
	retainedProviders []retainedProvider // used in addition to currentSnapshot
	removedProviders  []removedProvider  // recently removed by the registry
	evaluatedAt       time.Time          // when currentSnapshot was evaluated; zero: no snapshot
	restored          bool               // currentSnapshot was received by a previous process, or with other credentials
	validUntil        time.Time          // if restored: when that process saved currentSnapshot, or the credentials changed
	emptySince        time.Time          // when the registry began to report no provider; zero: it reports one, or has not reported yet
	sessionNumber     int                // number of the session in which currentSnapshot arrived; 0: restored, or no snapshot
}

// providerKey identifies a provider: an interface with its group and version, at an address.
type providerKey struct {
	host    string
	port    uint16
	service registry.Service
}

func providerKeyOf(u registry.URL) providerKey {
	s := u.Service()
	s.Version = registry.PlainVersion(s.Version)
	return providerKey{u.Host, u.Port, s}
}

// retainedProvider is a provider that is used although the registry does not report it.
type retainedProvider struct {
	url   registry.URL
	until time.Time
}

// removedProvider is a provider that the registry no longer reports.
type removedProvider struct {
	url       registry.URL
	removedAt time.Time
}

// When the registry reports no provider, Weft also retains the providers that were removed within
// the last lossWindow. Sessions of providers that lost the registry together expire in this time.
const lossWindow = 2 * time.Minute

// hasSnapshot reports whether there is a snapshot.
func (s *subscription) hasSnapshot() bool { return !s.evaluatedAt.IsZero() }

// evaluate processes the pending snapshot at the time now, and drops expired retained providers.
func (s *subscription) evaluate(now time.Time, emptyAfter time.Duration) {
	if snapshot := s.pendingSnapshot; snapshot != nil {
		s.pendingSnapshot = nil
		s.accept(*snapshot, now, s.pendingSession, emptyAfter)
	}
	s.retainedProviders = slices.DeleteFunc(s.retainedProviders, func(r retainedProvider) bool { return !now.Before(r.until) })
}

// accept makes snapshot the current one, and decides which of the missing providers to retain.
func (s *subscription) accept(snapshot registry.Snapshot, now time.Time, session int, emptyAfter time.Duration) {
	present := map[providerKey]bool{}
	for _, u := range snapshot.Providers {
		present[providerKeyOf(u)] = true
	}
	// missing lists the providers of currentSnapshot that snapshot does not contain.
	var missing []registry.URL
	previous := map[providerKey]bool{}
	for _, u := range s.currentSnapshot.Providers {
		previous[providerKeyOf(u)] = true
		if !present[providerKeyOf(u)] {
			missing = append(missing, u)
		}
	}
	newSession := s.sessionNumber != session
	if s.restored && now.Sub(s.validUntil) >= emptyAfter {
		newSession = false // the restored snapshot is too old to indicate a loss
	}
	suspicious := s.sawEmpty || newSession && 2*len(missing) > len(previous)
	s.retainedProviders = slices.DeleteFunc(s.retainedProviders, func(r retainedProvider) bool { return present[providerKeyOf(r.url)] || snapshot.Authoritative })
	s.removedProviders = slices.DeleteFunc(s.removedProviders, func(p removedProvider) bool {
		return present[providerKeyOf(p.url)] || snapshot.Authoritative || now.Sub(p.removedAt) > lossWindow
	})
	for _, u := range missing {
		s.removedProviders = append(s.removedProviders, removedProvider{u, now})
	}
	if s.sawEmpty {
		missing = s.recentlyRemoved()
	}
	s.sawEmpty = false
	if suspicious && !snapshot.Authoritative && emptyAfter > 0 {
		for _, u := range missing {
			s.retainedProviders = append(s.retainedProviders, retainedProvider{u, now.Add(emptyAfter)})
		}
		if isEmpty(&snapshot) {
			snapshot = withRules(snapshot, s.currentSnapshot)
		}
	}
	switch {
	case !isEmpty(&snapshot):
		s.emptySince = time.Time{}
	case s.emptySince.IsZero():
		s.emptySince = now
	}
	s.currentSnapshot, s.evaluatedAt, s.restored, s.sessionNumber = snapshot, now, false, session
}

// recentlyRemoved returns the providers in removedProviders that are not retained yet.
func (s *subscription) recentlyRemoved() (urls []registry.URL) {
	retained := make(map[providerKey]bool, len(s.retainedProviders))
	for _, r := range s.retainedProviders {
		retained[providerKeyOf(r.url)] = true
	}
	for _, p := range s.removedProviders {
		if !retained[providerKeyOf(p.url)] {
			urls = append(urls, p.url)
		}
	}
	return urls
}

// isEmpty reports whether a snapshot has no providers or instances.
func isEmpty(snapshot *registry.Snapshot) bool {
	return len(snapshot.Providers) == 0 && len(snapshot.Instances) == 0
}

// withRules returns snapshot with the configurators or routers of previous if it has none: a
// registry that lost the providers has lost the rules, too.
func withRules(snapshot, previous registry.Snapshot) registry.Snapshot {
	if len(snapshot.Configurators) == 0 {
		snapshot.Configurators = previous.Configurators
	}
	if len(snapshot.Routers) == 0 {
		snapshot.Routers = previous.Routers
	}
	return snapshot
}

// effective returns the current snapshot with the retained providers.
func (s *subscription) effective() registry.Snapshot {
	snapshot := s.currentSnapshot
	if len(s.retainedProviders) > 0 {
		snapshot.Providers = slices.Clone(snapshot.Providers)
		for _, r := range s.retainedProviders {
			snapshot.Providers = append(snapshot.Providers, r.url)
		}
	}
	return snapshot
}

// emptyProtected reports whether the registry reports no provider, but retained ones are used.
func (s *subscription) emptyProtected() bool {
	return len(s.retainedProviders) > 0 && len(s.currentSnapshot.Providers) == 0
}

// nextExpiry returns when the next retained provider expires, or zero.
func (s *subscription) nextExpiry() (expiry time.Time) {
	for _, r := range s.retainedProviders {
		if expiry.IsZero() || r.until.Before(expiry) {
			expiry = r.until
		}
	}
	return expiry
}
