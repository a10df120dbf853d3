package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/load"
)

// samples returns rounds of one request each with the given CPU cost and p50 latency, in µs.
func samples(costs, latencies []int) []sample {
	rounds := make([]sample, len(costs))
	for i := range costs {
		rounds[i].Result = load.Result{
			Requests: 1,
			Elapsed:  time.Second,
			CPU:      time.Duration(costs[i]) * time.Microsecond,
			P50:      time.Duration(latencies[i]) * time.Microsecond,
		}
	}
	return rounds
}

// samplesWithP99 returns rounds with the given p99, in µs.
func samplesWithP99(p99 ...int) []sample {
	rounds := make([]sample, len(p99))
	for i, us := range p99 {
		rounds[i].P99 = time.Duration(us) * time.Microsecond
	}
	return rounds
}

func TestVerdicts(t *testing.T) {
	l := &loadRow{Name: "row", Cells: []*cell{
		{Proxy: "weft", Rounds: samples([]int{20, 44, 30}, []int{60, 60, 61})},
		{Proxy: "nginx", Rounds: samples([]int{20, 40, 20}, []int{50, 60, 51})},
		{Proxy: direct, Rounds: samples([]int{0, 0, 0}, []int{10, 10, 11})},
		{Proxy: "haproxy"},
	}}
	l.Cells[0].Half, l.Cells[2].Half = samplesWithP99(30, 20), samplesWithP99(10, 20)
	tests := []struct {
		name   string
		target target
		value  float64
		want   outcome
	}{
		{"median of the rounds' ratios, not ratio of medians", target{cpuPerRequest, "nginx", 1.15}, 1.1, met},
		{"value equal to the target", target{cpuPerRequest, "nginx", 1.1}, 1.1, met},
		{"target missed", target{cpuPerRequest, "nginx", 1.0}, 1.1, missed},
		{"added latency", target{addedP50, "nginx", 1.3}, 1.25, met},
		{"p99 at half load", target{halfP99, direct, 2}, 2, met},
		{"half load not measured", target{halfP99, "nginx", 2}, 0, unmeasured},
		{"program not measured", target{cpuPerRequest, "haproxy", 1}, 0, unmeasured},
		{"program without a target", target{cpuPerRequest, "nginx", 0}, 1.1, unbounded},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if v := l.compare("weft", test.target); v.Value.Median != test.value || v.Outcome != test.want {
				t.Errorf("compare(%+v) = %+v, want %v, %s", test.target, v, test.value, test.want)
			}
		})
	}
}

// TestVerdictOrder verifies that the verdicts contain the targets in their order and then the
// ratios without a target.
func TestVerdictOrder(t *testing.T) {
	equal := samples([]int{20}, []int{20})
	l := &loadRow{Name: "row", targets: []target{{halfP99, "nginx", 1}, {cpuPerRequest, "haproxy", 1}}, Cells: []*cell{
		{Proxy: "new", Rounds: equal, Half: samplesWithP99(30)}, {Proxy: "old", Rounds: equal, Half: samplesWithP99(30)},
		{Proxy: "nginx", Rounds: samples([]int{10}, []int{20}), Half: samplesWithP99(20)},
		{Proxy: "haproxy", Note: "not supported"},
		{Proxy: direct, Rounds: equal, Half: samplesWithP99(10)},
	}}
	r := &report{wefts: []string{"new", "old"}, Loads: []*loadRow{l}}
	r.fillVerdicts()
	var got []string
	for _, v := range r.Verdicts {
		if v.Proxy == "new" {
			got = append(got, fmt.Sprintf("%s: %v, %s", v.What, v.Value.Median, v.Outcome))
		}
	}
	want := []string{"p99 at half load / nginx's: 1.5, **MISS**", "CPU per request / haproxy's: 0, not measured", "CPU per request / nginx's: 2, "}
	if !slices.Equal(got, want) {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	if text := r.markdown(); !strings.Contains(text, "2 of 2 measured targets are missed.") || !strings.Contains(text, "- row, old: p99 at half load") {
		t.Errorf("report.md lacks the missed target:\n%s", text)
	}
}

func TestDisturbedRoundsAreIgnored(t *testing.T) {
	l := &loadRow{Name: "row", Cells: []*cell{
		{Proxy: "weft", Rounds: samples([]int{30, 20, 11}, []int{1, 1, 1})},
		{Proxy: "nginx", Rounds: samples([]int{10, 10, 10}, []int{1, 1, 1})},
	}}
	perRequest := target{cpuPerRequest, "nginx", 1.15}
	for _, step := range []struct {
		name      string
		weft      []float64 // load.Result.Others of Weft's rounds
		nginx     []float64
		value     float64
		rounds    string
		weftsCost float64
	}{
		{"all undisturbed", []float64{0, 0, 0}, []float64{0, 0, 0}, 2, "3 of 3 undisturbed", 20},
		{"one undisturbed pair", []float64{1, 0, 0}, []float64{0, 1, 0}, 1.1, "1 of 3 undisturbed", 15.5},
		{"none undisturbed", []float64{1, 1, 1}, []float64{1, 1, 1}, 2, "0 of 3 undisturbed", 20},
	} {
		for i := range 3 {
			l.Cells[0].Rounds[i].Others, l.Cells[1].Rounds[i].Others = step.weft[i], step.nginx[i]
		}
		v := l.compare("weft", perRequest)
		cost := summarize(l.Cells[0].Rounds, cpu).Median
		if v.Value.Median != step.value || v.Rounds != step.rounds || cost != step.weftsCost {
			t.Errorf("%s: ratio %v, %s, cost %v, want %v, %s, %v", step.name, v.Value.Median, v.Rounds, cost, step.value, step.rounds, step.weftsCost)
		}
	}
}

func TestMissedTargets(t *testing.T) {
	r := &report{wefts: []string{"weft"}, Idle: []idleResult{
		{Row: idleRow, Proxy: "weft", Connections: 1000}, {Row: idleRow, Proxy: "nginx", Connections: 1000},
	}}
	r.Idle[0].Start.Resident = 10 << 20
	r.Idle[0].Opened.Resident = 13 << 20 // 3 KB each
	r.Idle[0].Used.Resident = 15 << 20   // 5 KB each
	r.fillVerdicts()
	if len(r.Verdicts) != 3 || r.missedCount() != 1 {
		t.Fatalf("%d of %+v missed, want 1 of 3", r.missedCount(), r.Verdicts)
	}
	if text := r.markdown(); strings.Count(text, "**MISS**") != 1 || strings.Count(text, "| ok |") != 2 || !strings.Contains(text, "1 of 3 measured targets") {
		t.Errorf("report.md: want 1 missed and 2 met targets, got:\n%s", text)
	}
}

// checkUnmeasured verifies that the report has targets and that all of them are unmeasured.
func checkUnmeasured(t *testing.T, r *report) {
	t.Helper()
	if len(r.Verdicts) == 0 {
		t.Error("no verdicts, want unmeasured targets")
	}
	for _, v := range r.Verdicts {
		if v.Outcome != unmeasured || v.Target == 0 && v.Unit == "x" {
			t.Errorf("verdict %+v, want an unmeasured target", v)
		}
	}
}

func TestSummaries(t *testing.T) {
	tests := []struct {
		values []float64
		want   stat
		text   string
	}{
		{[]float64{3}, stat{3, 3, 3}, "3.0"},
		{[]float64{4, 1}, stat{2.5, 1, 4}, "2.5 (1.0–4.0)"},
		{[]float64{9, 1, 2}, stat{2, 1, 9}, "2.0 (1.0–9.0)"},
	}
	for _, test := range tests {
		if got := summarizeValues(slices.Clone(test.values)); got != test.want || got.format(1) != test.text {
			t.Errorf("summary of %v = %+v, %q, want %+v, %q", test.values, got, got.format(1), test.want, test.text)
		}
	}
}

func TestHalfLoadRate(t *testing.T) {
	l := &loadRow{Cells: []*cell{
		{Proxy: "weft", Rounds: []sample{{Result: load.Result{Requests: 100, Elapsed: time.Second}}}},
		{Proxy: "nginx", Rounds: []sample{{Result: load.Result{Requests: 80, Elapsed: time.Second}}}},
		{Proxy: direct, Rounds: []sample{{Result: load.Result{Requests: 10, Elapsed: time.Second}}}},
	}}
	if got := l.slowest(); got != 80 {
		t.Errorf("slowest = %v, want nginx's 80", got)
	}
	l.Cells = append([]*cell{{Proxy: "haproxy", Note: "not supported"}}, l.Cells[2])
	if got := l.slowest(); got != 10 {
		t.Errorf("slowest without a proxy = %v, want the direct rate 10", got)
	}
}

func TestSyscallCounters(t *testing.T) {
	tests := []struct {
		name  string
		parse func(string) (map[string]float64, error)
		input string
		want  map[string]float64
	}{
		{"perf", parsePerf,
			"# started on …\n\n512,,raw_syscalls:sys_enter,1000,100.00,,\n200,,syscalls:sys_enter_read,1000,100.00,,\n",
			map[string]float64{"all": 512, "read": 200}},
		{"strace", func(text string) (map[string]float64, error) { return parseStrace([]byte(text)) },
			"% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- --------- --------- ------\n" +
				" 60.00    0.003000           1      3000        12 read\n 40.00    0.002000           1      2000           write\n" +
				"------ ----------- ----------- --------- --------- ------\n100.00    0.005000           1      5000        12 total\n",
			map[string]float64{"all": 5000, "read": 3000, "write": 2000}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.parse(test.input)
			if err != nil || !maps.Equal(got, test.want) {
				t.Errorf("counts = %v, %v, want %v", got, err, test.want)
			}
			if got, err := test.parse("nothing\n"); err == nil {
				t.Errorf("counts without a table = %v, want an error", got)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	file := t.TempDir()
	tests := []struct {
		name      string
		arguments []string
		proxies   string
		wefts     string
		rows      string
	}{
		{"everything", nil, "weft,nginx,haproxy,envoy,relay,direct", "weft", "1k-1,1k-16,1k-64,1k-256,64k-64,xds-1k-64,mtls-fresh-16,mtls-1k-64,mtls-64k-64,sidecar-64,h2-16x1,h2-16x16,grpc-16x16,grpc-stream,h2-to-h1-16x16,h1-to-h2-64,dubbo-16x1,dubbo-16x8,dubbo-16x64,bolt-16x1,bolt-16x8,bolt-16x64,idle,scale,scale-bootstrap,rpc-idle,rpc-inflight,h2-idle,h2-streams"},
		{"some programs", []string{"-rows", "1k-64", "-proxies", "weft, nginx"}, "weft,nginx", "weft", "1k-64"},
		{"two builds of Weft", []string{"-bin", "a=" + file + ",b=" + file, "-rows", "idle"}, "a,b,nginx,haproxy,envoy,relay,direct", "a,b", "idle"},
		{"one build and weft", []string{"-bin", "a=" + file, "-proxies", "a,weft", "-rows", "scale"}, "a,weft", "a,weft", "scale"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := parse(t, test.arguments...)
			proxies, wefts, rows := strings.Join(o.proxies, ","), strings.Join(o.wefts(), ","), strings.Join(o.rows, ",")
			if proxies != test.proxies || wefts != test.wefts || rows != test.rows {
				t.Errorf("proxies %s, of Weft %s, rows %s, want %s, %s, %s", proxies, wefts, rows, test.proxies, test.wefts, test.rows)
			}
		})
	}
	for _, invalid := range [][]string{
		{"-rows", "2k-64"}, {"-proxies", "caddy"}, {"-bin", "nginx=" + file}, {"-bin", "a"}, {"-bin", "a=" + file + "/none"},
		{"-rounds", "0"}, {"-seconds", "0"}, {"-warmup", "-1"}, {"-patience", "-1s"}, {"-idle", "0"},
		{"-profile", "f", "-proxies", "nginx"}, {"rest"},
	} {
		if _, err := parseOptions(invalid); err == nil {
			t.Errorf("parseOptions(%q): no error", invalid)
		}
	}
}

// TestDocumentedRowsAreValid verifies that -rows accepts the rows that docs/performance.md
// names.
func TestDocumentedRowsAreValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`-rows\s+([\w,-]+)`).FindAllSubmatch(text, -1)
	if len(commands) < 5 {
		t.Errorf("docs/performance.md has only %d commands with -rows, want at least 5", len(commands))
	}
	for _, rows := range commands {
		parse(t, "-rows", string(rows[1]))
	}
}

func TestRowNamesMatchRequests(t *testing.T) {
	for _, r := range rows() {
		if r.protocol != nil {
			if want := fmt.Sprintf("%s-%dx%d", r.protocol.Name(), r.connections, r.depth); r.name != want || len(r.request) > 0 {
				t.Errorf("row %s: want the name %s and no request, got a request of %d bytes", r.name, want, len(r.request))
			}
			continue
		}
		head, body, _ := strings.Cut(string(r.request), "\r\n\r\n")
		if isPOST := strings.HasPrefix(head, "POST "); isPOST != (len(body) == 1024) {
			t.Errorf("%s: %q has a body of %d bytes, want 1024 only for POST", r.name, head, len(body))
		}
	}
}
