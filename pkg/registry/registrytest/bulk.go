package registrytest

import (
	"fmt"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// BulkAddress is the address of the providers that Bulk registers.
const BulkAddress = "10.0.0.1:20880"

// BulkService returns the i-th interface of Bulk.
func BulkService(i int) string { return fmt.Sprintf("com.example.service.Number%d", i) }

// Bulk subscribes to the first followed services, and concurrently registers a provider for the
// first published ones. It returns the subscribers, in order, after each has received its snapshot.
func (s *Session) Bulk(published, followed int) []*Subscriber {
	s.t.Helper()
	begin := time.Now()
	followers := make([]*Subscriber, followed)
	for i := range followers {
		followers[i] = s.NewSubscriber(registry.Service{Interface: BulkService(i)})
	}
	var all sync.WaitGroup
	for i := range published {
		u := Provider(s.t, BulkService(i), BulkAddress)
		all.Go(func() {
			if err := s.Register(s.t.Context(), u); err != nil {
				s.t.Error(err)
			}
		})
	}
	all.Wait()
	s.t.Logf("%d registrations after %v", published, time.Since(begin))
	for i, f := range followers {
		if i < published {
			f.Await("the provider", At(BulkAddress))
		} else {
			f.Await("nothing", Empty)
		}
	}
	s.skipToCurrent()
	s.t.Logf("and %d subscriptions after %v", followed, time.Since(begin))
	return followers
}

// AddBulkProvider registers one more provider of one service, and returns when its subscriber has
// received the change.
func (s *Session) AddBulkProvider(followers []*Subscriber) {
	s.t.Helper()
	const one, more = 7, "10.0.0.9:1"
	begin := time.Now()
	s.MustRegister(Provider(s.t, BulkService(one), more))
	followers[one].Await("both", At(BulkAddress, more))
	s.t.Logf("one change is registered and told after %v", time.Since(begin))
}
