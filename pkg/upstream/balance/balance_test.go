package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/hash"
)

// policy is a constructor under test.
type policy struct {
	name        string
	newBalancer NewFunc
	weighted    bool
	exact       bool    // shares are exact, not only exact on average
	tolerance   float64 // permitted relative error of a share, for a coarse table
}

// policies returns the policies that distribute load by weight.
func policies() []policy {
	return []policy{
		{"round robin", RoundRobin, false, true, 0},
		{"weighted round robin", WeightedRoundRobin, true, true, 0},
		{"random", Random, true, false, 0},
		{"least request", LeastRequest, true, false, 0},
		{"least connection", LeastConnection, true, false, 0},
		{"peak ewma", PeakEWMA, true, false, 0},
		{"ring hash", RingHash, true, false, 0.5}, // four deviations of 64 points
		{"maglev", Maglev, true, false, 0.02},
	}
}

func newHosts(weights ...uint32) []Host {
	list := make([]Host, len(weights))
	for i, w := range weights {
		list[i] = Host{Name: "10.0.0." + strconv.Itoa(i), Weight: w, Load: new(Load)}
	}
	return list
}

// seededOptions returns options with a fixed random seed.
func seededOptions(seed uint64) Options {
	source := rand.NewPCG(seed, seed)
	return Options{ActiveRequestBias: 1, Random: source.Uint64}
}

func countPicks(t *testing.T, b Balancer, hostCount, picks int) []int {
	t.Helper()
	picked := make([]int, hostCount)
	for n := range picks {
		i := b.Pick(Key{Hash: hash.Mix(uint64(n))})
		if i < 0 || i >= hostCount {
			t.Fatalf("Pick() = %d among %d hosts; want one of their indexes", i, hostCount)
		}
		picked[i]++
	}
	return picked
}

func TestSharesFollowWeights(t *testing.T) {
	sets := [][]uint32{
		{1, 1},
		{2, 1},
		{5, 1, 1},
		{128, 1},
		{1, 128, 1, 1},
		{3, 0, 2},
		{0, 0, 7, 0, 7},
		{10, 20, 30, 40},
		{128, 127, 126, 1, 2, 3},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		randomWeights := make([]uint32, 2+random.IntN(40))
		for i := range randomWeights {
			randomWeights[i] = uint32(random.IntN(129))
		}
		sets = append(sets, randomWeights)
	}
	for _, p := range policies() {
		for n, weights := range sets {
			t.Run(fmt.Sprintf("%s/%d", p.name, n), func(t *testing.T) {
				var sum, serving int
				for _, w := range weights {
					sum += int(w)
					if w > 0 {
						serving++
					}
				}
				cycles := 20
				picks := cycles * sum
				if !p.weighted {
					picks = cycles * serving
				}
				picked := countPicks(t, p.newBalancer(newHosts(weights...), seededOptions(uint64(n))), len(weights), picks)
				for i, w := range weights {
					share := float64(w) / float64(sum)
					if !p.weighted && w > 0 {
						share = 1 / float64(serving)
					}
					want := math.Round(float64(picks) * share)
					tolerance := 0.0
					if !p.exact {
						tolerance = 5*math.Sqrt(want*(1-share)) + p.tolerance*want // five standard deviations
					}
					if math.Abs(float64(picked[i])-want) > tolerance {
						t.Errorf("host %d of weight %d was picked %d times in %d picks, want %.0f ± %.0f", i, w, picked[i], picks, want, tolerance)
					}
				}
			})
		}
	}
}

// TestFurtherDrawsFollowWeights verifies that further draws of an exchange, after a rejected host,
// are random and follow the weights.
func TestFurtherDrawsFollowWeights(t *testing.T) {
	const picks = 100_000
	for _, weights := range [][]uint32{{1, 1, 1, 1}, {1, 3, 2}, {128, 0, 1, 1, 1}} {
		for _, p := range []policy{
			{name: "round robin", newBalancer: RoundRobin},
			{name: "weighted round robin", newBalancer: WeightedRoundRobin, weighted: true},
		} {
			b := p.newBalancer(newHosts(weights...), seededOptions(1))
			picked, last, repeats := make([]int, len(weights)), -1, 0
			for range picks {
				i := b.Pick(Key{Draw: 1})
				if picked[i]++; i == last {
					repeats++
				}
				last = i
			}
			sum, repeatShare := 0.0, 0.0
			share := func(w uint32) float64 {
				if !p.weighted {
					w = min(w, 1)
				}
				return float64(w)
			}
			for _, w := range weights {
				sum += share(w)
			}
			for i, w := range weights {
				fraction := share(w) / sum
				repeatShare += fraction * fraction
				if want, tolerance := picks*fraction, 5*math.Sqrt(picks*fraction*(1-fraction)); math.Abs(float64(picked[i])-want) > tolerance {
					t.Errorf("%s: host %d of %v picked %d times, want %.0f ± %.0f", p.name, i, weights, picked[i], want, tolerance)
				}
			}
			if float64(repeats) < 0.9*repeatShare*picks {
				t.Errorf("%s: weights %v: consecutive picks chose the same host %d times, want about %.0f as for random picks", p.name, weights, repeats, repeatShare*picks)
			}
		}
	}
}

func TestPickWithoutHosts(t *testing.T) {
	for _, p := range append(policies(), policy{name: "request round robin", newBalancer: RequestRoundRobin}) {
		for _, weights := range [][]uint32{nil, {0}, {0, 0, 0}} {
			if got := p.newBalancer(newHosts(weights...), Options{}).Pick(Key{}); got != -1 {
				t.Errorf("%s with weights %v: Pick() = %d, want -1", p.name, weights, got)
			}
		}
		if got := p.newBalancer(newHosts(0, 0, 4), Options{}).Pick(Key{}); got != 2 {
			t.Errorf("%s with weights 0 0 4: Pick() = %d, want 2", p.name, got)
		}
	}
}

// TestWeightedRoundRobinIsSmooth verifies that the turns of a heavy host are spread out for every
// start.
func TestWeightedRoundRobinIsSmooth(t *testing.T) {
	tests := []struct {
		weights []uint32
		longest int // maximum number of consecutive turns of one host
	}{
		{[]uint32{1, 1, 1}, 1},
		{[]uint32{2, 1}, 2},
		{[]uint32{5, 1, 1}, 3},
		{[]uint32{10, 10, 1}, 1},
		{[]uint32{128, 64, 64}, 1},
		{[]uint32{100, 1, 1, 1, 1}, 40},
		{[]uint32{127, 100, 3}, 5}, // too many turns for a schedule
	}
	for _, tt := range tests {
		for seed := range uint64(50) {
			b := WeightedRoundRobin(newHosts(tt.weights...), seededOptions(seed))
			last, run, longest := -1, 0, 0
			for range 1000 {
				i := b.Pick(Key{})
				if i != last {
					last, run = i, 0
				}
				run++
				longest = max(longest, run)
			}
			if longest > tt.longest {
				t.Errorf("weights %v: a host got %d consecutive turns, want at most %d", tt.weights, longest, tt.longest)
			}
		}
	}
}

// TestWeightedRoundRobinOrder verifies the order in the doc comment of weightedRoundRobin.
func TestWeightedRoundRobinOrder(t *testing.T) {
	maxRandom := func() uint64 { return math.MaxUint64 } // starts just before the first turn
	b := WeightedRoundRobin(newHosts(5, 1, 1), Options{Random: maxRandom})
	var order strings.Builder
	for range 14 {
		order.WriteByte("abc"[b.Pick(Key{})])
	}
	if got, want := order.String(), "aabaacaaabaaca"; got != want {
		t.Errorf("order = %q, want %q", got, want)
	}
}

// TestScheduleMatchesVisits verifies that a schedule has the same order as the visits of Pick.
func TestScheduleMatchesVisits(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		b := &weightedRoundRobin{weights: make([]uint32, 2+random.IntN(20))}
		sum := uint64(0)
		for i := range b.weights {
			b.weights[i] = 1 + uint32(random.IntN(128))
			b.maxWeight = max(b.maxWeight, uint64(b.weights[i]))
			sum += uint64(b.weights[i])
		}
		s := b.newSchedule(sum, Options{Random: func() uint64 { return math.MaxUint64 }})
		b.position.Store(math.MaxUint64) // the first visit is number 0
		for turn := range 2 * sum {
			if got, want := s.Pick(Key{}), b.Pick(Key{}); got != want {
				t.Fatalf("weights %v, turn %d: schedule picks %d, want %d as without a schedule", b.weights, turn, got, want)
			}
		}
	}
}

func TestRoundRobinStartsAtRandomHost(t *testing.T) {
	for _, newBalancer := range []NewFunc{RoundRobin, WeightedRoundRobin} {
		starts := map[int]bool{}
		for range 200 {
			starts[newBalancer(newHosts(1, 2, 3), Options{}).Pick(Key{})] = true
		}
		if len(starts) != 3 {
			t.Errorf("200 balancers started with hosts %v only, want all three", starts)
		}
	}
}

func TestLeastRequestAvoidsBusyHosts(t *testing.T) {
	tests := []struct {
		name    string
		weights []uint32
		load    []int
		bias    float64
		want    int // host that is never picked
	}{
		{"two hosts", []uint32{1, 1}, []int{3, 2}, 1, 0},
		{"three hosts", []uint32{1, 1, 1}, []int{0, 9, 1}, 1, 1},
		{"light host with more load for its weight", []uint32{10, 1}, []int{5, 1}, 1, 1},
		{"heavy host with more load for its weight", []uint32{10, 1}, []int{30, 2}, 1, 0},
		{"bias above 1", []uint32{10, 1}, []int{5, 1}, 2, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts := newHosts(tt.weights...)
			for i, n := range tt.load {
				for range n {
					hosts[i].Load.Begin()
				}
			}
			o := seededOptions(1)
			o.ActiveRequestBias = tt.bias
			if picked := countPicks(t, LeastRequest(hosts, o), len(hosts), 1000); picked[tt.want] != 0 {
				t.Errorf("host %d was picked %d times in 1000, want never", tt.want, picked[tt.want])
			}
		})
	}
}

func TestLeastRequestWithoutBiasFollowsWeightsOnly(t *testing.T) {
	hosts := newHosts(3, 1)
	for range 50 {
		hosts[0].Load.Begin()
	}
	o := seededOptions(1)
	o.ActiveRequestBias = 0
	if picked := countPicks(t, LeastRequest(hosts, o), 2, 4000); picked[0] < 2850 || picked[0] > 3150 {
		t.Errorf("the host with 3/4 of the weight was picked %d times in 4000, want about 3000", picked[0])
	}
}

// TestLeastRequestChoiceCount verifies that more choices lead to fewer picks of busy hosts.
func TestLeastRequestChoiceCount(t *testing.T) {
	busyPicks := func(choices int) int {
		hosts := newHosts(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		for i := range hosts[1:] {
			hosts[i].Load.Begin()
		}
		o := seededOptions(7)
		o.ChoiceCount = choices
		return 10000 - countPicks(t, LeastRequest(hosts, o), 10, 10000)[9]
	}
	if withTwo, withFive := busyPicks(2), busyPicks(5); withFive >= withTwo-1000 {
		t.Errorf("busy hosts picked %d times in 10000 with 5 choices, %d times with 2; want at least 1000 fewer with 5", withFive, withTwo)
	}
}

// TestLeastRequestKeepsQueuesEven verifies that the longest queue of least request is much shorter
// than that of random while no request ends.
func TestLeastRequestKeepsQueuesEven(t *testing.T) {
	longestQueue := func(newBalancer NewFunc) int64 {
		hosts := newHosts(slices.Repeat([]uint32{1}, 100)...)
		b := newBalancer(hosts, seededOptions(3))
		for range 10000 {
			hosts[b.Pick(Key{})].Load.Begin()
		}
		var maxQueue int64
		for i := range hosts {
			maxQueue = max(maxQueue, hosts[i].Load.InFlight())
		}
		return maxQueue
	}
	if leastRequestQueue, randomQueue := longestQueue(LeastRequest), longestQueue(Random); leastRequestQueue > 105 || randomQueue < 115 {
		t.Errorf("longest of 100 queues with 10000 requests: least request %d, random %d; want at most 105 and at least 115", leastRequestQueue, randomQueue)
	}
}

func TestConcurrentPicksKeepShares(t *testing.T) {
	const workers, each = 8, 7000
	b := WeightedRoundRobin(newHosts(5, 1, 1), Options{})
	var mu sync.Mutex
	total := make([]int, 3)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			picked := make([]int, 3)
			for range each {
				picked[b.Pick(Key{})]++
			}
			mu.Lock()
			defer mu.Unlock()
			for i, n := range picked {
				total[i] += n
			}
		})
	}
	wg.Wait()
	if want := []int{workers * each / 7 * 5, workers * each / 7, workers * each / 7}; !slices.Equal(total, want) {
		t.Errorf("picks = %v, want %v", total, want)
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	for _, p := range policies() {
		b := p.newBalancer(newHosts(3, 1, 4, 1, 5), Options{ActiveRequestBias: 1.5})
		if n := testing.AllocsPerRun(100, func() { b.Pick(Key{Hash: 7}) }); n != 0 {
			t.Errorf("%s: %v allocations per pick, want 0", p.name, n)
		}
	}
}

func benchSizes() []int { return []int{10, 10_000} }

func mixedWeights(n int) []Host {
	random := rand.New(rand.NewPCG(1, 1))
	weights := make([]uint32, n)
	for i := range weights {
		weights[i] = 1 + uint32(random.IntN(128))
	}
	return newHosts(weights...)
}

func BenchmarkPick(b *testing.B) {
	for _, p := range policies() {
		for _, n := range benchSizes() {
			b.Run(fmt.Sprintf("%s/%d", p.name, n), func(b *testing.B) {
				start := time.Now()
				balancer := p.newBalancer(mixedWeights(n), Options{ActiveRequestBias: 1, Now: func() time.Duration { return time.Since(start) }})
				b.ReportAllocs()
				var k Key
				for b.Loop() {
					k.Hash += 0x9e3779b97f4a7c15
					balancer.Pick(k)
				}
			})
		}
	}
	b.Run("weighted round robin/one heavy host of 10000", func(b *testing.B) {
		list := newHosts(slices.Repeat([]uint32{1}, 10_000)...)
		list[0].Weight = 128
		balancer := WeightedRoundRobin(list, Options{})
		for b.Loop() {
			balancer.Pick(Key{})
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	list := mixedWeights(10_000)
	for _, p := range policies() {
		b.Run(p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.newBalancer(list, Options{ActiveRequestBias: 1})
			}
		})
	}
}
