package registrytest

import (
	"fmt"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// CrowdAddress is the address of the providers that Bulk registers.
const CrowdAddress = "10.0.0.1:20880"

// CrowdService returns the i-th interface of Bulk.
func CrowdService(i int) string { return fmt.Sprintf("com.example.service.Number%d", i) }

// Bulk subscribes to the first followed services, and concurrently registers a provider for the
// first published ones. It returns the subscribers, in order, after each has received its snapshot.
func (s *Session) Bulk(published, followed int) []*Subscriber {
	s.t.Helper()
	begin := time.Now()
	followers := make([]*Subscriber, followed)
	for i := range followers {
		followers[i] = s.NewSubscriber(registry.Service{Interface: CrowdService(i)})
	}
	var all sync.WaitGroup
	for i := range published {
		u := Provider(s.t, CrowdService(i), CrowdAddress)
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
			f.Await("the provider", At(CrowdAddress))
		} else {
			f.Await("nothing", Empty)
		}
	}
	s.catchUp()
	s.t.Logf("and %d subscriptions after %v", followed, time.Since(begin))
	return followers
}

// CrowdGrows registers one more provider of one service, and returns when its subscriber has
// received the change.
func (s *Session) CrowdGrows(followers []*Subscriber) {
	s.t.Helper()
	const one, more = 7, "10.0.0.9:1"
	begin := time.Now()
	s.MustRegister(Provider(s.t, CrowdService(one), more))
	followers[one].Await("both", At(CrowdAddress, more))
	s.t.Logf("one change is registered and told after %v", time.Since(begin))
}
