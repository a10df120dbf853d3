package compare

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/origin"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// exchange returns the view of a GET request that an origin receives with requestFields, and whose
// response has a status, a body and responseFields.
func exchange(t *testing.T, c *cases.Case, status int, body string, responseFields, requestFields []wire.Field) View {
	t.Helper()
	return NewView(c, client.Outcome{Responses: []client.Response{{
		Version: "1.1", Status: status, Fields: responseFields, Body: []byte(body),
	}}}, []origin.Record{{Origin: "o1", Line: "GET / HTTP/1.1", Fields: requestFields}}, NewNormalizer(nil, nil))
}

// localReply returns the view of a response that no origin sent.
func localReply(t *testing.T, status int, body string, fields ...wire.Field) View {
	t.Helper()
	return NewView(&cases.Case{}, client.Outcome{Responses: []client.Response{{
		Version: "1.1", Status: status, Fields: fields, Body: []byte(body),
	}}}, nil, NewNormalizer(nil, nil))
}

func aspects(differences []Difference) []string {
	names := []string{}
	for _, d := range differences {
		names = append(names, d.Aspect)
	}
	return names
}

func TestCompare(t *testing.T) {
	plain := &cases.Case{}
	fields := func(namesAndValues ...string) []wire.Field {
		var list []wire.Field
		for pair := range slices.Chunk(namesAndValues, 2) {
			list = append(list, wire.Field{Name: pair[0], Value: pair[1]})
		}
		return list
	}
	base := exchange(t, plain, 200, "ok", fields("A", "1", "B", "2"), fields("Host", "a.test", "X-Case", "c-1"))
	for _, test := range []struct {
		name  string
		other View
		want  []string
	}{
		{"the same", exchange(t, plain, 200, "ok", fields("A", "1", "B", "2"), fields("Host", "a.test")), []string{}},
		{"the order and case of different names do not matter", exchange(t, plain, 200, "ok", fields("b", "2", "a", "1"), fields("host", "a.test")), []string{}},
		{"date does not matter", exchange(t, plain, 200, "ok", fields("A", "1", "B", "2", "Date", "now"), fields("Host", "a.test")), []string{}},
		{"another status", exchange(t, plain, 204, "ok", fields("A", "1", "B", "2"), fields("Host", "a.test")), []string{"resp.status"}},
		{"another body", exchange(t, plain, 200, "no", fields("A", "1", "B", "2"), fields("Host", "a.test")), []string{"resp.body"}},
		{"a response field less", exchange(t, plain, 200, "ok", fields("A", "1"), fields("Host", "a.test")), []string{"resp.headers.b"}},
		{"the order of equal names matters", exchange(t, plain, 200, "ok", fields("A", "1", "A", "0", "B", "2"), fields("Host", "a.test")), []string{"resp.headers.a"}},
		{"another request field", exchange(t, plain, 200, "ok", fields("A", "1", "B", "2"), fields("Host", "b.test")), []string{"o0.headers.host"}},
		{"no request", NewView(plain, client.Outcome{Responses: []client.Response{{Version: "1.1", Status: 200, Fields: fields("A", "1", "B", "2"), Body: []byte("ok")}}}, nil, NewNormalizer(nil, nil)),
			[]string{"n_origin", "o0.body", "o0.headers.host", "o0.line", "o0.origin"}},
	} {
		if got := aspects(Compare(plain, base, test.other)); !slices.Equal(got, test.want) {
			t.Errorf("%s: Compare reports %q, want %q", test.name, got, test.want)
		}
	}
}

func TestIgnoredRequestFields(t *testing.T) {
	c := &cases.Case{Ignored: []string{"x-big"}}
	with := exchange(t, c, 200, "", nil, []wire.Field{{Name: "X-Big", Value: "1"}})
	without := exchange(t, c, 200, "", nil, nil)
	if got := Compare(c, with, without); len(got) > 0 {
		t.Errorf("Compare reports %q, want nothing, because the case ignores the field", aspects(got))
	}
}

func TestConnectionEndsAndTunnels(t *testing.T) {
	echo, nothing := "echo:hi", ""
	n := NewNormalizer(nil, nil)
	for _, test := range []struct {
		name        string
		envoy, weft client.Outcome
		want        []string
	}{
		{"closed", client.Outcome{Closed: true}, client.Outcome{}, []string{"closed"}},
		{"GOAWAY", client.Outcome{GoAway: "0"}, client.Outcome{}, []string{"goaway"}},
		{"bytes after the response", client.Outcome{}, client.Outcome{Extra: "x"}, []string{"extra"}},
		{"a tunnel without an echo", client.Outcome{Tunnel: &echo}, client.Outcome{Tunnel: &nothing}, []string{"tunnel"}},
		{"a timeout, and a response", client.Outcome{Responses: []client.Response{{Missing: true, TimedOut: true}}},
			client.Outcome{Responses: []client.Response{{Status: 200, Version: "1.1"}}}, []string{"resp", "resp.body", "resp.status", "resp.version"}},
		{"another code of RST_STREAM", client.Outcome{Responses: []client.Response{{Missing: true, Reset: "7"}}},
			client.Outcome{Responses: []client.Response{{Missing: true, Reset: "2"}}}, []string{"resp.reset"}},
	} {
		c := &cases.Case{}
		if got := aspects(Compare(c, NewView(c, test.envoy, nil, n), NewView(c, test.weft, nil, n))); !slices.Equal(got, test.want) {
			t.Errorf("%s: Compare reports %q, want %q", test.name, got, test.want)
		}
	}
}

func TestDistributionHasTolerance(t *testing.T) {
	c := &cases.Case{Distribution: true}
	view := func(first, second int) View {
		var records []origin.Record
		for range first {
			records = append(records, origin.Record{Origin: "o1"})
		}
		for range second {
			records = append(records, origin.Record{Origin: "o2"})
		}
		return NewView(c, client.Outcome{}, records, NewNormalizer(nil, nil))
	}
	if got := Compare(c, view(100, 100), view(120, 80)); len(got) > 0 {
		t.Errorf("100:100 and 120:80 differ in %q, want equality within 12 %%", aspects(got))
	}
	if got := Compare(c, view(100, 100), view(130, 70)); len(got) != 2 {
		t.Errorf("100:100 and 130:70 differ in %q, want two differences", aspects(got))
	}
	if got := Compare(c, view(200, 0), view(0, 200)); len(got) != 2 {
		t.Errorf("200:0 and 0:200 differ in %q, want two differences", aspects(got))
	}
}

func TestTimesHaveTolerance(t *testing.T) {
	c := &cases.Case{TimeUnit: 100 * time.Millisecond}
	view := func(elapsed time.Duration) View {
		return NewView(c, client.Outcome{Elapsed: elapsed}, nil, NewNormalizer(nil, nil))
	}
	if got := Compare(c, view(300*time.Millisecond), view(420*time.Millisecond)); len(got) > 0 {
		t.Errorf("300 ms and 420 ms differ in %q, want equality within one unit", aspects(got))
	}
	if got := aspects(Compare(c, view(300*time.Millisecond), view(600*time.Millisecond))); !slices.Equal(got, []string{"time"}) {
		t.Errorf("300 ms and 600 ms differ in %q, want time", got)
	}
}

func TestLogLines(t *testing.T) {
	c := &cases.Case{ID: "vhost.1-2"}
	n := NewNormalizer(nil, nil)
	envoy, weft := View{}, View{}
	envoy.AddLog(c, []string{"vhost.1-2 200 - o1 HTTP/1.1", "vhost.1-2 503 UH o1 HTTP/2"}, n)
	weft.AddLog(c, []string{"vhost.1-2 200 - o1 HTTP/1.1", "vhost.1-2 502 UH o1 HTTP/2"}, n)
	want := []Difference{{Aspect: "log.status", Envoy: []string{"200", "503"}, Weft: []string{"200", "502"}}}
	got := Compare(c, envoy, weft)
	if len(got) != 1 || got[0].Aspect != want[0].Aspect || !slices.Equal(got[0].Envoy, want[0].Envoy) || !slices.Equal(got[0].Weft, want[0].Weft) {
		t.Errorf("Compare = %+v, want %+v", got, want)
	}
	if got := aspects(Compare(c, envoy, View{})); len(got) != 5 {
		t.Errorf("without a line, Compare reports %q, want all five fields", got)
	}
}
