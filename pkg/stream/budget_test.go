package stream

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// usual are the default limits.
var usual = CostLimitsOf(new(config.HTTP2Options))

// TestASourceIsBounded charges one address its burst, and then what is paid back over time.
func TestASourceIsBounded(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	from := netip.MustParseAddr("192.0.2.1")
	for i := range usual.Source.Burst {
		if got := b.Charge(&usual, from, 1, now); got != WithinBudget {
			t.Fatalf("charge %d: %v, want %v", i, got, WithinBudget)
		}
	}
	if got := b.Charge(&usual, from, 1, now); got != SourceExceeded {
		t.Fatalf("charge beyond the burst: %v, want %v", got, SourceExceeded)
	}
	if got := b.Charge(&usual, netip.MustParseAddr("192.0.2.2"), 1, now); got != WithinBudget {
		t.Errorf("another address: %v, want %v", got, WithinBudget)
	}
	now = now.Add(time.Second)
	if got := b.Charge(&usual, from, usual.Source.PerSecond, now); got != WithinBudget {
		t.Errorf("what is paid back in a second: %v, want %v", got, WithinBudget)
	}
	if got := b.Charge(&usual, from, 1, now); got != SourceExceeded {
		t.Errorf("more than is paid back in a second: %v, want %v", got, SourceExceeded)
	}
}

// TestAListenerIsBounded charges so many addresses that none exceeds its own budget.
func TestAListenerIsBounded(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	charged := 0
	for i := 0; ; i++ {
		got := b.Charge(&usual, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 10, now)
		if got == ListenerExceeded {
			break
		}
		if charged += 10; got != WithinBudget || charged > usual.Listener.Burst {
			t.Fatalf("%d charged: %v", charged, got)
		}
	}
	if charged != usual.Listener.Burst {
		t.Errorf("%d were charged before the listener's budget was used up, want %d", charged, usual.Listener.Burst)
	}
}

// TestAnIPv6SourceIsItsPrefix charges addresses of one /64, and a client of a unix socket.
func TestAnIPv6SourceIsItsPrefix(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	for i := range usual.Source.Burst {
		from := netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 14: byte(i >> 8), 15: byte(i)})
		if got := b.Charge(&usual, from, 1, now); got != WithinBudget {
			t.Fatalf("charge %d: %v", i, got)
		}
	}
	if got := b.Charge(&usual, netip.MustParseAddr("2001:db8::ffff:1"), 1, now); got != SourceExceeded {
		t.Errorf("another address of the /64: %v, want %v", got, SourceExceeded)
	}
	if got := b.Charge(&usual, netip.MustParseAddr("2001:db8:0:1::1"), 1, now); got != WithinBudget {
		t.Errorf("an address of another /64: %v, want %v", got, WithinBudget)
	}
	if got := b.Charge(&usual, netip.Addr{}, 1, now); got != WithinBudget {
		t.Errorf("a caller without an address: %v, want %v", got, WithinBudget)
	}
}

// TestTheTableOfSourcesKeepsTheWorst charges more addresses than the table holds a little: the
// address that owes the most keeps its entry.
func TestTheTableOfSourcesKeepsTheWorst(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	worst := netip.MustParseAddr("192.0.2.1")
	b.Charge(&usual, worst, usual.Source.Burst, now)
	for i := range 3 * sets * ways {
		b.Charge(&usual, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1, now)
	}
	if got := b.Charge(&usual, worst, 1, now); got != SourceExceeded {
		t.Errorf("the worst address, after many others: %v, want %v", got, SourceExceeded)
	}
}

// TestAnAddressIsAskedForWithoutACharge checks that SourceExceeded charges nothing.
func TestAnAddressIsAskedForWithoutACharge(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	from := netip.MustParseAddr("192.0.2.1")
	ask := func(when string, at time.Time, want bool) {
		t.Helper()
		for range 3 {
			if got := b.SourceExceeded(&usual, from, at); got != want {
				t.Errorf("%s: exceeded %v, want %v", when, got, want)
			}
		}
	}
	ask("before any charge", now, false)
	b.Charge(&usual, netip.MustParseAddr("192.0.2.2"), usual.Source.Burst, now)
	ask("after a charge of another", now, false)
	b.Charge(&usual, from, usual.Source.Burst-1, now)
	ask("one below the burst", now, false)
	b.Charge(&usual, from, 1, now)
	ask("at the burst", now, true)
	ask("a second later", now.Add(time.Second), false)
}

// TestLimitsAreThoseOfTheServer checks that servers of one listener share the debts and apply their
// own limits.
func TestLimitsAreThoseOfTheServer(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	from := netip.MustParseAddr("192.0.2.1")
	few := CostLimitsOf(&config.HTTP2Options{SourceResets: config.Budget{Burst: 10, PerSecond: 1}})
	if few.Listener != usual.Listener {
		t.Errorf("a limit that is left out is %v, want %v", few.Listener, usual.Listener)
	}
	if got := b.Charge(&few, from, 10, now); got != WithinBudget {
		t.Fatalf("the burst: %v, want %v", got, WithinBudget)
	}
	if got := b.Charge(&few, from, 1, now); got != SourceExceeded {
		t.Errorf("beyond the burst: %v, want %v", got, SourceExceeded)
	}
	if got := b.Charge(&usual, from, 1, now); got != SourceExceeded {
		t.Errorf("the same time to pay back, of 5 ms each: %v, want %v", got, SourceExceeded)
	}
	if got := b.Charge(&usual, from, 1, now.Add(11*time.Second)); got != WithinBudget {
		t.Errorf("once that has passed: %v, want %v", got, WithinBudget)
	}
	all := CostLimits{Source: usual.Source, Listener: config.Budget{Burst: 5, PerSecond: 5}}
	if got := NewCostBudget().Charge(&all, from, 6, now); got != ListenerExceeded {
		t.Errorf("beyond the listener's burst: %v, want %v", got, ListenerExceeded)
	}
}
