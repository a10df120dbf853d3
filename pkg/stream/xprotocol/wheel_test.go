package xprotocol

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestExpiredReturnsOnlyExpiredCalls verifies callTable.expired against a linear list, for random
// deadlines and random sequences of add, remove and expired.
func TestExpiredReturnsOnlyExpiredCalls(t *testing.T) {
	for seed := range uint64(50) {
		chance := rand.New(rand.NewPCG(seed, 1))
		table := callTable{max: 1 << 60}
		now := time.Now()
		var waiting []*call
		for step := range 3000 {
			switch chance.IntN(4) {
			case 0, 1:
				k := new(call)
				switch chance.IntN(8) {
				case 0: // no deadline
				case 1:
					k.deadline = now.Add(-time.Duration(chance.Int64N(int64(time.Second))))
				case 2:
					k.deadline = now.Add(time.Duration(chance.Int64N(int64(time.Hour))))
				default:
					k.deadline = now.Add(time.Duration(chance.Int64N(int64(3 * time.Second))))
				}
				table.add(k)
				waiting = append(waiting, k)
			case 2:
				if len(waiting) > 0 {
					i := chance.IntN(len(waiting))
					if k := table.remove(waiting[i].id); k != waiting[i] {
						t.Fatalf("seed %d, step %d: remove = %v, want %v", seed, step, k, waiting[i])
					}
					waiting = slices.Delete(waiting, i, i+1)
				}
			case 3:
				now = now.Add(time.Duration(chance.Int64N(int64(chance.IntN(5)+1) * int64(300*time.Millisecond))))
				late, next := table.expired(now)
				want := 0
				var first time.Time
				waiting = slices.DeleteFunc(waiting, func(k *call) bool {
					due := !k.deadline.IsZero() && !k.deadline.After(now)
					if due {
						want++
						if !slices.Contains(late, k) {
							t.Fatalf("seed %d, step %d: a call has not expired %v after its deadline", seed, step, now.Sub(k.deadline))
						}
					} else if !k.deadline.IsZero() && (first.IsZero() || k.deadline.Before(first)) {
						first = k.deadline
					}
					return due
				})
				switch {
				case len(late) != want:
					t.Fatalf("seed %d, step %d: %d calls expired, want %d", seed, step, len(late), want)
				case first.IsZero() != next.IsZero():
					t.Fatalf("seed %d, step %d: next is %v, the first deadline %v", seed, step, next, first)
				case !next.IsZero() && (next.Before(now.Add(minExpireInterval)) || next.After(first) && next.After(now.Add(minExpireInterval))):
					t.Fatalf("seed %d, step %d: next is %v after now, the first deadline %v", seed, step, next.Sub(now), first.Sub(now))
				}
			}
			if table.used != len(waiting) {
				t.Fatalf("seed %d, step %d: %d calls in the table, want %d", seed, step, table.used, len(waiting))
			}
		}
	}
}

// TestExpiredSkipsPendingBuckets verifies that the cost of expiry does not depend on the number
// of other calls. It counts the calls in the buckets that expired visits.
func TestExpiredSkipsPendingBuckets(t *testing.T) {
	const calls = 10_000
	table := callTable{max: 1 << 60}
	now := time.Now()
	for i := range calls { // as for a host that hangs: each call has its own deadline
		table.add(&call{deadline: now.Add(time.Duration(i) * time.Second / calls)})
	}
	looks, rounds, expired := 0, 0, 0
	for at := now; table.used > 0; rounds++ {
		for tick := max(table.wheel.nextTick, table.wheel.tick(at)-wheelSize+1); tick <= table.wheel.tick(at)+1; tick++ {
			for id := table.wheel.buckets[tick&(wheelSize-1)]; id != 0; id = table.slots.lookup(id).next {
				looks++
			}
		}
		late, next := table.expired(at)
		expired += len(late)
		at = next
	}
	if expired != calls || looks > 100*calls || rounds > int(time.Second/minExpireInterval)+wheelSize {
		t.Errorf("%d of %d calls expired after %d visits in %d rounds", expired, calls, looks, rounds)
	}
}

// BenchmarkHungHost measures the expiry of 10,000 calls to a host that hangs, each with its own
// deadline.
func BenchmarkHungHost(b *testing.B) {
	const calls = 10_000
	all := make([]call, calls)
	for b.Loop() {
		table := callTable{max: 1 << 60}
		now := time.Now()
		for i := range all {
			all[i] = call{deadline: now.Add(time.Duration(i) * time.Second / calls)}
			table.add(&all[i])
		}
		for at := now; table.used > 0; {
			_, next := table.expired(at)
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
