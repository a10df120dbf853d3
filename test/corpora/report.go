package corpora

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// result says what happened to a configuration.
type result struct {
	Name    string
	Valid   bool     // Envoy accepts it; always true for MOSN
	Taken   bool     // Weft accepts it
	Reasons []string `json:",omitempty"` // why Weft rejects it
	Started bool     // Weft ran and listened
	Failure string   `json:",omitempty"` // why Weft or Envoy did not start
	Probes  int      // requests that both proxies got
	Unequal []string `json:",omitempty"` // probes with different answers
	Envoy   string   `json:",omitempty"` // why Envoy rejects it
}

// equal reports whether both proxies answered, and the answers were the same.
func (r *result) equal() bool { return r.Started && r.Probes > 0 && len(r.Unequal) == 0 }

// summary holds the results of a corpus.
type summary struct {
	Title   string
	isMOSN  bool
	Results []*result
}

// count returns the number of results for which accept returns true.
func (s *summary) count(accept func(*result) bool) (n int) {
	for _, r := range s.Results {
		if accept(r) {
			n++
		}
	}
	return n
}

// writeTable writes a table of all corpora.
func writeTable(w io.Writer, summaries []*summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "files\tvalid\ttaken\tstarted\tequal\tonly Weft takes\t corpus") // Flush returns the errors
	for _, s := range summaries {
		equal := fmt.Sprint(s.count((*result).equal))
		if s.isMOSN {
			equal = "-"
		}
		_, _ = fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%s\t%d\t %s\n", len(s.Results),
			s.count(func(r *result) bool { return r.Valid }),
			s.count(func(r *result) bool { return r.Valid && r.Taken }),
			s.count(func(r *result) bool { return r.Started }), equal,
			s.count(func(r *result) bool { return !r.Valid && r.Taken }), s.Title)
	}
	return t.Flush()
}

// maxReasonLines limits the reasons that writeReasons writes for each corpus.
const maxReasonLines = 40

// writeReasons writes the reasons of the rejections of files that Envoy accepts, the most frequent
// ones first: the number of files with the reason, and the number of files that have no other one.
func writeReasons(w io.Writer, summaries []*summary) error {
	for _, s := range summaries {
		files, only := map[string]int{}, map[string]int{}
		for _, r := range s.Results {
			if !r.Valid || r.Taken {
				continue
			}
			kinds := map[string]bool{}
			for _, reason := range r.Reasons {
				kinds[reasonKind(reason)] = true
			}
			for kind := range kinds {
				files[kind]++
				if len(kinds) == 1 {
					only[kind]++
				}
			}
		}
		if _, err := fmt.Fprintf(w, "\n%s: reasons of rejections\n", s.Title); err != nil {
			return err
		}
		kinds := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
			return cmp.Or(cmp.Compare(files[b], files[a]), cmp.Compare(only[b], only[a]), cmp.Compare(a, b))
		})
		for _, kind := range kinds[:min(len(kinds), maxReasonLines)] {
			if _, err := fmt.Fprintf(w, "%5d %5d  %s\n", files[kind], only[kind], kind); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	positionPrefix = regexp.MustCompile(`^(.*?:\d+:\d+: |[^ ]*: )`)
	listIndex      = regexp.MustCompile(`\[\d+\]`)
	mapKey         = regexp.MustCompile(`\[[^\]]*[/.][^\]]*\]`)
	namedFilter    = regexp.MustCompile(`[^ ]+ \((type\.googleapis\.com/[^)]*)\)`)
	quotedText     = regexp.MustCompile(`"[^"]*"`)
)

// reasonKind returns a reason without the parts that differ from file to file: position, indexes
// and names. Of the path it keeps the last two fields.
func reasonKind(reason string) string {
	reason = positionPrefix.ReplaceAllString(reason, "")
	reason = namedFilter.ReplaceAllString(reason, "$1")
	path, text, found := strings.Cut(reason, ": ")
	if !found {
		return quotedText.ReplaceAllString(reason, `"…"`)
	}
	path = mapKey.ReplaceAllString(listIndex.ReplaceAllString(path, "[]"), "[…]")
	fields := strings.Split(path, ".")
	path = quotedText.ReplaceAllString(strings.Join(fields[max(0, len(fields)-2):], "."), `"…"`)
	if !strings.Contains(text, "type.googleapis.com") && !strings.Contains(text, "unknown") {
		text = quotedText.ReplaceAllString(text, `"…"`)
	}
	return path + ": " + text
}
