package main

import (
	"strings"
	"testing"
)

func TestBootstrapScaleVerdicts(t *testing.T) {
	results := []bootstrapScaleResult{
		{Proxy: "weft", starts: []float64{1, 3}, peaks: []float64{100}, residents: []float64{90}},
		{Proxy: "envoy", starts: []float64{4, 4}, peaks: []float64{150}, residents: []float64{180}},
	}
	got := bootstrapScaleVerdicts("weft", results)
	if len(got) != 3 || got[0].Outcome != met || got[0].Value.Median != 0.5 || got[1].Outcome != missed || got[2].Outcome != met {
		t.Errorf("verdicts %+v, want a start of 0.5 that meets the target, a missed peak, and a stable size that meets it", got)
	}
	if got := bootstrapScaleVerdicts("weft", results[:1]); got != nil {
		t.Errorf("verdicts %+v without Envoy, want none", got)
	}
	if text := bootstrapScaleMarkdown(results); !strings.Contains(text, "| envoy |") {
		t.Errorf("the table has no row for Envoy:\n%s", text)
	}
}
