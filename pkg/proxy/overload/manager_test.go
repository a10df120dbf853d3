package overload

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestReducedTimeout(t *testing.T) {
	for _, tt := range []struct {
		timeout, minTimeout time.Duration
		minScale, value     float64
		want                time.Duration
	}{
		{time.Minute, 0, 0.1, 0, time.Minute},
		{time.Minute, 0, 0.1, 0.5, 33 * time.Second},
		{time.Minute, 0, 0.1, 1, 6 * time.Second},
		{time.Minute, 2 * time.Second, 0.1, 1, 2 * time.Second},
		{time.Second, 2 * time.Second, 0.1, 1, time.Second},
		{time.Minute, 0, 0, 1, 0},
		{0, 0, 0.1, 1, noIdleTimeout},
	} {
		a := config.OverloadAction{MinTimeout: tt.minTimeout, MinScale: tt.minScale}
		if got := reducedTimeout(tt.timeout, a, tt.value); got != tt.want {
			t.Errorf("reducedTimeout(%v, %+v, %v) = %v, want %v", tt.timeout, a, tt.value, got, tt.want)
		}
	}
}
