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

// Bulk subscribes to the services BulkService(0) to BulkService(subscribed-1). It concurrently
// registers a provider for each of BulkService(0) to BulkService(published-1). It returns the
// subscribers, in order, after each has received its snapshot.
func (s *Session) Bulk(published, subscribed int) []*Subscriber {
	s.t.Helper()
	start := time.Now()
	subscribers := make([]*Subscriber, subscribed)
	for i := range subscribers {
		subscribers[i] = s.NewSubscriber(registry.Service{Interface: BulkService(i)})
	}
	var wg sync.WaitGroup
	for i := range published {
		u := Provider(s.t, BulkService(i), BulkAddress)
		wg.Go(func() {
			if err := s.Register(s.t.Context(), u); err != nil {
				s.t.Error(err)
			}
		})
	}
	wg.Wait()
	s.t.Logf("%d registrations after %v", published, time.Since(start))
	for i, sub := range subscribers {
		if i < published {
			sub.Await("the provider", At(BulkAddress))
		} else {
			sub.Await("no providers", Empty)
		}
	}
	s.skipToCurrent()
	s.t.Logf("%d subscriptions after %v", subscribed, time.Since(start))
	return subscribers
}

// AddBulkProvider registers another provider of one service, and returns when the subscriber of the
// service has received the change.
func (s *Session) AddBulkProvider(subscribers []*Subscriber) {
	s.t.Helper()
	const index, address = 7, "10.0.0.9:1"
	start := time.Now()
	s.MustRegister(Provider(s.t, BulkService(index), address))
	subscribers[index].Await("both providers", At(BulkAddress, address))
	s.t.Logf("one change is registered and delivered after %v", time.Since(start))
}
