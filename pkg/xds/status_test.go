package xds

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// of returns the status of a type of the first control plane.
func (s *Status) of(t *testing.T, url string) *TypeStatus {
	t.Helper()
	for i := range s.Planes[0].Types {
		if one := &s.Planes[0].Types[i]; one.Type == url {
			return one
		}
	}
	t.Fatalf("the status has no %s", url)
	return nil
}

func TestStatusTellsWhatIsHeldRefusedAndWaitedFor(t *testing.T) {
	s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	before := s.Status()
	if p := before.Planes[0]; before.Node != "test" || p.Name != "control" || p.Form != FormDelta || p.Serves != ServesAll || p.Connected || !p.Since.IsZero() {
		t.Errorf("before any event: %+v", before)
	}
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	s.feeds[0].connected()
	say(t, s, aCluster("a", "hosts", "", 0), aCluster("later", "others", "", time.Minute), someHosts("hosts", 80),
		aListener("in", 2000, "table", "mine", 0), said{resource.ClusterType, "bad", []byte{0xff}})

	got := s.Status()
	if p := got.Planes[0]; !p.Connected || p.Since.IsZero() {
		t.Errorf("the control plane is %+v", p)
	}
	clusters := got.of(t, resource.ClusterType)
	if !clusters.All || clusters.Held != 2 || clusters.Accepted == nil || clusters.Refused == nil || clusters.Refused.Reason == "" || clusters.Changed.IsZero() {
		t.Errorf("clusters: %+v", clusters)
	}
	if len(clusters.Bad) != 1 || clusters.Bad[0].Name != "bad" || clusters.Bad[0].Reason == "" || clusters.Bad[0].Version != "" {
		t.Errorf("rejected: %+v", clusters.Bad)
	}
	if hosts := got.of(t, resource.EndpointType); hosts.All || hosts.Wanted != 2 || hosts.Held != 1 || !slices.Equal(hosts.Missing, []string{"others"}) {
		t.Errorf("endpoints: %+v", hosts)
	}
	if len(got.Waiting) != 2 {
		t.Fatalf("waiting are %+v", got.Waiting)
	}
	if w := got.Waiting[0]; w.Name != "later" || !slices.Equal(w.For, []string{"endpoints others"}) || w.Until.Sub(w.Since) != time.Minute || w.InForce {
		t.Errorf("the cluster waits as %+v", w)
	}
	if w := got.Waiting[1]; w.Name != "in" || !slices.Equal(w.For, []string{"clusters of the first response", "routes table", "secret mine"}) || !w.Until.IsZero() {
		t.Errorf("the listener waits as %+v", w)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}

	say(t, s, someHosts("others", 81), someRoutes("table", "x"))
	s.handle(t.Context(), event{feed: s.feeds[0], ended: context.Canceled})
	s.feeds[0].failed(context.Canceled)
	got = s.Status()
	if p := got.Planes[0]; p.Connected || p.Failure != "context canceled" || p.Attempts != 1 {
		t.Errorf("the control plane is %+v", p)
	}
	if len(got.Waiting) != 1 || !slices.Equal(got.Waiting[0].For, []string{"secret mine"}) {
		t.Errorf("waiting are %+v", got.Waiting)
	}
}

// TestWhatIsRefusedKeepsItsVersion: the one that is held.
func TestWhatIsRefusedKeepsItsVersion(t *testing.T) {
	s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	say(t, s, aCluster("a", "hosts", "", 0), said{resource.ClusterType, "a", []byte{0xff}})
	if got := s.Status(); len(got.of(t, resource.ClusterType).Bad) != 1 || got.of(t, resource.ClusterType).Bad[0].Version != "1" {
		t.Errorf("rejected: %+v", got.of(t, resource.ClusterType).Bad)
	}
	say(t, s, aCluster("a", "other hosts", "", 0))
	if got := s.Status(); len(got.of(t, resource.ClusterType).Bad) != 0 {
		t.Errorf("still rejected: %+v", got.of(t, resource.ClusterType).Bad)
	}
}

// TestWhatWasRefusedAndIsGoneIsNotToldOf: nobody could mend it.
func TestWhatWasRefusedAndIsGoneIsNotToldOf(t *testing.T) {
	for _, form := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(form, func(t *testing.T) {
			s, _ := aSource(t, form, "", slog.New(slog.DiscardHandler))
			s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
			bad := func(names ...string) {
				r := &ads.Response{Type: resource.ClusterType, Version: "1", Nonce: "n"}
				for _, name := range names {
					r.Resources = append(r.Resources, ads.Resource{Name: name, Version: "1", Body: []byte{0xff}})
				}
				for _, name := range []string{"a", "b"} {
					if !slices.Contains(names, name) && form == "DELTA_GRPC" {
						r.Removed = append(r.Removed, name)
					}
				}
				s.handle(t.Context(), event{feed: s.feeds[0], response: r})
			}
			told := func() (names []string) {
				now := s.Status()
				for _, one := range now.of(t, resource.ClusterType).Bad {
					names = append(names, one.Name)
				}
				return names
			}
			for _, names := range [][]string{{"a", "b"}, {"b"}, nil} {
				if bad(names...); !slices.Equal(told(), names) {
					t.Errorf("reported as rejected: %v, want %v", told(), names)
				}
			}
		})
	}
}

func TestItIsReadyWhenTheFirstListenersAreInForce(t *testing.T) {
	s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	ready := func(want bool, when string) {
		t.Helper()
		if got := s.Ready(); got != want {
			t.Errorf("%s: Ready() = %t", when, got)
		}
	}
	ready(false, "before the control plane was heard of")
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	say(t, s, aCluster("a", "hosts", "", 0), someHosts("hosts", 80))
	ready(false, "before listeners were heard of")
	say(t, s, aListener("in", 2000, "table", "", 0))
	ready(false, "while a listener waits for its routes")
	s.work.Lock()
	ready(false, "while a configuration is put in force")
	s.work.Unlock()
	say(t, s, someRoutes("table", "x"))
	ready(true, "with a listener in force")
	say(t, s, aListener("more", 2001, "another table", "", 0))
	ready(true, "for good")
}

func TestItIsReadyThoughTheFirstListenerIsRefused(t *testing.T) {
	s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	sayNoClusters(t, s)
	say(t, s, said{resource.ListenerType, "in", []byte{0xff}})
	if !s.Ready() {
		t.Error("not ready because of a rejected listener")
	}
}

func TestWhatNobodyWantsAnyMoreIsNotToldOf(t *testing.T) {
	s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	say(t, s, aCluster("a", "first", "", 0), someHosts("first", 80))
	if s.tracked[resource.EndpointType]["first"] == nil {
		t.Fatal("the status has no subscriptions")
	}
	say(t, s, aCluster("a", "second", "", 0), someHosts("second", 80))
	// What is in force stays until its replacement is complete.
	say(t, s, aCluster("a", "third", "", 0))
	if s.tracked[resource.EndpointType]["first"] != nil || s.tracked[resource.EndpointType]["second"] == nil {
		t.Errorf("tracked: %v, want only the second", s.tracked[resource.EndpointType])
	}
}
