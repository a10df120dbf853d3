package document

import (
	"strings"
	"unicode"
)

// Suggest returns the name in known of which name is most likely a typo, or "" if there is none.
// name is a likely typo if a few letters are swapped, missing, additional or wrong, or if only case
// or separators differ. It is also a likely typo if name is the beginning or end of the known name,
// or begins with it.
func Suggest(name string, known []string) string {
	const maxLen = 64 // bytes; longer names are not compared, because distance takes quadratic time
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

// fold returns s in lower case and without separators.
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
	beforePrevious := make([]int, len(b)+1)
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
				row[j] = min(row[j], beforePrevious[j-2]+1)
			}
		}
		beforePrevious, previous, row = previous, row, beforePrevious
	}
	return previous[len(b)]
}
