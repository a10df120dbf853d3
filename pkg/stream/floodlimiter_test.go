package stream

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// testDefaults are the default limits.
var testDefaults = FloodRateLimitsOf(new(config.HTTP2Options))

// TestSourceLimitAndRefill verifies that an address can be charged its burst, and then what is
// refunded over time.
func TestSourceLimitAndRefill(t *testing.T) {
	b := NewFloodLimiter()
	now := time.Unix(1000, 0)
	source := netip.MustParseAddr("192.0.2.1")
	for i := range testDefaults.Source.Burst {
		if got := b.Take(&testDefaults, source, 1, now); got != WithinLimits {
			t.Fatalf("charge %d: %v, want %v", i, got, WithinLimits)
		}
	}
	if got := b.Take(&testDefaults, source, 1, now); got != SourceExceeded {
		t.Fatalf("charge beyond the burst: %v, want %v", got, SourceExceeded)
	}
	if got := b.Take(&testDefaults, netip.MustParseAddr("192.0.2.2"), 1, now); got != WithinLimits {
		t.Errorf("another address: %v, want %v", got, WithinLimits)
	}
	now = now.Add(time.Second)
	if got := b.Take(&testDefaults, source, testDefaults.Source.PerSecond, now); got != WithinLimits {
		t.Errorf("the refund of one second: %v, want %v", got, WithinLimits)
	}
	if got := b.Take(&testDefaults, source, 1, now); got != SourceExceeded {
		t.Errorf("beyond the refund of one second: %v, want %v", got, SourceExceeded)
	}
}

// TestListenerLimit verifies that many addresses together exhaust the listener's budget although
// none exceeds its own.
func TestListenerLimit(t *testing.T) {
	b := NewFloodLimiter()
	now := time.Unix(1000, 0)
	charged := 0
	for i := 0; ; i++ {
		got := b.Take(&testDefaults, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 10, now)
		if got == ListenerExceeded {
			break
		}
		if charged += 10; got != WithinLimits || charged > testDefaults.Listener.Burst {
			t.Fatalf("charge of address %d: %v", charged, got)
		}
	}
	if charged != testDefaults.Listener.Burst {
		t.Errorf("the listener's budget was exhausted after %d charges, want %d", charged, testDefaults.Listener.Burst)
	}
}

// TestIPv6SourceIsSlash64 verifies that the addresses of one /64 share a budget, and that a client
// of a unix socket has none.
func TestIPv6SourceIsSlash64(t *testing.T) {
	b := NewFloodLimiter()
	now := time.Unix(1000, 0)
	for i := range testDefaults.Source.Burst {
		source := netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 14: byte(i >> 8), 15: byte(i)})
		if got := b.Take(&testDefaults, source, 1, now); got != WithinLimits {
			t.Fatalf("charge %d: %v", i, got)
		}
	}
	if got := b.Take(&testDefaults, netip.MustParseAddr("2001:db8::ffff:1"), 1, now); got != SourceExceeded {
		t.Errorf("another address of the /64: %v, want %v", got, SourceExceeded)
	}
	if got := b.Take(&testDefaults, netip.MustParseAddr("2001:db8:0:1::1"), 1, now); got != WithinLimits {
		t.Errorf("an address of another /64: %v, want %v", got, WithinLimits)
	}
	if got := b.Take(&testDefaults, netip.Addr{}, 1, now); got != WithinLimits {
		t.Errorf("a client without an address: %v, want %v", got, WithinLimits)
	}
}

// TestSourceTableKeepsHeaviestSource verifies that the address that owes the most keeps its entry
// when more addresses are charged than the table holds.
func TestSourceTableKeepsHeaviestSource(t *testing.T) {
	b := NewFloodLimiter()
	now := time.Unix(1000, 0)
	worst := netip.MustParseAddr("192.0.2.1")
	b.Take(&testDefaults, worst, testDefaults.Source.Burst, now)
	for i := range 3 * numSourceSets * sourcesPerSet {
		b.Take(&testDefaults, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1, now)
	}
	if got := b.Take(&testDefaults, worst, 1, now); got != SourceExceeded {
		t.Errorf("the address that owes the most, after many others: %v, want %v", got, SourceExceeded)
	}
}

// TestSourceExceededTakesNothing verifies that SourceExceeded charges nothing.
func TestSourceExceededTakesNothing(t *testing.T) {
	b := NewFloodLimiter()
	now := time.Unix(1000, 0)
	source := netip.MustParseAddr("192.0.2.1")
	charge := func(when string, at time.Time, want bool) {
		t.Helper()
		for range 3 {
			if got := b.SourceExceeded(&testDefaults, source, at); got != want {
				t.Errorf("%s: exceeded %v, want %v", when, got, want)
			}
		}
	}
	charge("before any charge", now, false)
	b.Take(&testDefaults, netip.MustParseAddr("192.0.2.2"), testDefaults.Source.Burst, now)
	charge("after a charge of another", now, false)
	b.Take(&testDefaults, source, testDefaults.Source.Burst-1, now)
	charge("one below the burst", now, false)
	b.Take(&testDefaults, source, 1, now)
	charge("at the burst", now, true)
	charge("a second later", now.Add(time.Second), false)
}

// TestServersApplyTheirOwnLimits verifies that servers of one listener share the debts and apply
// their own limits.
func TestServersApplyTheirOwnLimits(t *testing.T) {
	b := NewFloodLimiter()
	now := time.Unix(1000, 0)
	source := netip.MustParseAddr("192.0.2.1")
	few := FloodRateLimitsOf(&config.HTTP2Options{SourceResets: config.TokenBucket{Burst: 10, PerSecond: 1}})
	if few.Listener != testDefaults.Listener {
		t.Errorf("the default of an unset limit is %v, want %v", few.Listener, testDefaults.Listener)
	}
	if got := b.Take(&few, source, 10, now); got != WithinLimits {
		t.Fatalf("within the burst: %v, want %v", got, WithinLimits)
	}
	if got := b.Take(&few, source, 1, now); got != SourceExceeded {
		t.Errorf("beyond the burst: %v, want %v", got, SourceExceeded)
	}
	if got := b.Take(&testDefaults, source, 1, now); got != SourceExceeded {
		t.Errorf("the same debt under a limit of 5 ms per charge: %v, want %v", got, SourceExceeded)
	}
	if got := b.Take(&testDefaults, source, 1, now.Add(11*time.Second)); got != WithinLimits {
		t.Errorf("after the debt was paid back: %v, want %v", got, WithinLimits)
	}
	all := FloodRateLimits{Source: testDefaults.Source, Listener: config.TokenBucket{Burst: 5, PerSecond: 5}}
	if got := NewFloodLimiter().Take(&all, source, 6, now); got != ListenerExceeded {
		t.Errorf("beyond the listener's burst: %v, want %v", got, ListenerExceeded)
	}
}
