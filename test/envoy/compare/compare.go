// Package compare decides whether two proxies behaved equally in a case.
//
//	view.go      what is compared: what the client and the origins received
//	normalize.go replaces what differs between any two runs
//	compare.go   the differences of two views
//	named.go     the differences that have a name and a reason
//	report.go    the result: counts by feature, and the table
package compare

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/test/envoy/cases"
)

// Difference is an aspect in which two views differ. A missing aspect has no values.
type Difference struct {
	Aspect string   `json:"aspect"`
	Envoy  []string `json:"envoy"`
	Weft   []string `json:"weft"`
	Name   string   `json:"name,omitempty"` // of the Named that matches, or ""
}

// Compare returns the differences of two views of a case, sorted by aspect.
func Compare(c *cases.Case, envoy, weft View) []Difference {
	aspects := map[string]bool{}
	total := 0
	for _, v := range []View{envoy, weft} {
		for aspect := range maps.Keys(v) {
			aspects[aspect] = true
		}
	}
	for aspect := range maps.Keys(envoy) {
		if strings.HasPrefix(aspect, distributionPrefix) {
			total += int(number(envoy[aspect]))
		}
	}
	var differences []Difference
	for _, aspect := range slices.Sorted(maps.Keys(aspects)) {
		e, w := envoy[aspect], weft[aspect]
		if !slices.Equal(e, w) && !tolerated(c, aspect, e, w, total) {
			differences = append(differences, Difference{Aspect: aspect, Envoy: e, Weft: w})
		}
	}
	return differences
}

// tolerated reports whether two different values of an aspect count as equal: numbers of requests
// that a random choice distributes, and times. total is the number of requests of the case.
func tolerated(c *cases.Case, aspect string, envoy, weft []string, total int) bool {
	apart := math.Abs(number(envoy) - number(weft))
	switch {
	case strings.HasPrefix(aspect, distributionPrefix):
		return c.Distribution && apart <= max(0.12*float64(total), 4)
	case aspect == timeAspect:
		return len(envoy) == 1 && len(weft) == 1 && apart <= 1
	default:
		return false
	}
}

// number returns the number that is the only value, or 0.
func number(values []string) float64 {
	if len(values) != 1 {
		return 0
	}
	n, err := strconv.ParseFloat(values[0], 64)
	if err != nil {
		return 0
	}
	return n
}
