package metrics

import "testing"

func TestHistogramBuckets(t *testing.T) {
	r := testRegistry()
	m := Metric{Name: "weft_test_bytes", Help: "Sizes.", Kind: KindHistogram, Labels: []string{"kind"}}
	h := r.Histogram(m, []float64{1, 10}, "a")
	for _, v := range []uint64{0, 1, 2, 10, 11} {
		h.Add(v)
	}
	if same := r.Histogram(m, []float64{1, 10}, "a"); same != h || h.Count() != 5 {
		t.Errorf("the same label values return another histogram, or the count %d is not 5", h.Count())
	}
	if other := r.Histogram(m, []float64{1, 10}, "b"); other == h {
		t.Error("other label values return the same histogram")
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != m.Name {
			continue
		}
		got := f.GetMetric()[0].GetHistogram()
		if got.GetSampleCount() != 5 || got.GetSampleSum() != 24 || got.GetBucket()[0].GetCumulativeCount() != 2 || got.GetBucket()[1].GetCumulativeCount() != 4 {
			t.Errorf("exported as %v; want the sum 24 and the buckets 2 and 4", got)
		}
		return
	}
	t.Errorf("%s is not exported", m.Name)
}

func TestHistogramAddDoesNotAllocate(t *testing.T) {
	h := testRegistry().Histogram(Metric{Name: "weft_test_bytes", Help: "Sizes.", Kind: KindHistogram}, []float64{1, 10})
	if n := testing.AllocsPerRun(100, func() { h.Add(7) }); n != 0 {
		t.Errorf("Add allocates %v times, want 0", n)
	}
}
