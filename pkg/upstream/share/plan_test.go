package share

import (
	"math"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestPanicIsExact verifies that panic begins below the threshold if the total capacity is below 1,
// and that rounding errors of shares do not matter.
func TestPanicIsExact(t *testing.T) {
	tests := []struct {
		hosts, up [2]int // of two priorities
		threshold float64
		want      bool // one of them is in panic
	}{
		{[2]int{63, 10}, [2]int{45, 1}, 50, false}, // 1.4 times 45 of 63 hosts is full capacity
		{[2]int{63, 10}, [2]int{44, 0}, 50, true},
		{[2]int{10, 14}, [2]int{5, 3}, 50, false}, // 70 % and 30 %
		{[2]int{10, 14}, [2]int{5, 2}, 50, true},
		{[2]int{100, 100}, [2]int{7, 7}, 7, false},
		{[2]int{100, 100}, [2]int{7, 6}, 7, true},
	}
	for _, tt := range tests {
		f := failoverOf(&config.Failover{PanicThreshold: tt.threshold})
		levels, plans := make([]Level, 2), make([]levelShare, 2)
		for i := range levels {
			levels[i] = Level{[]Locality{{Weight: 1, Hosts: tt.hosts[i], Healthy: tt.up[i]}}}
		}
		f.levelShares(levels, plans)
		if got := plans[0].inPanic || plans[1].inPanic; got != tt.want {
			t.Errorf("%v of %v hosts up, threshold %v %%: panic = %v, want %v", tt.up, tt.hosts, tt.threshold, got, tt.want)
		}
	}
}

// TestDownPrioritiesHaveNoShare verifies that rounding gives no share to a priority without healthy
// hosts: with a share, the plan would not be Starved, and no recovery probe would find the hosts.
func TestDownPrioritiesHaveNoShare(t *testing.T) {
	f := failoverOf(&config.Failover{})
	const hosts = 10
	for i := range (hosts + 1) * (hosts + 1) {
		up := [3]int{0, i / (hosts + 1), i % (hosts + 1)}
		levels, plans := make([]Level, 3), make([]levelShare, 3)
		for l := range levels {
			levels[l] = Level{[]Locality{{Weight: 1, Hosts: hosts, Healthy: up[l]}}}
		}
		shares := f.levelShares(levels, plans)
		allPanic := plans[0].inPanic && plans[1].inPanic && plans[2].inPanic
		if sum := shares[0] + shares[1] + shares[2]; math.Abs(sum-1) > 1e-12 || shares[0] != 0 && !allPanic {
			t.Errorf("%v of 10 hosts up: shares = %v, want 0 for the first, and 1 in total", up, shares)
		}
	}
}
