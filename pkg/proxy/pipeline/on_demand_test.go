package pipeline

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestOnDemandTablesFollowConfiguration verifies that a configuration wakes the waiters of the
// tables that it contains or removes, and that the set drops tables that are not on demand.
func TestOnDemandTablesFollowConfiguration(t *testing.T) {
	unsubscribed := config.OnDemand{Wait: time.Minute, Unsubscribed: true}
	subscribed := config.OnDemand{Wait: time.Minute}
	tables := NewOnDemandTables()
	waiters := map[string]<-chan struct{}{}
	for _, name := range []string{"arrived", "missing", "plain", "removed"} {
		waiters[name] = tables.Table(name, unsubscribed).item.Wait()
	}
	tables.NotifyWaiters([]*config.RouteTable{
		{Name: "arrived", OnDemand: subscribed}, {Name: "missing", OnDemand: unsubscribed}, {Name: "plain"},
	})
	var woken []string
	for name, notified := range waiters {
		select {
		case <-notified:
			woken = append(woken, name)
		default:
		}
	}
	slices.Sort(woken)
	if want := []string{"arrived", "plain", "removed"}; !slices.Equal(woken, want) {
		t.Errorf("NotifyWaiters woke the waiters of tables %v, want %v", woken, want)
	}
	for name, want := range map[string]bool{"arrived": true, "missing": true, "plain": false, "removed": false} {
		if _, ok := tables.items[name]; ok != want {
			t.Errorf("table %s in the set: %t, want %t", name, ok, want)
		}
	}
}
