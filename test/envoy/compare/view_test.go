package compare

import (
	"testing"

	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/origin"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// reached returns the view of a case whose requests reach origins.
func reached(c *cases.Case, origins ...string) View {
	var out client.Outcome
	var records []origin.Record
	for _, name := range origins {
		records = append(records, origin.Record{Origin: name, Line: "GET / HTTP/1.1"})
		out.Responses = append(out.Responses, client.Response{Version: "1.1", Status: 200, Body: []byte("from " + name)})
	}
	return NewView(c, out, records, NewNormalizer(nil, nil))
}

func TestHostsThatMatter(t *testing.T) {
	for _, test := range []struct {
		name        string
		c           cases.Case
		envoy, weft []string
		equal       bool
	}{
		{"each host matters", cases.Case{}, []string{"o1", "o2"}, []string{"o2", "o1"}, false},
		{"another single host", cases.Case{SameHost: true}, []string{"o1", "o1"}, []string{"o2", "o2"}, true},
		{"several hosts instead of one", cases.Case{SameHost: true}, []string{"o1", "o1"}, []string{"o1", "o2"}, false},
		{"any hosts", cases.Case{AnyHost: true}, []string{"o1", "o1"}, []string{"o1", "o2"}, true},
		{"a request less", cases.Case{AnyHost: true}, []string{"o1", "o1"}, []string{"o1"}, false},
		{"equal counts", cases.Case{Counts: true}, []string{"o1", "o2"}, []string{"o2", "o1"}, true},
		{"other counts", cases.Case{Counts: true}, []string{"o1", "o2"}, []string{"o1", "o1"}, false},
	} {
		got := Compare(&test.c, reached(&test.c, test.envoy...), reached(&test.c, test.weft...))
		if (len(got) == 0) != test.equal {
			t.Errorf("%s: the differences are %q, want equal: %v", test.name, aspects(got), test.equal)
		}
	}
}

func TestOrderOfHosts(t *testing.T) {
	view := func(c *cases.Case, origins ...string) View {
		var records []origin.Record
		for _, name := range origins {
			records = append(records, origin.Record{Origin: name, Line: "GET / HTTP/1.1"})
		}
		return NewView(c, client.Outcome{}, records, NewNormalizer(nil, nil))
	}
	for sorted, want := range map[bool]int{true: 0, false: 2} {
		c := &cases.Case{Sorted: sorted}
		if got := Compare(c, view(c, "o1", "o2"), view(c, "o2", "o1")); len(got) != want {
			t.Errorf("sorted %v: the differences are %q, want %d", sorted, aspects(got), want)
		}
	}
}

func TestAdminPages(t *testing.T) {
	view := func(c *cases.Case, contentType, body string) View {
		return NewView(c, client.Outcome{Responses: []client.Response{{
			Status: 200, Body: []byte(body), Fields: []wire.Field{{Name: "content-type", Value: contentType}, {Name: "x-a", Value: body}},
		}}}, nil, NewNormalizer(nil, nil))
	}
	for _, test := range []struct {
		name        string
		c           cases.Case
		envoy, weft string
		equal       bool
	}{
		{"other text", cases.Case{Shape: true}, "uptime 1", "uptime 2", true},
		{"other values", cases.Case{Shape: true}, `{"a": [{"b": 1}]}`, `{"a": [{"b": 2}, {"b": 3}]}`, true},
		{"other keys", cases.Case{Shape: true}, `{"a": [{"b": 1}]}`, `{"a": [{"c": 1}]}`, false},
		{"JSON and text", cases.Case{Shape: true}, `{"a": 1}`, "a", false},
		{"a statistic", cases.Case{Statistic: cases.StatisticValue}, "a.b: 1", "a.b: 1", true},
		{"another value", cases.Case{Statistic: cases.StatisticValue}, "a.b: 1", "a.b: 2", false},
		{"only the name matters", cases.Case{Statistic: cases.StatisticName}, "a.b: 1", "a.b: 2", true},
		{"no statistic", cases.Case{Statistic: cases.StatisticName}, "a.b: 1", "", false},
	} {
		got := Compare(&test.c, view(&test.c, "t", test.envoy), view(&test.c, "t", test.weft))
		if (len(got) == 0) != test.equal {
			t.Errorf("%s: the differences are %q, want equal: %v", test.name, aspects(got), test.equal)
		}
	}
	page := &cases.Case{Shape: true}
	if got := aspects(Compare(page, view(page, "text/plain", ""), view(page, "text/html", ""))); len(got) != 1 || got[0] != "resp.type" {
		t.Errorf("with another type, the differences are %q, want resp.type", got)
	}
}
