package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMetricNamesFollowConventions(t *testing.T) {
	name := regexp.MustCompile(`^weft(_[a-z][a-z0-9]*)+$`)
	seen := map[string]bool{}
	for _, m := range Metrics() {
		if !name.MatchString(m.Name) {
			t.Errorf("%s: want the prefix weft_ and lower-case words", m.Name)
		}
		if seen[m.Name] {
			t.Errorf("duplicate metric %s", m.Name)
		}
		seen[m.Name] = true
		if !strings.HasSuffix(m.Help, ".") && !strings.HasSuffix(m.Help, ").") || len(m.Help) < 10 {
			t.Errorf("%s: help %q is not a sentence", m.Name, m.Help)
		}
		if got, want := strings.HasSuffix(m.Name, "_total"), m.Kind == KindCounter; got != want {
			t.Errorf("%s is a %s: want _total at the end of exactly the counters", m.Name, m.Kind)
		}
		if m.Kind == KindHistogram && !strings.HasSuffix(m.Name, "_seconds") {
			t.Errorf("%s: the name of a histogram must end in _seconds", m.Name)
		}
		for _, unit := range []string{"milli", "_ms", "micro", "kilo", "mega", "_kb", "_mb", "minute", "percent"} {
			if strings.Contains(m.Name, unit) {
				t.Errorf("%s does not use a base unit", m.Name)
			}
		}
		for _, key := range m.Labels {
			if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(key) || key == "le" || key == "quantile" {
				t.Errorf("%s: invalid label %q", m.Name, key)
			}
			if strings.Contains(m.Name, "by_"+key) {
				t.Errorf("%s repeats its label %s", m.Name, key)
			}
		}
	}
}

func TestEveryExportedMetricIsDescribed(t *testing.T) {
	r := testRegistry()
	s := requestOutcome{Status: 200, Reason: 1}
	l, _ := r.Listener("a")
	l.Add(batchOf(s))
	c, _ := r.Cluster("a")
	c.LimitUsage.SetFunc(func(int, Limit) (used, limit int64) { return 1, 2 })
	c.Add(batchOf(s))
	h, _ := r.Host("a", "b")
	h.Add(batchOf(s))
	var route Route
	route.Open(r.Routes("a"), "b", "c")
	route.Add("b", "c", batchOf(s))
	r.RPC().Method("a", "b").Add(batchOf(requestOutcome{Reason: 1}))
	r.Counter(ConfigReloads, ResultApplied)
	r.Counter(Panics)
	for _, m := range []Metric{ConfigTime, Draining} {
		r.Func(m, func() float64 { return 0 })
	}
	r.Func(LogDropped, func() float64 { return 0 }, "a")
	r.Counter(ListenerHandshakes, "a", ResultOK)
	r.Counter(ClusterHandshakes, "a", ResultOK)
	r.Counter(CertificateReloads, ResultApplied)
	r.Counter(DNSLookups, ResultNotFound)
	for _, m := range slices.Concat(udpMetrics(), overloadMetrics(), xdsMetrics(), discoveryMetrics()) {
		r.Func(m, func() float64 { return 0 }, []string{"a", "b", "c"}[:len(m.Labels)]...)
	}
	r.Counter(HTTP2Floods, "ping")
	r.Counter(HeaderUnderscores, "dropped")
	r.Func(OverloadPressure, func() float64 { return 0 }, "memory")
	r.Func(OverloadValue, func() float64 { return 0 }, "shrink_heap")
	r.Counter(OverloadFailures, "memory")
	r.Counter(OverloadEffects, "shrink_heap")

	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "weft_") {
			continue
		}
		keys := labelKeys(f)
		slices.Sort(keys)
		got = append(got, f.GetName()+" "+strings.ToLower(f.GetType().String())+" "+strings.Join(keys, ","))
	}
	for _, m := range Metrics() {
		keys := slices.Sorted(slices.Values(m.Labels))
		want = append(want, m.Name+" "+m.Kind.String()+" "+strings.Join(keys, ","))
	}
	slices.Sort(got)
	slices.Sort(want)
	wantLines(t, got, want...)
}
