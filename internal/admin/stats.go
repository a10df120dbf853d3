package admin

import (
	"bufio"
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
)

// Stat is one value under the name that Envoy gives it.
type Stat struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	Gauge bool   `json:"-"` // false: a counter
	Used  bool   `json:"-"` // true for a gauge, and for a counter that is not zero
}

// stats writes the values as Envoy does: in lines "name: value" sorted by name, or as JSON.
// ?filter= is a regular expression that the name must match, ?usedonly omits values that are not
// Touched, and ?type= selects Counters or Gauges.
func (s *Sources) stats(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if format := query.Get("format"); format == "prometheus" && s.Metrics != nil {
		s.Metrics.ServeHTTP(w, r)
		return
	}
	filter, err := regexp.Compile(query.Get("filter"))
	if err != nil {
		writeError(w, http.StatusBadRequest, "filter: "+err.Error(), "filter is a regular expression (RE2)")
		return
	}
	kind := query.Get("type")
	all := slices.DeleteFunc(s.Stats(), func(one Stat) bool {
		switch {
		case query.Has("usedonly") && !one.Used,
			kind == "Counters" && one.Gauge, kind == "Gauges" && !one.Gauge, kind == "Histograms", kind == "TextReadouts":
			return true
		}
		return !filter.MatchString(one.Name)
	})
	slices.SortFunc(all, func(a, b Stat) int { return cmp.Compare(a.Name, b.Name) })
	switch query.Get("format") {
	case "json":
		writeJSON(w, http.StatusOK, map[string][]Stat{"stats": all})
	case "", "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out := bufio.NewWriter(w)
		for _, one := range all {
			_, _ = out.WriteString(one.Name + ": " + strconv.FormatUint(one.Value, 10) + "\n") // the client may have disconnected
		}
		_ = out.Flush() // the client may have disconnected
	default:
		writeError(w, http.StatusBadRequest, "unknown format", "the formats are text, json and prometheus")
	}
}
