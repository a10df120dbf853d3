package proxy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
	"github.com/weft-proxy/weft/pkg/proxy/accesslog"
)

var update = flag.Bool("update", false, "write the tables of docs/observability.md")

const observabilityDoc = "../../docs/observability.md"

// TestObservabilityDocHasEverything verifies that the tables of docs/observability.md match the
// code.
func TestObservabilityDocHasEverything(t *testing.T) {
	page, err := os.ReadFile(observabilityDoc)
	if err != nil {
		t.Fatal(err)
	}
	want := page
	for name, table := range map[string]string{
		"metrics":   metricTable(),
		"causes":    closeReasonTable(),
		"bounds":    boundList(),
		"variables": variableTable(),
		"columns":   columnTable(),
	} {
		if want, err = replaceTable(want, name, table); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(observabilityDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(page)); diff != "" {
		t.Errorf("docs/observability.md differs from the code; write it with: go test ./pkg/proxy -run Observability -update\n- code + page:\n%s", diff)
	}
}

// TestObservabilityDocNamesExist verifies the metric names and access log formats outside the
// tables.
func TestObservabilityDocNamesExist(t *testing.T) {
	page, err := os.ReadFile(observabilityDoc)
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, m := range allMetrics() {
		exists[m.Name] = true
	}
	for _, name := range regexp.MustCompile(`weft_[a-z0-9_]+`).FindAllString(string(page), -1) {
		if name != "weft_" && !exists[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("metric %s does not exist", name)
		}
	}
	logs := 0
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		var example struct {
			Logs []struct {
				Format string            `json:"log_format"`
				JSON   map[string]string `json:"json_format"`
			} `json:"access_logs"`
		}
		if err := json.Unmarshal([]byte("{"+block[1]+"}"), &example); err != nil {
			t.Errorf("%v in the example:\n%s", err, block[1])
		}
		for _, log := range example.Logs {
			c := config.AccessLog{Path: filepath.Join(t.TempDir(), "access.log"), Format: log.Format}
			for name, format := range log.JSON {
				c.JSON = append(c.JSON, config.LogField{Name: name, Format: format})
			}
			out, err := accesslog.Open(c, logfile.NewSet(logfile.SetOptions{CheckOnly: true}))
			if err != nil {
				t.Error(err)
				continue
			}
			out.Close()
			logs++
		}
	}
	if logs == 0 {
		t.Error("the page has no example of an access log")
	}
}

// TestAccessLogLineHasTheColumns verifies that the example line in docs/observability.md matches
// the columns of the default format.
func TestAccessLogLineHasTheColumns(t *testing.T) {
	page, err := os.ReadFile(observabilityDoc)
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile("(?s)<!-- begin line -->\n```\n(.*?)\n```\n<!-- end line -->").FindSubmatch(page)
	if match == nil {
		t.Fatal("the page has no example line")
	}
	values, columns := strings.Split(string(match[1]), " "), strings.Fields(accesslog.DefaultFormat)
	if len(values) != len(columns) {
		t.Fatalf("the line has %d values, the default format %d columns, want the same number", len(values), len(columns))
	}
	for column, want := range map[string]string{
		"%start_time_rfc3339%":        `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)$`,
		"%downstream_remote_address%": `^[\d.]+:\d+$`,
		"%method%":                    `^[A-Z]+$`,
		"%request_uri%":               `^/`,
		"%version%":                   `^HTTP/1\.1$`,
		"%response_code%":             `^\d{3}$`,
		"%response_flag%":             `^([A-Z]+|-)$`,
		"%duration_ms%":               `^\d+\.\d{3}$`,
		"%upstream_host%":             `^[\d.]+:\d+$`,
	} {
		i := slices.Index(columns, column)
		if i < 0 {
			t.Errorf("the default format has no column %s", column)
		} else if !regexp.MustCompile(want).MatchString(values[i]) {
			t.Errorf("column %d, %s: the line has %q, which does not match %s", i+1, column, values[i], want)
		}
	}
}

// replaceTable returns the page with text between the markers called name. It indents text like the
// markers.
func replaceTable(page []byte, name, text string) ([]byte, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := bytes.Cut(page, []byte(begin))
	if !ok {
		return nil, fmt.Errorf("no %q in the page", begin)
	}
	_, after, ok := bytes.Cut(rest, []byte(end))
	if !ok {
		return nil, fmt.Errorf("no %q in the page", end)
	}
	indent := string(before[bytes.LastIndexByte(before, '\n')+1:])
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(begin)
	for line := range strings.Lines(text) {
		b.WriteString(indent + line)
	}
	b.WriteString(indent + end)
	b.Write(after)
	return b.Bytes(), nil
}

// allMetrics returns the metrics that Weft and its filters export.
func allMetrics() []metrics.Metric {
	all := metrics.Metrics()
	for _, f := range builtFilters() {
		all = append(all, f.Metrics...)
	}
	for _, f := range builtConnectionFilters() {
		all = append(all, f.Metrics...)
	}
	return all
}

// TestFilterMetricNames verifies that the metric names of a filter contain the filter's name, so
// that two filters never share a metric. The metrics of istio_stats have the names that Istio's
// dashboards query.
func TestFilterMetricNames(t *testing.T) {
	for _, f := range builtFilters() {
		for _, m := range f.Metrics {
			isIstio := f.Name == "istio_stats" && strings.HasPrefix(m.Name, "istio_")
			if !isIstio && !strings.HasPrefix(m.Name, "weft_filter_"+metricName(f.Name)+"_") || (m.Kind == metrics.KindCounter) != strings.HasSuffix(m.Name, "_total") {
				t.Errorf("filter %s exports metric %s of kind %s, want a name with the filter's name, and _total only for a counter", f.Name, m.Name, m.Kind)
			}
			if !strings.HasSuffix(m.Help, ".") {
				t.Errorf("%s: %q is not a sentence", m.Name, m.Help)
			}
		}
	}
}

// metricName returns the name of a filter in metric names: flow_control for MOSN's
// flowControlFilter.
func metricName(filter string) string {
	var b strings.Builder
	for _, c := range strings.TrimSuffix(filter, "Filter") {
		if unicode.IsUpper(c) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

func metricTable() string {
	var b strings.Builder
	b.WriteString("| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n")
	for _, m := range allMetrics() {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, labels, m.Help)
	}
	return b.String()
}

func closeReasonTable() string {
	var b strings.Builder
	b.WriteString("| Close reason | Meaning |\n|---|---|\n")
	for c := range network.CloseReasons() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c, c.Text())
	}
	return b.String()
}

func boundList() string {
	var all []string
	for _, bound := range metrics.Bounds() {
		all = append(all, bound.String())
	}
	return strings.Join(all, ", ") + ".\n"
}

// columnTable lists the columns of the default access log format.
func columnTable() string {
	docs := maps.Collect(variable.Names())
	var b strings.Builder
	b.WriteString("| Column | Variable | Meaning |\n|---:|---|---|\n")
	for i, column := range strings.Fields(accesslog.DefaultFormat) {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", i+1, column, docs[strings.Trim(column, "%")])
	}
	return b.String()
}

func variableTable() string {
	var b strings.Builder
	b.WriteString("| Variable | Meaning |\n|---|---|\n")
	for name, doc := range variable.Names() {
		fmt.Fprintf(&b, "| `%%%s%%` | %s |\n", name, doc)
	}
	return b.String()
}
