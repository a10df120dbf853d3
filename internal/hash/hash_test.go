package hash

import (
	"math"
	"math/bits"
	"strconv"
	"testing"
)

// TestHashValuesAreStable verifies that the hashes do not change: other proxies must build the same
// tables.
func TestHashValuesAreStable(t *testing.T) {
	tests := []struct {
		name      string
		got, want uint64
	}{
		{"empty string", String(""), 0xf52a15e9a9b5e89b},
		{"address", String("127.0.0.1:8080"), 0x210de053f452be8d},
		{"Mix of zero", Mix(0), 0},
		{"first element of a sequence", Nth(1, 0), Mix(1)},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, tt.got, tt.want)
		}
	}
}

func TestPairIsNotSymmetric(t *testing.T) {
	if Pair("a", "b") == Pair("b", "a") || Pair("ab", "") == Pair("a", "b") {
		t.Error("pairs with the same characters have the same hash, want different hashes")
	}
}

// TestSimilarInputsSpread verifies that hashes of similar strings fill all buckets evenly,
// whichever bits select the bucket.
func TestSimilarInputsSpread(t *testing.T) {
	const inputs, buckets = 64_000, 64
	for _, shift := range []int{0, 29, 58} {
		var count [buckets]int
		for i := range inputs {
			count[String("10.0.0."+strconv.Itoa(i))>>shift%buckets]++
		}
		for b, n := range count {
			if maxDeviation := 6 * math.Sqrt(inputs/buckets); math.Abs(float64(n)-inputs/buckets) > maxDeviation {
				t.Errorf("bits from %d: bucket %d has %d of %d, want %d ± %.0f", shift, b, n, inputs, inputs/buckets, maxDeviation)
			}
		}
	}
}

func TestMixChangesHalfOfTheBits(t *testing.T) {
	flipped := 0
	for bit := range 64 {
		flipped += bits.OnesCount64(Mix(12345) ^ Mix(12345^1<<bit))
	}
	if mean := float64(flipped) / 64; mean < 28 || mean > 36 {
		t.Errorf("one bit of the argument changes %.1f bits on average, want about 32", mean)
	}
}
