// Package filtertest contains helpers for the tests of filters. They read settings as config.json
// is read, serve exchanges as an engine does, and compare READMEs with the code.
package filtertest

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Settings is the "config" of a filter as in a file: JSON, comments allowed.
type Settings string

// Decode reads s as the configuration of factory's filter. It fails the test if s has an error or a
// warning.
func Decode(t testing.TB, factory filter.StreamFilterFactory, s Settings) any {
	t.Helper()
	cfg, problems := decode(factory, s)
	if problems != "" {
		t.Fatalf("%s\n%s", s, problems)
	}
	return cfg
}

// DecodeErrors returns the problems of s, one per line, and fails the test if there are none.
func DecodeErrors(t testing.TB, factory filter.StreamFilterFactory, s Settings) string {
	t.Helper()
	_, problems := decode(factory, s)
	if problems == "" {
		t.Fatalf("%s was accepted, want an error or a warning", s)
	}
	return problems
}

func decode(factory filter.StreamFilterFactory, s Settings) (cfg any, problems string) {
	report := new(document.Report)
	root := document.Parse("config", []byte(s), document.Options{}, report)
	cfg = factory.Config()
	if report.Errors() == 0 {
		document.NewDecoder(report).Decode(root, cfg)
	}
	var b strings.Builder
	for _, d := range report.Diagnostics() {
		fmt.Fprintln(&b, d.Error())
	}
	return cfg, b.String()
}

// Build returns the filter that s configures, and its Probe. The filter's calls to clusters fail.
func Build(t testing.TB, factory filter.StreamFilterFactory, s Settings) (filter.Filter, *Probe) {
	t.Helper()
	return BuildWith(t, factory, s, new(ClusterClient))
}

// BuildWith is Build for a filter that calls clusters.
func BuildWith(t testing.TB, factory filter.StreamFilterFactory, s Settings, clusters filter.ClusterClient) (filter.Filter, *Probe) {
	t.Helper()
	probe := &Probe{t: t, registry: metrics.New(metrics.Options{})}
	env := filter.Env{
		Log: slog.New(slog.DiscardHandler), Metrics: probe.registry, ClusterClient: clusters,
		Cluster: func(string) *config.Cluster { return nil },
		Observe: func(f func(*protocol.Exchange)) { probe.observers = append(probe.observers, f) },
	}
	f, err := factory.New(Decode(t, factory, s), env)
	if err != nil {
		t.Fatal(err)
	}
	return f, probe
}

// Probe gives a test the metrics and the observers of a filter.
type Probe struct {
	t         testing.TB
	registry  *metrics.Registry
	observers []func(*protocol.Exchange)
}

// CallObservers calls the observers that the filter registered with Env.Observe, as an engine does
// at the end of x.
func (p *Probe) CallObservers(x *protocol.Exchange) {
	for _, f := range p.observers {
		f(x)
	}
}

// Value returns the sum of all series of m, which is a counter or a gauge.
func (p *Probe) Value(m metrics.Metric) float64 {
	p.t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != m.Name {
			continue
		}
		for _, series := range f.GetMetric() {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue()
		}
	}
	return sum
}

// CheckReadme compares README.md in the working directory with the filter. The page must have
// every section of a filter README, in order, and its tables of keys and metrics must match the
// code (with update, CheckReadme writes them). It returns the settings of each example, in order.
func CheckReadme(t testing.TB, factory filter.StreamFilterFactory, update bool) []Settings {
	t.Helper()
	const name = "README.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	sections := regexp.MustCompile(`(?m)^## .*$`).FindAllString(text, -1)
	if got, want := strings.Join(sections, ", "), "## What it does, ## Configuration, ## Example, ## Errors, ## Metrics"; got != want {
		t.Errorf("%s has the sections %s, want %s", name, got, want)
	}
	want := replaceSection(t, text, "keys", "\n"+document.Markdown(3, "`config`", factory.Config(), nil))
	want = replaceSection(t, want, "metrics", "\n"+metricTable(factory)+"\n")
	if update {
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != text {
		t.Errorf("%s differs from the code: run the test with -update", name)
	}
	return examples(t, factory, text)
}

// replaceSection returns page with text between the markers called name.
func replaceSection(t testing.TB, page, name, text string) string {
	t.Helper()
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(page, begin)
	if !ok {
		t.Fatalf("the page has no %q", begin)
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("the page has no %q", end)
	}
	return before + begin + text + end + after
}

func metricTable(factory filter.StreamFilterFactory) string {
	if len(factory.Metrics) == 0 {
		return "The filter has no metrics of its own.\n"
	}
	var b strings.Builder
	b.WriteString("| metric | kind | meaning |\n|---|---|---|\n")
	for _, m := range factory.Metrics {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, m.Kind, m.Help)
	}
	return b.String()
}

// examples returns the filter's settings in every JSON block on the page, for listeners and for
// routes. It skips blocks for the network filter of the same name.
func examples(t testing.TB, factory filter.StreamFilterFactory, page string) []Settings {
	t.Helper()
	var settings []Settings
	for _, block := range regexp.MustCompile("(?ms)^```json(?: config=\\S+)?\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		report := new(document.Report)
		root := document.Parse("README.md", []byte(block[1]), document.Options{}, report)
		if err := report.Diagnostics().Err(); err != nil {
			t.Fatalf("%v in the example\n%s", err, block[1])
		}
		if root.Get("filters").Exists() {
			continue
		}
		count := len(settings)
		settings = appendSettings(settings, factory.Name, root)
		if len(settings) == count {
			t.Errorf("this example has no settings of %s:\n%s", factory.Name, block[1])
		}
	}
	return settings
}

// appendSettings appends the settings of the filter called name below n.
func appendSettings(dst []Settings, name string, n document.Node) []Settings {
	if n.Kind() == document.Object && n.Get("type").Text() == name {
		return append(dst, settingsOf(n.Get("config")))
	}
	for member := range n.All() {
		if member.Key() == "per_filter_config" {
			if routeConfig := member.Get(name); routeConfig.Exists() {
				dst = append(dst, settingsOf(routeConfig))
			}
			continue
		}
		dst = appendSettings(dst, name, member)
	}
	return dst
}

func settingsOf(n document.Node) Settings { return Settings(document.Redact(n)) }

// CheckNoAllocs fails the test if s allocates when it serves x. s must return no error.
func CheckNoAllocs(t *testing.T, s protocol.Service, x *protocol.Exchange) {
	t.Helper()
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := x.Serve(ctx, s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}

// Bench measures how s serves x. s must return no error.
func Bench(b *testing.B, s protocol.Service, x *protocol.Exchange) {
	b.Helper()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = x.Serve(ctx, s) // returns no error
	}
}
