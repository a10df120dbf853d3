package adaptiveconcurrency

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
)

func TestRepeatedHeaderDoesNotRaisePriority(t *testing.T) {
	p := &Priority{Header: "x-level", Levels: []Level{{Value: "high", Share: 100}, {Value: "low", Share: 20}}, Default: "high"}
	l, err := p.compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, fields := range [][]string{
		{"x-level: low"}, {"x-level: low", "x-level: high"}, {"x-level: high", "X-Level: low"}, {"x-level: high", "x-level: other", "x-level: low"},
	} {
		if got := l.list[l.indexFor(filtertest.NewRequest("/", fields...))].Value; got != "low" {
			t.Errorf("level of %q = %q, want low", fields, got)
		}
	}
}
