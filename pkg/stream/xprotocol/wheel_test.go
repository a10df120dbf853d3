package xprotocol

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestRemoveExpiredReturnsOnlyExpiredCalls verifies callTable.removeExpired against a linear list,
// for random deadlines and random sequences of add, remove and removeExpired.
func TestRemoveExpiredReturnsOnlyExpiredCalls(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table := callTable{max: 1 << 60}
		now := time.Now()
		var pending []*call
		for step := range 3000 {
			switch rng.IntN(4) {
			case 0, 1:
				k := new(call)
				switch rng.IntN(8) {
				case 0: // no deadline
				case 1:
					k.deadline = now.Add(-time.Duration(rng.Int64N(int64(time.Second))))
				case 2:
					k.deadline = now.Add(time.Duration(rng.Int64N(int64(time.Hour))))
				default:
					k.deadline = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
				}
				table.add(k)
				pending = append(pending, k)
			case 2:
				if len(pending) > 0 {
					i := rng.IntN(len(pending))
					if k := table.remove(pending[i].id); k != pending[i] {
						t.Fatalf("seed %d, step %d: remove = %v, want %v", seed, step, k, pending[i])
					}
					pending = slices.Delete(pending, i, i+1)
				}
			case 3:
				now = now.Add(time.Duration(rng.Int64N(int64(rng.IntN(5)+1) * int64(300*time.Millisecond))))
				expired, next := table.removeExpired(now)
				want := 0
				var earliest time.Time
				pending = slices.DeleteFunc(pending, func(k *call) bool {
					due := !k.deadline.IsZero() && !k.deadline.After(now)
					if due {
						want++
						if !slices.Contains(expired, k) {
							t.Fatalf("seed %d, step %d: a call has not expired %v after its deadline", seed, step, now.Sub(k.deadline))
						}
					} else if !k.deadline.IsZero() && (earliest.IsZero() || k.deadline.Before(earliest)) {
						earliest = k.deadline
					}
					return due
				})
				switch {
				case len(expired) != want:
					t.Fatalf("seed %d, step %d: %d calls expired, want %d", seed, step, len(expired), want)
				case earliest.IsZero() != next.IsZero():
					t.Fatalf("seed %d, step %d: next is %v, want a time at or before the first deadline %v", seed, step, next, earliest)
				case !next.IsZero() && (next.Before(now.Add(minExpireInterval)) || next.After(earliest) && next.After(now.Add(minExpireInterval))):
					t.Fatalf("seed %d, step %d: next is %v after now, want at least minExpireInterval and at most the first deadline %v", seed, step, next.Sub(now), earliest.Sub(now))
				}
			}
			if table.used != len(pending) {
				t.Fatalf("seed %d, step %d: %d calls in the table, want %d", seed, step, table.used, len(pending))
			}
		}
	}
}

// TestRemoveExpiredSkipsPendingBuckets verifies that removeExpired visits few of the calls that
// have not expired. It counts the calls in the buckets that removeExpired visits, and in the next
// one.
func TestRemoveExpiredSkipsPendingBuckets(t *testing.T) {
	const count = 10_000
	table := callTable{max: 1 << 60}
	now := time.Now()
	for i := range count { // like calls to a host that hangs: each one has its own deadline
		table.add(&call{deadline: now.Add(time.Duration(i) * time.Second / count)})
	}
	visits, rounds, expired := 0, 0, 0
	for at := now; table.used > 0; rounds++ {
		for tick := max(table.wheel.nextTick, table.wheel.tick(at)-wheelSize+1); tick <= table.wheel.tick(at)+1; tick++ {
			for id := table.wheel.buckets[tick&(wheelSize-1)]; id != 0; id = table.slots.lookup(id).next {
				visits++
			}
		}
		calls, next := table.removeExpired(at)
		expired += len(calls)
		at = next
	}
	if expired != count || visits > 100*count || rounds > int(time.Second/minExpireInterval)+wheelSize {
		t.Errorf("%d of %d calls expired after %d visits in %d rounds; want all, with few visits and rounds", expired, count, visits, rounds)
	}
}

// BenchmarkHungHost measures the expiry of 10,000 calls to a host that hangs, each with its own
// deadline.
func BenchmarkHungHost(b *testing.B) {
	const count = 10_000
	calls := make([]call, count)
	for b.Loop() {
		table := callTable{max: 1 << 60}
		now := time.Now()
		for i := range calls {
			calls[i] = call{deadline: now.Add(time.Duration(i) * time.Second / count)}
			table.add(&calls[i])
		}
		for at := now; table.used > 0; {
			_, next := table.removeExpired(at)
			at = next
		}
	}
}

// BenchmarkTable measures add and remove in a table with 64 pending calls.
func BenchmarkTable(b *testing.B) {
	table := callTable{max: 1 << 60}
	now := time.Now()
	ring := make([]call, 64)
	for i := range ring {
		ring[i].deadline = now.Add(time.Second)
		table.add(&ring[i])
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		k := &ring[i%len(ring)]
		table.remove(k.id)
		table.add(k)
		i++
	}
}
