package dubbo

import (
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
)

// TestLockOrder verifies that builds with invariants detect locks that are acquired in another
// order than that of their ranks. Such a build checks the order in all tests of this package.
func TestLockOrder(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("the order is checked only in builds with invariants")
	}
	acquire := func(first, second interface {
		Lock()
		Unlock()
	}) (panicked bool) {
		first.Lock()
		defer first.Unlock()
		defer func() { panicked = recover() != nil }()
		second.Lock()
		second.Unlock() //nolint:staticcheck // only the order matters
		return false
	}
	var d Discovery
	d.publisher, d.planner, d.sessions = &publisher{}, &planner{}, &sessions{}
	for name, test := range map[string]struct {
		first, second interface {
			Lock()
			Unlock()
		}
		panics bool
	}{
		"publisher, then sessions":   {&d.publisher.mu, &d.sessions.mu, false},
		"planner, then tasks":        {&d.planner.mu, &d.tasks.mu, false},
		"sessions, then publisher":   {&d.sessions.mu, &d.publisher.mu, true},
		"planner, then planner":      {&d.planner.mu, &d.planner.mu, true},
		"planner, then registration": {&d.planner.mu, &(&registration{}).mu, true},
	} {
		for range 2 { // the first panic must not change the locks that the goroutine holds
			if panicked := acquire(test.first, test.second); panicked != test.panics {
				t.Errorf("%s: panicked %t, want %t", name, panicked, test.panics)
			}
		}
	}
}
