package zookeeper_test

import (
	"testing"

	"github.com/weft-proxy/weft/test/zookeeper"
)

func TestRestartAfterKill(t *testing.T) {
	s := zookeeper.Start(t, zookeeper.Options{})
	s.Kill()
	if mode := s.Mode(); mode != "" {
		t.Fatalf("mode of a killed server: %s, want \"\"", mode)
	}
	s.RemoveData()
	s.Restart()
	if got, want := s.Mode(), "standalone"; got != want {
		t.Errorf("mode after the restart: %q, want %q", got, want)
	}
}

func TestNewLeaderIsElected(t *testing.T) {
	e := zookeeper.StartEnsemble(t, zookeeper.Options{})
	first := e.Leader()
	first.Kill()
	for _, s := range e.Servers {
		if s != first {
			s.AwaitReady()
		}
	}
	if second := e.Leader(); second == first {
		t.Error("the killed server is still the leader")
	}
}
