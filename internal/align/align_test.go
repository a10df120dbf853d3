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
		{"the first list", "", "ab", []int32{-1, -1}},
		{"nothing is left", "ab", "", []int32{}},
		{"nothing changed", "abc", "abc", []int32{0, 1, 2}},
		{"one changed", "abc", "aXc", []int32{0, -1, 2}},
		{"one more at the beginning", "abc", "Xabc", []int32{-1, 0, 1, 2}},
		{"one more in the middle", "abc", "abXc", []int32{0, 1, -1, 2}},
		{"one more at the end", "abc", "abcX", []int32{0, 1, 2, -1}},
		{"one less", "abc", "ac", []int32{0, 2}},
		{"two in each other's place", "abcd", "acbd", []int32{0, 2, 1, 3}},
		{"the other way round", "abc", "cba", []int32{2, 1, 0}},
		{"equal ones", "aab", "aaab", []int32{0, 1, -1, 2}},
		{"equal ones become fewer", "aaa", "aa", []int32{0, 1}},
		{"equal ones between the ends", "xbby", "zbbz", []int32{-1, 1, 1, -1}},
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
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is to be the same each time
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
				t.Fatalf("Indexes(%v, %v)[%d] = %d", previous, current, i, index)
			}
		}
	}
}
