package stream

import (
	"net/netip"
	"testing"
	"time"
)

// TestASourceIsBounded charges one address: its burst, then what is paid back in time.
func TestASourceIsBounded(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	from := netip.MustParseAddr("192.0.2.1")
	for i := range SourceBurst {
		if got := b.Charge(from, 1, now); got != WithinBudget {
			t.Fatalf("charge %d: %v, want %v", i, got, WithinBudget)
		}
	}
	if got := b.Charge(from, 1, now); got != SourceExceeded {
		t.Fatalf("charge beyond the burst: %v, want %v", got, SourceExceeded)
	}
	if got := b.Charge(netip.MustParseAddr("192.0.2.2"), 1, now); got != WithinBudget {
		t.Errorf("another address: %v, want %v", got, WithinBudget)
	}
	now = now.Add(time.Second)
	if got := b.Charge(from, SourcePerSecond, now); got != WithinBudget {
		t.Errorf("what is paid back in a second: %v, want %v", got, WithinBudget)
	}
	if got := b.Charge(from, 1, now); got != SourceExceeded {
		t.Errorf("more than is paid back in a second: %v, want %v", got, SourceExceeded)
	}
}

// TestAListenerIsBounded charges so many addresses that none exceeds its own budget.
func TestAListenerIsBounded(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	charged := 0
	for i := 0; ; i++ {
		got := b.Charge(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 10, now)
		if got == ListenerExceeded {
			break
		}
		if charged += 10; got != WithinBudget || charged > ListenerBurst {
			t.Fatalf("%d charged: %v", charged, got)
		}
	}
	if charged != ListenerBurst {
		t.Errorf("%d were charged before the listener's budget was used up, want %d", charged, ListenerBurst)
	}
}

// TestAnIPv6SourceIsItsPrefix charges addresses of one /64, and callers of a unix socket.
func TestAnIPv6SourceIsItsPrefix(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	for i := range SourceBurst {
		from := netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 14: byte(i >> 8), 15: byte(i)})
		if got := b.Charge(from, 1, now); got != WithinBudget {
			t.Fatalf("charge %d: %v", i, got)
		}
	}
	if got := b.Charge(netip.MustParseAddr("2001:db8::ffff:1"), 1, now); got != SourceExceeded {
		t.Errorf("another address of the /64: %v, want %v", got, SourceExceeded)
	}
	if got := b.Charge(netip.MustParseAddr("2001:db8:0:1::1"), 1, now); got != WithinBudget {
		t.Errorf("an address of another /64: %v, want %v", got, WithinBudget)
	}
	if got := b.Charge(netip.Addr{}, 1, now); got != WithinBudget {
		t.Errorf("a caller without an address: %v, want %v", got, WithinBudget)
	}
}

// TestTheTableOfSourcesKeepsTheWorst has more addresses than the table holds charge a
// little: the one that owes the most is not forgotten.
func TestTheTableOfSourcesKeepsTheWorst(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	worst := netip.MustParseAddr("192.0.2.1")
	b.Charge(worst, SourceBurst, now)
	for i := range 3 * sets * ways {
		b.Charge(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1, now)
	}
	if got := b.Charge(worst, 1, now); got != SourceExceeded {
		t.Errorf("the worst address, after many others: %v, want %v", got, SourceExceeded)
	}
}

// TestAnAddressIsAskedForWithoutACharge: asking costs nothing, and takes no place in the
// table.
func TestAnAddressIsAskedForWithoutACharge(t *testing.T) {
	b := NewCostBudget()
	now := time.Unix(1000, 0)
	from := netip.MustParseAddr("192.0.2.1")
	ask := func(when string, at time.Time, want bool) {
		t.Helper()
		for range 3 {
			if got := b.SourceExceeded(from, at); got != want {
				t.Errorf("%s: exceeded %v, want %v", when, got, want)
			}
		}
	}
	ask("before any charge", now, false)
	b.Charge(netip.MustParseAddr("192.0.2.2"), SourceBurst, now)
	ask("after a charge of another", now, false)
	b.Charge(from, SourceBurst-1, now)
	ask("one below the burst", now, false)
	b.Charge(from, 1, now)
	ask("at the burst", now, true)
	ask("a second later", now.Add(time.Second), false)
}
