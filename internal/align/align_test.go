package align

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestIndexes(t *testing.T) {
	tests := []struct {
		name, previous, current string
		want                    []int32
	}{
		{"both empty", "", "", []int32{}},
		{"previous empty", "", "ab", []int32{-1, -1}},
		{"current empty", "ab", "", []int32{}},
		{"unchanged", "abc", "abc", []int32{0, 1, 2}},
		{"element replaced", "abc", "aXc", []int32{0, -1, 2}},
		{"element added at the beginning", "abc", "Xabc", []int32{-1, 0, 1, 2}},
		{"element added in the middle", "abc", "abXc", []int32{0, 1, -1, 2}},
		{"element added at the end", "abc", "abcX", []int32{0, 1, 2, -1}},
		{"element removed", "abc", "ac", []int32{0, 2}},
		{"two elements swapped", "abcd", "acbd", []int32{0, 2, 1, 3}},
		{"reversed", "abc", "cba", []int32{2, 1, 0}},
		{"duplicates, one added", "aab", "aaab", []int32{0, 1, -1, 2}},
		{"duplicates, one removed", "aaa", "aa", []int32{0, 1}},
		{"duplicates between the ends", "xbby", "zbbz", []int32{-1, 1, 1, -1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Indexes([]byte(test.previous), []byte(test.current)); !slices.Equal(got, test.want) {
				t.Errorf("Indexes(%q, %q) = %v, want %v", test.previous, test.current, got, test.want)
			}
		})
	}
}

func TestIndexesReferToEqualElements(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // deterministic
	for range 2000 {
		previous, current := make([]int, rng.IntN(12)), make([]int, rng.IntN(12))
		for i := range previous {
			previous[i] = rng.IntN(8)
		}
		for i := range current {
			current[i] = rng.IntN(8)
		}
		for i, index := range Indexes(previous, current) {
			if index >= 0 && previous[index] != current[i] {
				t.Fatalf("Indexes(%v, %v)[%d] = %d, want the index of an equal element", previous, current, i, index)
			}
		}
	}
}
