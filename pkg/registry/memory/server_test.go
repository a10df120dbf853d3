package memory

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
)

func open(t *testing.T, s *Server, address string) registry.Registry {
	t.Helper()
	r, err := s.Open(registry.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *Server) storeCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stores)
}

func TestAddressIsRemovedWithLastSession(t *testing.T) {
	s := NewServer()
	first, second := open(t, s, "a"), open(t, s, "a")
	if err := first.Register(t.Context(), registry.URL{Protocol: "dubbo", Host: "10.0.0.1", Port: 1, Path: "x"}); err != nil {
		t.Fatal(err)
	}
	first.Close(t.Context())
	if n := s.storeCount(); n != 1 {
		t.Errorf("%d addresses while a session is open, want 1", n)
	}
	third := open(t, s, "a")
	snapshots := make(chan registry.Snapshot, 1)
	stop := third.Subscribe(registry.Service{Interface: "x"}, func(snap registry.Snapshot) { snapshots <- snap })
	if snap := <-snapshots; len(snap.Providers) != 0 {
		t.Errorf("%v is registered after the end of its session", snap.Providers)
	}
	stop()
	second.Close(t.Context())
	third.Close(t.Context())
	third.Close(t.Context()) // has no effect
	if n := s.storeCount(); n != 0 {
		t.Errorf("%d addresses without a session, want 0", n)
	}
}

func TestAddressesAreBounded(t *testing.T) {
	s := NewServer()
	var sessions []registry.Registry
	for i := range maxAddresses {
		sessions = append(sessions, open(t, s, fmt.Sprint(i)))
	}
	if _, err := s.Open(registry.Options{Address: "more"}); err == nil || !strings.Contains(err.Error(), "1024") {
		t.Errorf("Open of a further address = %v, want an error with the maximum", err)
	}
	sessions = append(sessions, open(t, s, "0"))
	for _, r := range sessions {
		r.Close(context.Background())
	}
	open(t, s, "more").Close(t.Context())
	if n := s.storeCount(); n != 0 {
		t.Errorf("%d addresses without a session, want 0", n)
	}
}
