package inspect

import (
	"bufio"
	"cmp"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/weft-proxy/weft/internal/admin"
)

// FilterStats returns the statistics that the parameters of Envoy's /stats select, sorted by name.
// filter= is a regular expression that matches a part of the name. usedonly omits values that are
// not Used. type= selects Counters or Gauges. FilterStats reuses the memory of stats. It returns an
// error if filter= is invalid.
func FilterStats(stats []Stat, query url.Values) ([]Stat, error) {
	filter, err := regexp.Compile(query.Get("filter"))
	if err != nil {
		return nil, err
	}
	statType := query.Get("type")
	stats = slices.DeleteFunc(stats, func(stat Stat) bool {
		switch {
		case query.Has("usedonly") && !stat.Used,
			statType == "Counters" && stat.IsGauge, statType == "Gauges" && !stat.IsGauge, statType == "Histograms", statType == "TextReadouts":
			return true
		}
		return !filter.MatchString(stat.Name)
	})
	slices.SortFunc(stats, func(a, b Stat) int { return cmp.Compare(a.Name, b.Name) })
	return stats, nil
}

// WriteStats writes statistics in Envoy's text format: lines "name: value".
func WriteStats(w io.Writer, stats []Stat) error {
	out := bufio.NewWriter(w)
	for _, stat := range stats {
		_, _ = out.WriteString(stat.Name + ": " + strconv.FormatUint(stat.Value, 10) + "\n") // Flush returns the error
	}
	return out.Flush()
}

// stats serves /stats.
func (s *Sources) stats(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("format") == "prometheus" && s.Metrics != nil {
		s.Metrics.ServeHTTP(w, r)
		return
	}
	stats := s.readStats()
	s.counterResets.apply(stats)
	serveStats(w, query, stats)
}

// readStats returns the current statistics, without resets of counters.
func (s *Sources) readStats() []Stat {
	in := &StatsInput{Samples: s.Samples(), Clusters: s.Clusters(), Listeners: len(s.Listeners()), Process: s.Process()}
	s.ReadMemory(&in.Memory)
	return NewStats(in)
}

// serveStats writes the statistics that the query selects.
func serveStats(w http.ResponseWriter, query url.Values, stats []Stat) {
	selected, err := FilterStats(stats, query)
	if err != nil {
		admin.WriteError(w, http.StatusBadRequest, "filter: "+err.Error(), "filter is a regular expression (RE2)")
		return
	}
	switch query.Get("format") {
	case "json":
		admin.WriteJSON(w, http.StatusOK, Stats{selected})
	case "", "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = WriteStats(w, selected) // the client may have disconnected
	default:
		admin.WriteError(w, http.StatusBadRequest, "unknown format", "the formats are text, json and prometheus")
	}
}
