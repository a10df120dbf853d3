package share

import (
	"math"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestPassesSlowStart(t *testing.T) {
	tests := []struct {
		name   string
		config config.SlowStart
		age    time.Duration
		want   float64 // fraction of random numbers that pass
	}{
		{"minimum weight of a new host", config.SlowStart{Duration: time.Minute, MinWeightPercent: 10}, 0, .1},
		{"half of the time", config.SlowStart{Duration: time.Minute, MinWeightPercent: 10}, 30 * time.Second, .5},
		{"aggression", config.SlowStart{Duration: time.Minute, Aggression: 2}, 15 * time.Second, .5},
		{"end of slow start", config.SlowStart{Duration: time.Minute}, time.Minute, 1},
		{"no slow start", config.SlowStart{}, 0, 1},
	}
	for _, tt := range tests {
		passed := 0
		const samples = 1000
		for i := range uint64(samples) {
			if PassesSlowStart(&tt.config, tt.age, i*(math.MaxUint64/samples)) {
				passed++
			}
		}
		if got := float64(passed) / samples; math.Abs(got-tt.want) > 0.002 {
			t.Errorf("%s: fraction that passes = %v, want %v", tt.name, got, tt.want)
		}
	}
}
