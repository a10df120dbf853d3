package fault

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
)

func TestPercentagePrecision(t *testing.T) {
	for _, test := range []struct {
		percent  string
		selected uint32 // samples below it are selected
	}{
		{"0.0001", 1}, {"0.01", 100}, {"0.29", 2900}, {"0.5", 5000}, {"12.3456", 123_456}, {"99.9999", 999_999}, {"100", 1_000_000},
	} {
		for _, key := range []string{"abort", "delay"} {
			f := newFault(t, filtertest.Settings(`{"`+key+`": {"percentage": `+test.percent+fixedDelaySetting(key)+`}}`), 0)
			fraction := f.aborted
			if key == "delay" {
				fraction = f.delayed
			}
			for sample, want := range map[uint32]bool{test.selected - 1: true, test.selected: false} {
				f.random = func() uint32 { return sample }
				if got := f.selects(fraction); got != want {
					t.Errorf("%s of %s percent: sample %d is selected: %t, want %t", key, test.percent, sample, got, want)
				}
			}
		}
	}
	filtertest.DecodeErrors(t, Factory(), `{"abort": {"percentage": 0.00001}}`)
}

func fixedDelaySetting(key string) string {
	if key == "delay" {
		return `, "fixed_delay": "1ms"`
	}
	return ""
}
