package balance

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/internal/hash"
)

// hashPolicies returns the policies that map a hash to a fixed host.
func hashPolicies() []policy {
	return []policy{
		{name: "ring hash", newBalancer: RingHash},
		{name: "maglev", newBalancer: Maglev},
	}
}

const hashCount = 50_000

// pickAll returns, for each of many hashes, the name of its host.
func pickAll(b Balancer, list []Host) []string {
	names := make([]string, hashCount)
	for i := range names {
		names[i] = list[b.Pick(Key{Hash: hash.Mix(uint64(i))})].Name
	}
	return names
}

func countMoved(before, after []string) int {
	n := 0
	for i := range before {
		if before[i] != after[i] {
			n++
		}
	}
	return n
}

func TestRemovedHostMovesOnlyItsHashes(t *testing.T) {
	sets := map[string][]uint32{
		"3 hosts":          {1, 1, 1},
		"10 hosts":         slices.Repeat([]uint32{1}, 10),
		"10 mixed hosts":   {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
		"100 hosts":        slices.Repeat([]uint32{7}, 100),
		"1000 hosts":       slices.Repeat([]uint32{1}, 1000),
		"1000 mixed hosts": slices.Repeat([]uint32{1, 128, 16, 50}, 250),
	}
	for _, p := range hashPolicies() {
		for name, weights := range sets {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				list := newHosts(weights...)
				before := pickAll(p.newBalancer(list, Options{}), list)
				removed := len(list) / 2
				remaining := slices.Delete(slices.Clone(list), removed, removed+1)
				after := pickAll(p.newBalancer(remaining, Options{}), remaining)
				hashesOfRemoved := 0
				for i := range before {
					if before[i] == list[removed].Name {
						hashesOfRemoved++
					}
				}
				// The hashes of the removed host must move. In a Maglev table a few other hashes
				// may move, because the turns of the hosts change.
				otherMoves := countMoved(before, after) - hashesOfRemoved
				maxMoves := 0
				if p.name == "maglev" {
					maxMoves = hashCount / 100
				}
				if otherMoves > maxMoves {
					t.Errorf("after the removal of one of %d hosts with %d of %d hashes: %d hashes of other hosts moved, want at most %d", len(list), hashesOfRemoved, hashCount, otherMoves, maxMoves)
				}
			})
		}
	}
}

func TestHostOrderDoesNotMoveHashes(t *testing.T) {
	for _, p := range hashPolicies() {
		list := newHosts(slices.Repeat([]uint32{1, 5, 20}, 30)...)
		reversed := slices.Clone(list)
		slices.Reverse(reversed)
		if n := countMoved(pickAll(p.newBalancer(list, Options{}), list), pickAll(p.newBalancer(reversed, Options{}), reversed)); n != 0 {
			t.Errorf("%s: %d of %d hashes moved after the list of hosts was reversed, want 0", p.name, n, hashCount)
		}
	}
}

// TestSecondDrawsSpreadOverHosts verifies that the second draw of a hash always picks the same
// host, and that the second draws of the hashes of one host spread over all hosts.
func TestSecondDrawsSpreadOverHosts(t *testing.T) {
	for _, p := range hashPolicies() {
		b := p.newBalancer(newHosts(slices.Repeat([]uint32{1}, 20)...), Options{})
		secondPicks := map[int]int{}
		for i := range hashCount {
			k := Key{Hash: hash.Mix(uint64(i))}
			if b.Pick(k) != 0 {
				continue
			}
			k.Draw = 1
			got := b.Pick(k)
			if repeated := b.Pick(k); repeated != got {
				t.Fatalf("%s: repeated second draws of one hash are %d and %d, want equal picks", p.name, got, repeated)
			}
			secondPicks[got]++
		}
		if len(secondPicks) != 20 {
			t.Errorf("%s: the second draws of the hashes of one host use %d of 20 hosts, want 20", p.name, len(secondPicks))
		}
	}
}

func TestWeightsOfOtherHostsDoNotMoveRings(t *testing.T) {
	list := newHosts(4, 4, 4, 4)
	before := pickAll(RingHash(list, Options{}), list)
	list[3].Weight = 5
	after := pickAll(RingHash(list, Options{}), list)
	for i := range before {
		if before[i] != after[i] && after[i] != list[3].Name {
			t.Fatalf("after the weight of host 3 grew, hash %d moved from %s to %s", i, before[i], after[i])
		}
	}
}

// TestRingSizeIsWithinItsBounds verifies by the size of the table that the number of points is
// within its bounds: a table has two to four times as many entries as points, and at least 2^16.
func TestRingSizeIsWithinItsBounds(t *testing.T) {
	tests := []struct {
		name            string
		weights         []uint32
		o               Options
		atLeast, atMost int
	}{
		{"few hosts", []uint32{1, 1}, Options{}, 1 << 15, 1 << 15},
		{"minimum size", []uint32{1, 1}, Options{MinRingSize: 100_000}, 100_000, 200_000},
		{"maximum size", slices.Repeat([]uint32{1}, 10_000), Options{MaxRingSize: 50_000}, 25_000, 50_000},
		{"many hosts", slices.Repeat([]uint32{100}, 10_000), Options{}, 110_000, 230_000},
		{"fewer points than hosts", slices.Repeat([]uint32{1}, 50_000), Options{MaxRingSize: 2}, 50_000, 50_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := RingHash(newHosts(tt.weights...), tt.o).(*ring).table.size(); n < 2*tt.atLeast || n > 4*tt.atMost {
				t.Errorf("%d entries, want %d to %d", n, 2*tt.atLeast, 4*tt.atMost)
			}
		})
	}
}

func TestRingMatchesBinarySearch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		type point struct {
			position uint32
			host     int32
		}
		points := make([]point, 2+random.IntN(200))
		for i := range points {
			points[i] = point{random.Uint32(), int32(i % 7)}
		}
		r, owner := newRing(len(points), func(yield func(uint32, int32)) {
			for _, p := range points {
				yield(p.position, p.host)
			}
		})
		r.table = newTable(owner, 7)
		slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.position, b.position) })
		for i := range uint64(500) {
			start := uint32(hash.Nth(i, 0)>>32) >> r.shift << r.shift // the first position of its entry
			pointIndex, _ := slices.BinarySearchFunc(points, start, func(p point, start uint32) int { return cmp.Compare(p.position, start) })
			want := points[pointIndex%len(points)].host
			if got := r.Pick(Key{Hash: i}); got != int(want) {
				t.Fatalf("%d points: hash %d belongs to host %d, want %d", len(points), i, got, want)
			}
		}
	}
}

func TestEveryWeightGetsAnEntry(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	weights := make([]uint32, 5000)
	for i := range weights {
		weights[i] = 1 + uint32(random.IntN(128))
	}
	for _, b := range []Balancer{
		RingHash(newHosts(weights...), Options{}),
		RingHash(newHosts(weights...), Options{MaxRingSize: 1}),
		Maglev(newHosts(weights...), Options{}),
	} {
		var entries table
		switch b := b.(type) {
		case *ring:
			entries = b.table
		case *maglev:
			entries = b.table
		}
		found := make([]bool, len(weights))
		for entry := range entries.size() {
			found[entries.hostIndex(uint64(entry))] = true
		}
		if i := slices.Index(found, false); i >= 0 {
			t.Errorf("%T: the host of weight %d has no entry", b, weights[i])
		}
	}
}

func TestTableWidth(t *testing.T) {
	for _, count := range []int{1 << 16, 1<<16 + 1} {
		last := int32(count - 1)
		table := newTable([]int32{0, last}, count)
		if table.size() != 2 || table.hostIndex(0) != 0 || table.hostIndex(1) != int(last) {
			t.Errorf("%d hosts: entries %d and %d, want 0 and %d", count, table.hostIndex(0), table.hostIndex(1), last)
		}
	}
}

func TestMaglevTables(t *testing.T) {
	tests := []struct {
		hosts, size int
		want        int
	}{
		{10, 0, 65_537},
		{16_000, 0, 65_537},
		{20_000, 0, 655_373},
		{10, 251, 251},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d hosts, table of %d", tt.hosts, tt.size), func(t *testing.T) {
			b := Maglev(newHosts(slices.Repeat([]uint32{1}, tt.hosts)...), Options{TableSize: tt.size}).(*maglev)
			if n := b.table.size(); n != tt.want {
				t.Fatalf("%d entries, want %d", n, tt.want)
			}
			entries := make([]int, tt.hosts)
			for entry := range tt.want {
				entries[b.table.hostIndex(uint64(entry))]++
			}
			if fewest, most := slices.Min(entries), slices.Max(entries); most-fewest > 1 {
				t.Errorf("hosts of equal weight have %d to %d entries, want at most 1 apart", fewest, most)
			}
		})
	}
}

func TestZeroWeightGetsNoEntries(t *testing.T) {
	for _, p := range hashPolicies() {
		b := p.newBalancer(newHosts(1, 0, 1, 0), Options{})
		for i := range uint64(hashCount) {
			if host := b.Pick(Key{Hash: i}); host == 1 || host == 3 {
				t.Fatalf("%s: hash %d belongs to a host of weight 0", p.name, i)
			}
		}
	}
}
