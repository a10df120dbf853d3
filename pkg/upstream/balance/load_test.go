package balance

import (
	"testing"
	"time"
)

func TestLatencyFollowsPeaksAndDecays(t *testing.T) {
	var l Load
	if got := l.Latency(0); got != 0 {
		t.Errorf("latency before any observation: %v, want 0", got)
	}
	l.Observe(0, 10*time.Millisecond)
	l.Observe(time.Second, 200*time.Millisecond)
	if got := l.Latency(time.Second); got != 200*time.Millisecond {
		t.Errorf("latency after a peak: %v, want the peak", got)
	}
	l.Observe(2*time.Second, 10*time.Millisecond)
	if got := l.Latency(2 * time.Second); got < 150*time.Millisecond || got > 190*time.Millisecond {
		t.Errorf("latency after one fast response a second later: %v, want slightly less than 200ms", got)
	}
	now := 2 * time.Second
	for range 1000 {
		now += 100 * time.Millisecond
		l.Observe(now, 10*time.Millisecond)
	}
	if got := l.Latency(now); got < 10*time.Millisecond || got > 11*time.Millisecond {
		t.Errorf("latency after 100 s of fast responses: %v, want 10ms", got)
	}
}

func TestLatencyDecaysWithoutObservations(t *testing.T) {
	var l Load
	l.Observe(0, time.Second)
	if got := l.Latency(decayTime); got < 360*time.Millisecond || got > 375*time.Millisecond {
		t.Errorf("latency after the decay time: %v, want 1/e of a second", got)
	}
}

func TestPeakEWMAPrefersFastHosts(t *testing.T) {
	tests := []struct {
		name        string
		latency     []time.Duration
		inFlight    []int
		neverPicked int // index of a host
	}{
		{"slower of two idle hosts", []time.Duration{time.Millisecond, 2 * time.Millisecond}, []int{0, 0}, 1},
		{"faster host with more requests in flight", []time.Duration{time.Millisecond, 2 * time.Millisecond}, []int{9, 1}, 0},
		{"idle host without an observation", []time.Duration{time.Millisecond, 0}, []int{0, 0}, 0},
		{"busy host without an observation", []time.Duration{time.Millisecond, 0}, []int{3, 1}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list := newHosts(1, 1)
			for i := range list {
				if tt.latency[i] > 0 {
					list[i].Load.Observe(0, tt.latency[i])
				}
				for range tt.inFlight[i] {
					list[i].Load.Begin()
				}
			}
			o := seededOptions(1)
			o.ChoiceCount = 30
			if picked := countPicks(t, PeakEWMA(list, o), 2, 1000); picked[tt.neverPicked] != 0 {
				t.Errorf("host %d was picked %d times in 1000, want never", tt.neverPicked, picked[tt.neverPicked])
			}
		})
	}
}

func TestLeastConnectionAvoidsHostWithMostConnections(t *testing.T) {
	list := newHosts(1, 1, 1)
	for range 3 {
		list[1].Load.Connect()
	}
	list[2].Load.Connect()
	list[0].Load.Begin() // has no effect
	if picked := countPicks(t, LeastConnection(list, seededOptions(1)), 3, 1000); picked[1] != 0 {
		t.Errorf("the host with the most connections was picked %d times in 1000, want never", picked[1])
	}
	list[1].Load.Disconnect()
	if got := list[1].Load.Connections(); got != 2 {
		t.Errorf("Connections = %d, want 2", got)
	}
}

func TestRequestRoundRobinStartsWithFirstHost(t *testing.T) {
	b := RequestRoundRobin(newHosts(1, 0, 9, 1), Options{})
	for range 3 {
		for draw, want := range []int{0, 2, 3, 0} {
			if got := b.Pick(Key{Draw: draw}); got != want {
				t.Errorf("draw %d = %d, want %d", draw, got, want)
			}
		}
	}
}
