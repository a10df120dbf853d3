package dubbo

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/registry"
)

// subscriber owns the subscriptions to the services that the local consumer calls, and the
// snapshots of registries about them: providers, and instances of applications (resolve.go). The
// planner reads the result. The methods are safe for concurrent use. With mu held, they call
// registrations, sessions, the metadata cache, the state writer, onChange and wake. They call
// registries without mu, because registries may call back: only the goroutine of Discovery.Run
// calls Subscribe and the stop functions, and the goroutine that delivers a snapshot calls State.
type subscriber struct {
	settings *settings              // immutable
	state    *stateWriter           // immutable
	tasks    *tasks                 // immutable
	onChange func(registry.Service) // immutable; makes the planner plan a service again
	wake     func()                 // immutable; wakes the loop, which calls startAndStop
	metadata *metadataCache         // immutable

	mu            mutex[rank1]
	closed        bool // guarded by mu, like all fields below; subscribe and unsubscribe return errClosing
	timestamps    timestamps
	subscriptions map[identity]*subscription
	sources       map[registry.Service]subscriptions // the subscriptions to each service, sorted by registry
	pendingStarts []*subscription                    // subscriptions to start
	pendingStops  []func()                           // functions that stop subscriptions
}

type subscriptions []*subscription

func newSubscriber(cfg *settings, state *stateWriter, t *tasks, wake func(), changed func(registry.Service)) *subscriber {
	s := &subscriber{
		settings:      cfg,
		state:         state,
		tasks:         t,
		onChange:      changed,
		wake:          wake,
		subscriptions: map[identity]*subscription{},
		sources:       map[registry.Service]subscriptions{},
	}
	s.metadata = newMetadataCache(t, cfg.Log, s.instancesOf, s.metadataChanged)
	return s
}

// check returns why a subscription cannot start, before the caller opens a session for it.
func (s *subscriber) check(sp *spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLocked(sp)
}

func (s *subscriber) checkLocked(sp *spec) error {
	if err := checkCapacity(s.subscriptions[sp.id] != nil, len(s.subscriptions)); err != nil {
		return err
	}
	if s.closed {
		return errClosing
	}
	return nil
}

// subscribe starts or changes a subscription over a session. The error is a *FieldError or
// errClosing.
func (s *subscriber) subscribe(sp *spec, ses *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(sp); err != nil {
		return err
	}
	old := s.subscriptions[sp.id]
	if old == nil || !reflect.DeepEqual(old.spec.Request, sp.Request) {
		s.state.save(saveSoon)
	}
	if old != nil && old.spec.session == sp.session {
		old.spec = sp
		old.consumer.setURL(s.settings.consumerURL(sp, old.since))
		return nil
	}
	sub := s.newSubscription(sp, ses)
	if old != nil { // the credentials have changed: continue with the snapshot of the old subscription
		sub.currentSnapshot, sub.retainedProviders, sub.removedProviders, sub.evaluatedAt, sub.restored, sub.validUntil, sub.emptySince = old.currentSnapshot, old.retainedProviders, old.removedProviders, old.evaluatedAt, old.hasSnapshot(), time.Now(), old.emptySince
		s.end(old)
	}
	s.add(sub)
	return nil
}

// newSubscription returns a subscription that the loop will start. The caller holds mu.
func (s *subscriber) newSubscription(sp *spec, ses *session) *subscription {
	sub := &subscription{spec: sp, since: s.timestamps.next(), session: ses.acquire(), deadline: time.Now().Add(registryTimeout)}
	sub.consumer = newRegistration(ses, nil, registrationOptions{tasks: s.tasks, log: s.settings.Log})
	sub.consumer.setURL(s.settings.consumerURL(sp, sub.since))
	s.pendingStarts = append(s.pendingStarts, sub)
	s.wake()
	return sub
}

// add adds a subscription. The caller holds mu.
func (s *subscriber) add(sub *subscription) {
	s.subscriptions[sub.spec.id] = sub
	sources := append(s.sources[sub.spec.id.service], sub)
	slices.SortFunc(sources, func(a, b *subscription) int {
		return cmp.Or(cmp.Compare(a.spec.id.registryType, b.spec.id.registryType), cmp.Compare(a.spec.id.address, b.spec.id.address))
	})
	s.sources[sub.spec.id.service] = sources
}

// unsubscribe reverts subscribe. The error wraps ErrNotFound or is errClosing.
func (s *subscriber) unsubscribe(sp *spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosing
	}
	sub := s.subscriptions[sp.id]
	if sub == nil {
		return fmt.Errorf("%s at %s: %w", sp.id.service, sp.session, ErrNotFound)
	}
	s.end(sub)
	s.state.save(saveSoon)
	return nil
}

// end ends a subscription. The caller holds mu.
func (s *subscriber) end(sub *subscription) {
	key := sub.spec.id.service
	sub.ended = true
	delete(s.subscriptions, sub.spec.id)
	s.sources[key] = slices.DeleteFunc(s.sources[key], func(other *subscription) bool { return other == sub })
	if len(s.sources[key]) == 0 {
		delete(s.sources, key)
	}
	stop := sub.stop // nil: not started; startAndStop skips ended subscriptions
	s.pendingStops = append(s.pendingStops, func() {
		if stop != nil {
			stop()
		}
		sub.consumer.end()
		sub.session.release()
	})
	s.wake()
}

// restore subscribes to a service of the state file. It does nothing if the subscription exists.
func (s *subscriber) restore(sp *spec, ses *session, snapshot *registry.Snapshot, evaluatedAt, saved time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscriptions[sp.id] != nil {
		return
	}
	s.state.save(saveSoon)
	sub := s.newSubscription(sp, ses)
	if !evaluatedAt.IsZero() {
		sub.currentSnapshot = *snapshot
		sub.evaluatedAt, sub.restored, sub.validUntil = evaluatedAt, true, saved
	}
	sub.deadline = time.Now() // no request waits for the first snapshot
	s.add(sub)
}

// start makes the loop start the subscriptions whose session is open, and starts their
// registrations as consumers.
func (s *subscriber) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscriptions {
		sub.consumer.start()
		s.pendingStarts = append(s.pendingStarts, sub)
	}
	s.wake()
}

// close makes subscribe and unsubscribe return errClosing.
func (s *subscriber) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// startAndStop starts and stops subscriptions at registries. The loop calls it.
func (s *subscriber) startAndStop() {
	s.mu.Lock()
	starts, stops := s.pendingStarts, s.pendingStops
	s.pendingStarts, s.pendingStops = nil, nil
	s.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	for _, sub := range starts {
		s.mu.Lock()
		ended, started, service := sub.ended, sub.stop != nil, sub.spec.id.service
		s.mu.Unlock()
		reg := sub.session.openRegistry()
		if reg == nil || ended || started {
			continue
		}
		stop := reg.Subscribe(service, func(snapshot registry.Snapshot) { s.onSnapshot(sub, reg.State().SessionCount, snapshot) })
		s.mu.Lock()
		sub.stop = stop
		ended = sub.ended
		s.mu.Unlock()
		if ended {
			stop()
		}
	}
}

// stopAll stops all subscriptions. It must be called after the last startAndStop.
func (s *subscriber) stopAll() {
	s.mu.Lock()
	stops := s.pendingStops
	s.pendingStops = nil
	for _, sub := range s.subscriptions {
		if sub.stop != nil {
			stops = append(stops, sub.stop)
		}
	}
	s.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// onSnapshot processes a snapshot that arrived in the session with the given number. The notify
// function that startAndStop passes to Registry.Subscribe calls it.
func (s *subscriber) onSnapshot(sub *subscription, session int, snapshot registry.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.ended {
		return
	}
	snapshot.Providers = filterAccepted(sub.spec.id.service, snapshot.Providers)
	sub.instanceSnapshot, sub.resolveErr = nil, nil
	if len(snapshot.Instances) > 0 {
		sub.instanceSnapshot, sub.instanceSession = &snapshot, session
		s.resolveInstances(sub)
		return
	}
	s.queueSnapshot(sub, session, snapshot)
}

// queueSnapshot schedules the evaluation of a snapshot without instances. The caller holds mu.
func (s *subscriber) queueSnapshot(sub *subscription, session int, snapshot registry.Snapshot) {
	sub.pendingSnapshot, sub.pendingSession = &snapshot, session
	sub.sawEmpty = sub.sawEmpty && !snapshot.Authoritative || isEmpty(&snapshot) && !snapshot.Authoritative
	s.onChange(sub.spec.id.service)
}

// filterAccepted returns the providers that a consumer of a service accepts. It does not modify
// urls.
func filterAccepted(s registry.Service, urls []registry.URL) []registry.URL {
	rejected := func(u registry.URL) bool { return !s.Accepts(u) }
	if !slices.ContainsFunc(urls, rejected) {
		return urls
	}
	return slices.DeleteFunc(slices.Clone(urls), rejected)
}

// firstSnapshotDeadline returns the time until which the planner waits for the first snapshot of a
// service. It returns the zero time if a registry has sent a snapshot, or there is no subscription.
// The caller holds mu.
func (s *subscriber) firstSnapshotDeadline(key registry.Service) (until time.Time) {
	for _, sub := range s.sources[key] {
		if sub.hasSnapshot() || sub.pendingSnapshot != nil {
			return time.Time{}
		}
		if sub.deadline.After(until) {
			until = sub.deadline
		}
	}
	return until
}

// planInput is the input for the plan of a service.
type planInput struct {
	reference plan.Reference
	snapshots []plan.RegistrySnapshot // one for each subscription
	expiry    time.Time               // when the next retained provider expires; zero: none

	awaitUntil time.Time // if not zero, the planner waits until then for the first snapshot, and no other field is set
}

// planInput evaluates the pending snapshots of a service, and returns the input for its plan. If
// awaitFirst is set, planInput may return only awaitUntil: until that time, the planner waits for
// the first snapshot.
func (s *subscriber) planInput(key registry.Service, now time.Time, awaitFirst bool) planInput {
	s.mu.Lock()
	defer s.mu.Unlock()
	if awaitFirst {
		if until := s.firstSnapshotDeadline(key); until.After(now) {
			return planInput{awaitUntil: until}
		}
	}
	input := planInput{reference: plan.Reference{Service: key}}
	for _, sub := range s.sources[key] {
		if sub.pendingSnapshot != nil {
			s.state.save(saveLater)
		}
		sub.evaluate(now, s.settings.Config.EmptyProtection)
		input.expiry = earlierOf(input.expiry, sub.nextExpiry())
		if input.reference.Parameters == nil {
			input.reference.Parameters = sub.spec.Service.Parameters
		}
		if input.reference.Consumer.Protocol == "" {
			input.reference.Consumer = s.settings.consumerURL(sub.spec, sub.since)
		}
		input.snapshots = append(input.snapshots, plan.RegistrySnapshot{Registry: sub.session.key.String(), Snapshot: sub.effective()})
	}
	return input
}

// stateEntries returns the subscriptions for the state file, and the effective snapshot of each.
func (s *subscriber) stateEntries() ([]stateSubscribed, []registry.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]stateSubscribed, 0, len(s.subscriptions))
	snapshots := make([]registry.Snapshot, 0, len(s.subscriptions))
	for _, sub := range s.subscriptions {
		entries = append(entries, stateSubscribed{stateEntry: stateEntry{sub.spec.Request, sub.since}, Listed: sub.evaluatedAt})
		snapshots = append(snapshots, sub.effective())
	}
	return entries, snapshots
}

// services returns the services with subscriptions.
func (s *subscriber) services() []registry.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]registry.Service, 0, len(s.sources))
	for key := range s.sources {
		keys = append(keys, key)
	}
	return keys
}
