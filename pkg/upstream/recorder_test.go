package upstream

import (
	"context"
	"testing"
	"time"
)

// TestConnectionsAreCountedInOneRecorder verifies that the close of a connection is not counted in
// the recorder of a later cluster with the same name.
func TestConnectionsAreCountedInOneRecorder(t *testing.T) {
	m := &fakeMeter{observed: map[string]int{}}
	s := newTestSet(t, newFakeConnector(), func(o *Options) { o.Meter = m })
	apply(t, s, cluster("web", "a"))
	web := s.Get("web")
	x := begin(t, web)
	err := web.ForwardWithoutAddrs(context.Background(), 1, func(context.Context, *Host, time.Time) (func() error, error) {
		return func() error {
			apply(t, s)
			apply(t, s, cluster("web", "a"))
			m.events = nil
			serveOne(t, web)
			return nil
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	finish(x)
	open := 0
	for _, e := range m.events {
		switch e {
		case ConnectionOpened:
			open++
		case ConnectionClosed:
			open--
		}
		if open < 0 {
			t.Fatalf("events %v: more connections were closed than opened", m.events)
		}
	}
	if open != 1 {
		t.Errorf("events %v: %d connections are open, want only the idle one", m.events, open)
	}
}
