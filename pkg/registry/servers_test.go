package registry

import (
	"slices"
	"strings"
	"testing"
)

func TestParseServers(t *testing.T) {
	for text, want := range map[string][]string{
		"a":             {"a:1"},
		"a:2, b:3,c":    {"a:2", "b:3", "c:1"},
		"[::1]":         {"[::1]:1"},
		"[::1]:2,a.b:3": {"[::1]:2", "a.b:3"},
	} {
		if got, err := ParseServers(text, "1"); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseServers(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":     "not a valid host:port",
		"a,":   "not a valid host:port",
		":2":   "not a valid host:port",
		"a:":   "not a valid host:port",
		"::1":  "too many colons",
		"a:b:": "too many colons",
	} {
		if got, err := ParseServers(text, "1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseServers(%q) = %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestStateChangeIsReportedOnce(t *testing.T) {
	reports := 0
	s := NewStateTracker(State{}, func() { reports++ })
	s.Update(func(state *State) { state.Connected, state.SessionID = true, "1" })
	s.Update(func(state *State) { state.SessionID = "1" }) // unchanged
	if got := s.State(); reports != 1 || !got.Connected || got.SessionID != "1" {
		t.Errorf("%d reports, state %+v, want one report of a session", reports, got)
	}
	s.End()
	s.End()
	if got := s.State(); reports != 2 || got.Connected || got.SessionID != "" || got.Since.IsZero() {
		t.Errorf("%d reports, state %+v, want a second report at the end", reports, got)
	}
}
