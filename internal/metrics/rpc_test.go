package metrics

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"
)

func TestRPCCountsByMethodCodeAndReason(t *testing.T) {
	r := testRegistry()
	rpc := r.RPC()
	rpc.Method("com.shop.Items", "list").Add(batchOf(requestOutcome{Code: 20, Duration: 3 * time.Millisecond}))
	rpc.Method("com.shop.Items", "list").Add(batchOf(requestOutcome{Code: 20, Duration: time.Millisecond}))
	rpc.Method("com.shop.Items", "list").Add(batchOf(requestOutcome{Code: -1, Reason: 2, Duration: -time.Second}))
	rpc.Method("com.shop.Items", "get").Add(batchOf(requestOutcome{Code: 0}))
	rpc.Method("com.shop.Itemsg", "et").Add(batchOf(requestOutcome{Code: -7}))
	rpc.Method("", "").Add(batchOf(requestOutcome{Code: 70, Reason: 1}))

	wantLines(t, exported(t, r, "rpc_requests_total"),
		`rpc_requests_total{code="0",method="get",service="com.shop.Items"} 1`,
		`rpc_requests_total{code="20",method="list",service="com.shop.Items"} 2`,
		`rpc_requests_total{code="70",method="none",service="none"} 1`,
		`rpc_requests_total{code="none",method="et",service="com.shop.Itemsg"} 1`,
		`rpc_requests_total{code="none",method="list",service="com.shop.Items"} 1`)
	wantLines(t, exported(t, r, "rpc_request_failures_total"),
		`rpc_request_failures_total{method="list",reason="overflow",service="com.shop.Items"} 1`,
		`rpc_request_failures_total{method="none",reason="no_route",service="none"} 1`)
	var figures []string
	for _, line := range exported(t, r, "rpc_request_duration_seconds") {
		if _, figure, ok := strings.Cut(line, `method="list",service="com.shop.Items"`); ok && !strings.HasSuffix(figure, " 3") {
			figures = append(figures, figure)
		}
	}
	wantLines(t, figures, `,le="0.0001"} 1`, `,le="0.00025"} 1`, `,le="0.0005"} 1`, `,le="0.001"} 2`, `,le="0.0025"} 2`, `} 0.004`)
}

func TestMethodsBeyondLimitShareOneSeries(t *testing.T) {
	r := testRegistry()
	const methods = 10_000
	for range 2 {
		for i := range methods {
			r.RPC().Method(fmt.Sprint("service", i%7), fmt.Sprint("method", i)).Add(batchOf(requestOutcome{Code: 20}))
		}
	}
	counts := exported(t, r, "rpc_requests_total")
	if got, want := len(counts), MaxMethods+1; got != want {
		t.Errorf("%d pairs of service and method have series, want %d", got, want)
	}
	shared := fmt.Sprintf(`rpc_requests_total{code="20",method="other",service="other"} %d`, 2*(methods-MaxMethods))
	if !slices.Contains(counts, shared) {
		t.Errorf("no series %s", shared)
	}
	if first := `rpc_requests_total{code="20",method="method0",service="service0"} 2`; !slices.Contains(counts, first) {
		t.Errorf("no series %s, want the first methods to keep their series", first)
	}
	if got, want := len(exported(t, r, "rpc_request_duration_seconds_count")), MaxMethods+1; got != want {
		t.Errorf("%d histograms, want %d", got, want)
	}
}

func TestCodesBeyondLimitShareOneSeries(t *testing.T) {
	r := testRegistry()
	for range 2 {
		for code := range 100 {
			r.RPC().Method("s", "m").Add(batchOf(requestOutcome{Code: code}))
		}
	}
	var want []string
	for code := range MaxCodes {
		want = append(want, fmt.Sprintf(`rpc_requests_total{code="%d",method="m",service="s"} 2`, code))
	}
	want = append(want, fmt.Sprintf(`rpc_requests_total{code="other",method="m",service="s"} %d`, 2*(100-MaxCodes)))
	slices.Sort(want)
	wantLines(t, exported(t, r, "rpc_requests_total"), want...)
	wantLines(t, exported(t, r, "rpc_request_duration_seconds_count"), `rpc_request_duration_seconds_count{method="m",service="s"} 200`)
}

func TestEveryGRPCCodeHasSeries(t *testing.T) {
	r := testRegistry()
	var want []string
	for code := -1; code <= 16; code++ {
		r.RPC().Method("s", "m").Add(batchOf(requestOutcome{Code: code}))
		label := fmt.Sprint(code)
		if code < 0 {
			label = "none"
		}
		want = append(want, fmt.Sprintf(`rpc_requests_total{code="%s",method="m",service="s"} 1`, label))
	}
	slices.Sort(want)
	wantLines(t, exported(t, r, "rpc_requests_total"), want...)
}

func TestClientNamesBecomeLabels(t *testing.T) {
	long := strings.Repeat("x", MaxMethodName)
	for _, test := range []struct{ name, sent, label string }{
		{"unchanged", "list", "list"},
		{"missing", "", "none"},
		{"not ASCII", "größe", "größe"},
		{"maximum length", long, long},
		{"too long", long + "y", long},
		{"a megabyte", strings.Repeat("x", 1<<20), long},
		{"truncated within a character", long[1:] + "é", long[1:]},
		{"truncated after a character", long[2:] + "éa", long[2:] + "é"},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"only invalid UTF-8", strings.Repeat("\x80", 1000), "\uFFFD"},
		{"too long after replacement of invalid UTF-8", strings.Repeat("a\xff", MaxMethodName/2), strings.Repeat("a\uFFFD", MaxMethodName/4)},
		{"line feed", "a\n# b", `a\n# b`},
		{"quote", `a"} 1`, `a\"} 1`},
		{"zero bytes", "\x00", "\x00"},
		{"name of the overflow series", "other", "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := testRegistry()
			r.RPC().Method(test.sent, "m").Add(batchOf(requestOutcome{Code: 1}))
			r.RPC().Method("s", test.sent).Add(batchOf(requestOutcome{Code: 1}))
			r.RPC().Method("s", test.sent).Add(batchOf(requestOutcome{Code: 1}))
			want := []string{
				`rpc_requests_total{code="1",method="` + test.label + `",service="s"} 2`,
				`rpc_requests_total{code="1",method="m",service="` + test.label + `"} 1`,
			}
			got := exported(t, r, "rpc_requests_total")
			slices.Sort(got)
			slices.Sort(want)
			wantLines(t, got, want...)
		})
	}
}

// TestMethodNamedOtherSharesOverflowSeries verifies that a method named "other" shares the series
// of the methods beyond MaxMethods: Prometheus rejects a scrape that has the same series twice.
func TestMethodNamedOtherSharesOverflowSeries(t *testing.T) {
	r := testRegistry()
	for i := range MaxMethods + 1 {
		r.RPC().Method("s", fmt.Sprint(i)).Add(batchOf(requestOutcome{Code: 20}))
	}
	r.RPC().Method("other", "other").Add(batchOf(requestOutcome{Code: 20}))
	got := exported(t, r, `rpc_requests_total{code="20",method="other"`)
	wantLines(t, got, `rpc_requests_total{code="20",method="other",service="other"} 2`)
}

func TestInvalidMethodNamesDoNotBreakScrapes(t *testing.T) {
	r := testRegistry()
	rng := rand.New(rand.NewPCG(3, 4))
	name := func() string {
		b := make([]byte, rng.IntN(2*MaxMethodName))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return string(b)
	}
	const calls = 5000
	for range calls {
		r.RPC().Method(name(), name()).Add(batchOf(requestOutcome{Code: rng.IntN(40)}))
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatalf("Gather: %v; want no error", err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() != nameRPCRequests {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetCounter().GetValue()
			for _, pair := range m.GetLabel() {
				if v := pair.GetValue(); len(v) > MaxMethodName || !utf8.ValidString(v) {
					t.Errorf("label value %q; want UTF-8 of at most %d bytes", v, MaxMethodName)
				}
			}
		}
	}
	if n != calls {
		t.Errorf("counted %v calls, want %d", n, calls)
	}
}

func TestMethodCopiesNames(t *testing.T) {
	r := testRegistry()
	buffer := []byte("service.method")
	r.RPC().Method(unsafeString(buffer[:7]), unsafeString(buffer[8:])).Add(batchOf(requestOutcome{Code: 20}))
	copy(buffer, "##############")
	r.RPC().Method("service", "method").Add(batchOf(requestOutcome{Code: 20}))
	wantLines(t, exported(t, r, "rpc_requests_total"), `rpc_requests_total{code="20",method="method",service="service"} 2`)
}

func TestConcurrentCallsLoseNothing(t *testing.T) {
	r := testRegistry()
	const workers, methods, callsPerMethod = 8, MaxMethods + 200, 3
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range methods * callsPerMethod {
				r.RPC().Method("s", fmt.Sprint(i%methods)).Add(batchOf(requestOutcome{Code: (w + i) % (MaxCodes + 4), Reason: uint8(i % 3)}))
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			if _, err := r.Gather(); err != nil {
				t.Errorf("Gather: %v; want no error", err)
			}
		}
	})
	wg.Wait()
	for _, name := range []string{"rpc_requests_total", "rpc_request_duration_seconds_count"} {
		sum := 0
		for _, line := range exported(t, r, name) {
			var n int
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if want := workers * methods * callsPerMethod; sum != want {
			t.Errorf("sum of %s = %d, want %d", name, sum, want)
		}
	}
	if got, want := len(exported(t, r, "rpc_request_duration_seconds_count")), MaxMethods+1; got != want {
		t.Errorf("%d pairs, want %d", got, want)
	}
}

func TestMethodAddDoesNotAllocate(t *testing.T) {
	r := testRegistry()
	for i := range MaxMethods {
		r.RPC().Method("s", fmt.Sprint(i)).Add(batchOf(requestOutcome{Code: 20}))
	}
	for name, c := range map[string]methodCall{
		"known":          {"s", "7", requestOutcome{Code: 20, Reason: 1, Duration: 12345}},
		"unknown":        {"s", "unknown", requestOutcome{Code: 20}},
		"known and long": {strings.Repeat("s", 1000), "7", requestOutcome{Code: 20}},
	} {
		observe := func() { c.observe(r) }
		observe()
		if n := testing.AllocsPerRun(100, observe); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func TestMethodMemory(t *testing.T) {
	r := testRegistry()
	name := strings.Repeat("n", MaxMethodName-4)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range MaxMethods {
		m := r.RPC().Method(fmt.Sprintf("%s%04d", name, i), fmt.Sprintf("%s%04d", name, i))
		for code := range MaxCodes + 1 {
			m.Add(batchOf(requestOutcome{Code: code, Reason: 1}))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > MaxMethods<<12 {
		t.Errorf("%d methods take %d bytes, want at most 4 KB each", MaxMethods, used)
	}
	runtime.KeepAlive(r)
}

func TestExcludeRPCMetrics(t *testing.T) {
	r := testRegistry()
	r.RPC().Method("s", "m").Add(batchOf(requestOutcome{}))
	r.Exclude(Exclusion{Labels: []string{LabelService}})
	wantLines(t, exported(t, r, "rpc_"))
}

// methodCall is a method with one call.
type methodCall struct {
	service, method string
	call            requestOutcome
}

// observe counts the call.
func (c *methodCall) observe(r *Registry) { r.RPC().Method(c.service, c.method).Add(batchOf(c.call)) }

// methodCalls returns the methods of a large application.
func methodCalls() (calls []methodCall) {
	for i := range 200 {
		calls = append(calls, methodCall{fmt.Sprint("com.example.shop.order.OrderService", i/10), fmt.Sprint("findByCustomer", i),
			requestOutcome{Code: 20, Duration: time.Duration(i) * 100 * time.Microsecond}})
	}
	return calls
}

func BenchmarkObserveCall(b *testing.B) {
	r, calls := testRegistry(), methodCalls()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		calls[i%len(calls)].observe(r)
	}
}

func BenchmarkObserveCallContended(b *testing.B) {
	for _, test := range []struct {
		name  string
		calls []methodCall
	}{{"many methods", methodCalls()}, {"one method", methodCalls()[:1]}} {
		b.Run(test.name, func(b *testing.B) {
			r := testRegistry()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					test.calls[i%len(test.calls)].observe(r)
				}
			})
		})
	}
}

func BenchmarkFindMethodContended(b *testing.B) {
	r, calls := testRegistry(), methodCalls()
	for i := range calls {
		calls[i].observe(r)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			c := &calls[i%len(calls)]
			if r.RPC().Method(c.service, c.method).name != c.method {
				b.Error("Method returned another method")
			}
		}
	})
}

func BenchmarkScrape1000Methods(b *testing.B) {
	r := testRegistry()
	for i := range MaxMethods {
		r.RPC().Method("s", fmt.Sprint(i)).Add(batchOf(requestOutcome{Code: 20, Duration: time.Millisecond}))
	}
	for b.Loop() {
		if _, err := r.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// unsafeString returns b as a string that borrows its bytes, as an engine passes names. It is valid
// until b is written.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
