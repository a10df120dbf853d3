package histogram

import (
	"testing"
	"time"
)

func TestQuantileIsWithinOnePercent(t *testing.T) {
	for _, unit := range []time.Duration{1, 37, time.Microsecond, time.Millisecond} {
		var h Histogram
		for i := 1; i <= 1000; i++ {
			h.Record(time.Duration(i) * unit)
		}
		for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 1} {
			want := time.Duration(q*1000) * unit
			got := h.Quantile(q)
			if got < want || float64(got) > float64(want)*1.01+1 {
				t.Errorf("Quantile(%v) of 1..1000 times %v = %v, want %v to 1 %% more", q, unit, got, want)
			}
		}
	}
}

func TestBucketsAreContiguous(t *testing.T) {
	for i := range buckets - 1 {
		end := bucketUpper(i)
		if bucketIndex(end) != i || bucketIndex(end+1) != i+1 {
			t.Fatalf("bucket %d ends at %d: index of it and the next = %d, %d; want %d, %d", i, end, bucketIndex(end), bucketIndex(end+1), i, i+1)
		}
	}
}

func TestEdges(t *testing.T) {
	tests := []struct {
		name           string
		record         []time.Duration
		max, mean, p50 time.Duration
	}{
		{"nothing recorded", nil, 0, 0, 0},
		{"negative counts as zero", []time.Duration{-5}, 0, 0, 0},
		{"one value is every quantile", []time.Duration{12345}, 12345, 12345, 12345},
		{"too long is kept as the maximum", []time.Duration{time.Hour}, time.Hour, time.Hour, time.Duration(bucketUpper(buckets - 1))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var h Histogram
			for _, d := range test.record {
				h.Record(d)
			}
			if h.Count() != uint64(len(test.record)) || h.Max() != test.max || h.Mean() != test.mean || h.Quantile(0.5) != test.p50 {
				t.Errorf("Count, Max, Mean, Quantile(0.5) = %d, %d, %d, %d, want %d, %d, %d, %d",
					h.Count(), h.Max(), h.Mean(), h.Quantile(0.5), len(test.record), test.max, test.mean, test.p50)
			}
		})
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(1000, func() { h.Record(time.Millisecond) }); n != 0 {
		t.Errorf("Record allocates %v times, want 0", n)
	}
}
