package config

import (
	"math"
	"testing"
	"time"
)

func TestBackoffBound(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		b    Backoff
		want map[int]time.Duration
	}{
		"growth up to the maximum": {Backoff{25 * ms, 250 * ms}, map[int]time.Duration{1: 25 * ms, 2: 75 * ms, 3: 175 * ms, 4: 250 * ms, 5: 250 * ms, 100: 250 * ms}},
		"maximum equal to base":    {Backoff{time.Second, time.Second}, map[int]time.Duration{1: time.Second, 2: time.Second}},
		"zero value":               {Backoff{}, map[int]time.Duration{1: 0, 2: 0, 100: 0}},
		"zero base":                {Backoff{0, time.Second}, map[int]time.Duration{1: 0, 7: 0}},
		"no overflow":              {Backoff{time.Hour, math.MaxInt64 / 4}, map[int]time.Duration{1: time.Hour, 100: math.MaxInt64 / 4}},
	} {
		for n, want := range test.want {
			if got := test.b.Bound(n); got != want {
				t.Errorf("%s: Bound(%d) = %v, want %v", name, n, got, want)
			}
		}
	}
}

func TestRetryOnNames(t *testing.T) {
	var union RetryOn
	for _, name := range RetryOnNames() {
		on := ParseRetryOn(name)
		if on == 0 || union&on != 0 || on.String() != name {
			t.Errorf("ParseRetryOn(%q) = %b, String() = %q; want a bit of its own and %q", name, on, on, name)
		}
		union |= on
	}
	if want := RetryUnavailable<<1 - 1; union != want {
		t.Errorf("union of all elements = %b, want %b", union, want)
	}
	if got := ParseRetryOn("5XX"); got != 0 {
		t.Errorf("ParseRetryOn of an unknown name = %v, want 0", got)
	}
	if got, want := (RetryReset | Retry5xx).String(), "5xx,reset"; got != want {
		t.Errorf("String of a set = %q, want %q", got, want)
	}
}
