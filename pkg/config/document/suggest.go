package document

import (
	"strings"
	"unicode"
)

// Suggest returns the name of known that is nearest to name, or "" if name is not a likely typo of
// it: swapped, missing, doubled or wrong letters, other separators, or only the beginning or end of
// it.
func Suggest(name string, known []string) string {
	const maxLen = 64 // longer names get no suggestion: the time is quadratic
	if len(name) == 0 || len(name) > maxLen {
		return ""
	}
	folded := fold(name)
	best, bestDistance := "", 1+max(1, len(folded)/3)
	for _, knownName := range known {
		if len(knownName) > maxLen {
			continue
		}
		candidate := fold(knownName)
		d := distance(folded, candidate)
		if len(folded) >= 4 && (strings.HasPrefix(candidate, folded) || strings.HasSuffix(candidate, folded)) {
			d = min(d, 2)
		}
		if len(candidate) >= 4 && strings.HasPrefix(folded, candidate) {
			d = min(d, 2)
		}
		if d < bestDistance {
			best, bestDistance = knownName, d
		}
	}
	return best
}

// fold removes case and separators, where typos are frequent.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-. ", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}

// distance returns the number of letters to insert, delete, replace or swap with their neighbor to
// turn a into b.
func distance(a, b string) int {
	beforeLast := make([]int, len(b)+1) // two rows earlier
	previous := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(previous[j]+1, row[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
		beforeLast, previous, row = previous, row, beforeLast
	}
	return previous[len(b)]
}
