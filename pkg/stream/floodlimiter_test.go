package stream

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// testDefaults are the default limits.
var testDefaults = FloodRateLimitsOf(new(config.HTTP2Options))

// TestSourceLimitAndRefill verifies that an address can be charged its burst, and then PerSecond
// for each second.
func TestSourceLimitAndRefill(t *testing.T) {
	limiter := NewFloodLimiter()
	now := time.Unix(1000, 0)
	source := netip.MustParseAddr("192.0.2.1")
	for i := range testDefaults.Source.Burst {
		if got := limiter.Take(&testDefaults, source, 1, now); got != WithinLimits {
			t.Fatalf("charge %d: %v, want %v", i, got, WithinLimits)
		}
	}
	if got := limiter.Take(&testDefaults, source, 1, now); got != SourceExceeded {
		t.Fatalf("charge beyond the burst: %v, want %v", got, SourceExceeded)
	}
	if got := limiter.Take(&testDefaults, netip.MustParseAddr("192.0.2.2"), 1, now); got != WithinLimits {
		t.Errorf("another address: %v, want %v", got, WithinLimits)
	}
	now = now.Add(time.Second)
	if got := limiter.Take(&testDefaults, source, testDefaults.Source.PerSecond, now); got != WithinLimits {
		t.Errorf("the rate of one second: %v, want %v", got, WithinLimits)
	}
	if got := limiter.Take(&testDefaults, source, 1, now); got != SourceExceeded {
		t.Errorf("beyond the rate of one second: %v, want %v", got, SourceExceeded)
	}
}

// TestListenerLimit verifies that many addresses together exhaust the listener's limit although
// none exceeds its own limit.
func TestListenerLimit(t *testing.T) {
	limiter := NewFloodLimiter()
	now := time.Unix(1000, 0)
	charged := 0
	for i := 0; ; i++ {
		got := limiter.Take(&testDefaults, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 10, now)
		if got == ListenerExceeded {
			break
		}
		if charged += 10; got != WithinLimits || charged > testDefaults.Listener.Burst {
			t.Fatalf("after %d charges: %v, want WithinLimits until the listener's burst", charged, got)
		}
	}
	if charged != testDefaults.Listener.Burst {
		t.Errorf("the listener's limit was exhausted after %d charges, want %d", charged, testDefaults.Listener.Burst)
	}
}

// TestIPv6SourceIsSlash64 verifies that the addresses of one /64 share a limit, and that a client
// of a unix socket has no source limit.
func TestIPv6SourceIsSlash64(t *testing.T) {
	limiter := NewFloodLimiter()
	now := time.Unix(1000, 0)
	for i := range testDefaults.Source.Burst {
		source := netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 14: byte(i >> 8), 15: byte(i)})
		if got := limiter.Take(&testDefaults, source, 1, now); got != WithinLimits {
			t.Fatalf("charge %d: %v, want WithinLimits", i, got)
		}
	}
	if got := limiter.Take(&testDefaults, netip.MustParseAddr("2001:db8::ffff:1"), 1, now); got != SourceExceeded {
		t.Errorf("another address of the /64: %v, want %v", got, SourceExceeded)
	}
	if got := limiter.Take(&testDefaults, netip.MustParseAddr("2001:db8:0:1::1"), 1, now); got != WithinLimits {
		t.Errorf("an address of another /64: %v, want %v", got, WithinLimits)
	}
	if got := limiter.Take(&testDefaults, netip.Addr{}, 1, now); got != WithinLimits {
		t.Errorf("a client without an address: %v, want %v", got, WithinLimits)
	}
}

// TestSourceTableKeepsHeaviestSource verifies that the address with the largest debt keeps its
// entry when more addresses are charged than the table holds.
func TestSourceTableKeepsHeaviestSource(t *testing.T) {
	limiter := NewFloodLimiter()
	now := time.Unix(1000, 0)
	heaviest := netip.MustParseAddr("192.0.2.1")
	limiter.Take(&testDefaults, heaviest, testDefaults.Source.Burst, now)
	for i := range 3 * numSourceSets * sourcesPerSet {
		limiter.Take(&testDefaults, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1, now)
	}
	if got := limiter.Take(&testDefaults, heaviest, 1, now); got != SourceExceeded {
		t.Errorf("the address with the largest debt, after many others: %v, want %v", got, SourceExceeded)
	}
}

// TestSourceExceededTakesNothing verifies that SourceExceeded charges nothing.
func TestSourceExceededTakesNothing(t *testing.T) {
	limiter := NewFloodLimiter()
	now := time.Unix(1000, 0)
	source := netip.MustParseAddr("192.0.2.1")
	check := func(label string, at time.Time, want bool) {
		t.Helper()
		for range 3 {
			if got := limiter.SourceExceeded(&testDefaults, source, at); got != want {
				t.Errorf("%s: exceeded %v, want %v", label, got, want)
			}
		}
	}
	check("before any charge", now, false)
	limiter.Take(&testDefaults, netip.MustParseAddr("192.0.2.2"), testDefaults.Source.Burst, now)
	check("after a charge of another address", now, false)
	limiter.Take(&testDefaults, source, testDefaults.Source.Burst-1, now)
	check("one below the burst", now, false)
	limiter.Take(&testDefaults, source, 1, now)
	check("at the burst", now, true)
	check("a second later", now.Add(time.Second), false)
}

// TestServersApplyTheirOwnLimits verifies that servers of one listener share the debts and apply
// their own limits.
func TestServersApplyTheirOwnLimits(t *testing.T) {
	limiter := NewFloodLimiter()
	now := time.Unix(1000, 0)
	source := netip.MustParseAddr("192.0.2.1")
	lowSource := FloodRateLimitsOf(&config.HTTP2Options{SourceResets: config.TokenBucket{Burst: 10, PerSecond: 1}})
	if lowSource.Listener != testDefaults.Listener {
		t.Errorf("the default of an unset limit is %v, want %v", lowSource.Listener, testDefaults.Listener)
	}
	if got := limiter.Take(&lowSource, source, 10, now); got != WithinLimits {
		t.Fatalf("within the burst: %v, want %v", got, WithinLimits)
	}
	if got := limiter.Take(&lowSource, source, 1, now); got != SourceExceeded {
		t.Errorf("beyond the burst: %v, want %v", got, SourceExceeded)
	}
	if got := limiter.Take(&testDefaults, source, 1, now); got != SourceExceeded {
		t.Errorf("the same debt under a limit of 5 ms per charge: %v, want %v", got, SourceExceeded)
	}
	if got := limiter.Take(&testDefaults, source, 1, now.Add(11*time.Second)); got != WithinLimits {
		t.Errorf("after the debt was refunded: %v, want %v", got, WithinLimits)
	}
	lowListener := FloodRateLimits{Source: testDefaults.Source, Listener: config.TokenBucket{Burst: 5, PerSecond: 5}}
	if got := NewFloodLimiter().Take(&lowListener, source, 6, now); got != ListenerExceeded {
		t.Errorf("beyond the listener's burst: %v, want %v", got, ListenerExceeded)
	}
}
