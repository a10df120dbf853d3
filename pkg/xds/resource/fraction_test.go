package resource

import "testing"

func TestFractionDenominators(t *testing.T) {
	for _, test := range []struct {
		numerator   float64
		denominator any
		want        float64
	}{
		{0, nil, 0}, {1, nil, 1}, {25, "HUNDRED", 25}, {300, "HUNDRED", 100},
		{1, "TEN_THOUSAND", 0.01}, {2999, "TEN_THOUSAND", 29.99},
		{1, "MILLION", 0.0001}, {123_456, "MILLION", 12.3456}, {2_000_000, "MILLION", 100},
	} {
		if got := percentOf(goValue(map[string]any{"numerator": test.numerator, "denominator": test.denominator})); got != test.want {
			t.Errorf("%v of %v is %v percent, want %v", test.numerator, test.denominator, got, test.want)
		}
	}
}
