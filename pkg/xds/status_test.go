package xds

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// typeOf returns the status of a type of the first control plane.
func typeOf(t *testing.T, s status.Status, url string) *status.Type {
	t.Helper()
	for i := range s.ControlPlanes[0].Types {
		if typ := &s.ControlPlanes[0].Types[i]; typ.Type == url {
			return typ
		}
	}
	t.Fatalf("the status has no %s", url)
	return nil
}

// rejectReason returns the reason for which the last version of a resource of the first control
// plane was rejected; "": it was accepted.
func rejectReason(t *testing.T, s *Source, url, name string) string {
	t.Helper()
	for _, r := range typeOf(t, s.Status(), url).RejectedResources {
		if r.Name == name {
			return r.Reason
		}
	}
	return ""
}

func TestStatus(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	before := s.Status()
	if p := before.ControlPlanes[0]; before.Node != "test" || p.Name != "control" || p.Mode != status.ModeDelta || p.Serves != status.ServesAll || p.Connected || !p.Since.IsZero() {
		t.Errorf("status before any event = %+v, want node test and the disconnected delta control plane control", before)
	}
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	s.channels[0].setConnected()
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Cluster("later", "others", "", time.Minute), xdstest.Endpoints("hosts", 80),
		xdstest.Listener("in", 2000, "table", "mine", 0), xdstest.Resource{URL: resource.ClusterType, Name: "bad", Body: []byte{0xff}})

	got := s.Status()
	if p := got.ControlPlanes[0]; !p.Connected || p.Since.IsZero() {
		t.Errorf("control plane = %+v, want connected", p)
	}
	clusters := typeOf(t, got, resource.ClusterType)
	if !clusters.Wildcard || clusters.Resources != 2 || clusters.Accepted == nil || clusters.Rejected == nil || clusters.Rejected.Reason == "" || clusters.Changed.IsZero() {
		t.Errorf("status of clusters = %+v, want a wildcard subscription, 2 resources, an ACK and a NACK", clusters)
	}
	if len(clusters.RejectedResources) != 1 || clusters.RejectedResources[0].Name != "bad" || clusters.RejectedResources[0].Reason == "" || clusters.RejectedResources[0].Version != "" {
		t.Errorf("rejected clusters = %+v, want bad without a version", clusters.RejectedResources)
	}
	if hosts := typeOf(t, got, resource.EndpointType); hosts.Wildcard || hosts.Requested != 2 || hosts.Resources != 1 || !slices.Equal(hosts.Missing, []string{"others"}) {
		t.Errorf("status of endpoints = %+v, want 1 of 2 requested names, others missing", hosts)
	}
	if len(got.Warming) != 2 {
		t.Fatalf("Warming = %+v, want 2 resources", got.Warming)
	}
	if w := got.Warming[0]; w.Name != "later" || !slices.Equal(w.Missing, []string{"endpoints others"}) || w.Until.Sub(w.Since) != time.Minute || w.PreviousActive {
		t.Errorf("warming cluster = %+v, want later, which waits a minute for endpoints others", w)
	}
	if w := got.Warming[1]; w.Name != "in" || !slices.Equal(w.Missing, []string{"clusters of the first response", "routes table", "secret mine"}) || !w.Until.IsZero() {
		t.Errorf("warming listener = %+v, want in, which waits for clusters, routes and a secret without a limit", w)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}

	respondWith(t, s, xdstest.Endpoints("others", 81), xdstest.Routes("table", "x"))
	s.handleEvent(t.Context(), event{channel: s.channels[0], streamErr: context.Canceled})
	s.channels[0].setFailed(context.Canceled)
	got = s.Status()
	if p := got.ControlPlanes[0]; p.Connected || p.Failure != "context canceled" || p.Attempts != 1 {
		t.Errorf("control plane = %+v, want disconnected after 1 attempt with the failure context canceled", p)
	}
	if len(got.Warming) != 1 || !slices.Equal(got.Warming[0].Missing, []string{"secret mine"}) {
		t.Errorf("Warming = %+v, want one resource, which waits for secret mine", got.Warming)
	}
}

// TestRejectedResourceKeepsVersion verifies that the status of a rejected resource has the version
// that was accepted before.
func TestRejectedResourceKeepsVersion(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Resource{URL: resource.ClusterType, Name: "a", Body: []byte{0xff}})
	if got := s.Status(); len(typeOf(t, got, resource.ClusterType).RejectedResources) != 1 || typeOf(t, got, resource.ClusterType).RejectedResources[0].Version != "1" {
		t.Errorf("rejected clusters = %+v, want one with the accepted version 1", typeOf(t, got, resource.ClusterType).RejectedResources)
	}
	respondWith(t, s, xdstest.Cluster("a", "other hosts", "", 0))
	if got := s.Status(); len(typeOf(t, got, resource.ClusterType).RejectedResources) != 0 {
		t.Errorf("rejected clusters after a valid version = %+v, want none", typeOf(t, got, resource.ClusterType).RejectedResources)
	}
}

// TestRemovedRejectedResourceLeavesStatus verifies that the status no longer lists a rejected
// resource once the control plane removes it.
func TestRemovedRejectedResourceLeavesStatus(t *testing.T) {
	for _, apiType := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(apiType, func(t *testing.T) {
			s, _ := newTestSource(t, apiType, "", slog.New(slog.DiscardHandler))
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			respondInvalid := func(names ...string) {
				r := &ads.Response{Type: resource.ClusterType, Version: "1", Nonce: "n"}
				for _, name := range names {
					r.Resources = append(r.Resources, ads.Resource{Name: name, Version: "1", Body: []byte{0xff}})
				}
				for _, name := range []string{"a", "b"} {
					if !slices.Contains(names, name) && apiType == "DELTA_GRPC" {
						r.Removed = append(r.Removed, name)
					}
				}
				s.handleEvent(t.Context(), event{channel: s.channels[0], response: r})
			}
			rejectedNames := func() (names []string) {
				st := s.Status()
				for _, res := range typeOf(t, st, resource.ClusterType).RejectedResources {
					names = append(names, res.Name)
				}
				return names
			}
			for _, names := range [][]string{{"a", "b"}, {"b"}, nil} {
				if respondInvalid(names...); !slices.Equal(rejectedNames(), names) {
					t.Errorf("reported as rejected: %v, want %v", rejectedNames(), names)
				}
			}
		})
	}
}

func TestReadyWhenFirstListenersAreActive(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	checkReady := func(want bool, label string) {
		t.Helper()
		if got := s.Ready(); got != want {
			t.Errorf("%s: Ready() = %t, want %t", label, got, want)
		}
	}
	checkReady(false, "before the connection")
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0), xdstest.Endpoints("hosts", 80))
	checkReady(false, "before listeners")
	respondWith(t, s, xdstest.Listener("in", 2000, "table", "", 0))
	checkReady(false, "while a listener waits for its routes")
	s.stack.Lock()
	checkReady(false, "while a configuration is applied")
	s.stack.Unlock()
	respondWith(t, s, xdstest.Routes("table", "x"))
	checkReady(true, "with an active listener")
	respondWith(t, s, xdstest.Listener("more", 2001, "another table", "", 0))
	checkReady(true, "with an additional warming listener")
}

func TestReadyWhenFirstListenerIsRejected(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWithoutClusters(t, s)
	respondWith(t, s, xdstest.Resource{URL: resource.ListenerType, Name: "in", Body: []byte{0xff}})
	if !s.Ready() {
		t.Error("Ready() = false after the only listener was rejected, want true")
	}
}

func TestUnsubscribedResourcesLeaveStatus(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("a", "first", "", 0), xdstest.Endpoints("first", 80))
	respondWith(t, s, xdstest.Resource{URL: resource.EndpointType, Name: "first", Body: []byte{0xff}})
	history := &s.channels[0].history
	if !history.IsRejected(resource.EndpointType, "first") {
		t.Fatal("IsRejected = false for rejected endpoints, want true")
	}
	respondWith(t, s, xdstest.Cluster("a", "second", "", 0), xdstest.Endpoints("second", 80))
	// The active version stays until its replacement is complete.
	respondWith(t, s, xdstest.Resource{URL: resource.EndpointType, Name: "second", Body: []byte{0xff}}, xdstest.Cluster("a", "third", "", 0))
	for _, name := range []string{"first", "second", "third"} {
		if got, want := history.IsRejected(resource.EndpointType, name), name == "second"; got != want {
			t.Errorf("endpoints %q: rejected = %t, want %t", name, got, want)
		}
	}
}
