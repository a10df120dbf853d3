package match

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// RuntimeFractionConfig configures a fraction of requests, like Envoy's RuntimeFractionalPercent.
type RuntimeFractionConfig struct {
	Default FractionConfig `key:"default_value" doc:"The fraction." required:"true"`
	Key     string         `key:"runtime_key" doc:"Name in Envoy's runtime." ignored:"Weft has no runtime; default_value is used" example:"\"filter.enabled\""`
}

// FractionConfig configures a fraction by its numerator and denominator.
type FractionConfig struct {
	Numerator   uint32 `key:"numerator" doc:"Numerator of the fraction." default:"0" example:"25"`
	Denominator string `key:"denominator" doc:"Denominator of the fraction." enum:"HUNDRED|TEN_THOUSAND|MILLION" default:"HUNDRED" example:"\"HUNDRED\""`
}

// Million is the denominator of Fraction.
const Million = 1_000_000

// Fraction is a fraction of requests in millionths, Envoy's smallest unit. The zero Fraction
// selects no request.
type Fraction struct {
	millionths uint32
}

// FractionFromPercent returns the fraction for 0 to 100 percent, rounded to millionths. It returns
// an error if a positive percentage rounds to zero.
func FractionFromPercent(percent float64) (Fraction, error) {
	fraction := Fraction{uint32(math.Round(percent * Million / 100))}
	if fraction.IsZero() && percent > 0 {
		return Fraction{}, fmt.Errorf("%v percent is too small: the smallest fraction is one in a million (0.0001)", percent)
	}
	return fraction, nil
}

// AllRequests returns the fraction that selects every request.
func AllRequests() Fraction { return Fraction{Million} }

// Compile checks c and returns its fraction. It returns defaultFraction for a nil c.
func (c *RuntimeFractionConfig) Compile(defaultFraction Fraction) (Fraction, error) {
	if c == nil {
		return defaultFraction, nil
	}
	scale := uint32(1)
	switch c.Default.Denominator {
	case "", "HUNDRED":
		scale = 10_000
	case "TEN_THOUSAND":
		scale = 100
	}
	if c.Default.Numerator > Million/scale {
		return Fraction{}, fmt.Errorf("default_value.numerator %d exceeds the denominator %d", c.Default.Numerator, Million/scale)
	}
	return Fraction{c.Default.Numerator * scale}, nil
}

// CompileFractions compiles the keys filter_enabled and shadow_enabled. They default to all
// requests and to none. An error names the key.
func CompileFractions(enabled, shadow *RuntimeFractionConfig) (enabledFraction, shadowFraction Fraction, err error) {
	if enabledFraction, err = enabled.Compile(AllRequests()); err != nil {
		return Fraction{}, Fraction{}, &document.KeyError{Key: "filter_enabled", Err: err}
	}
	if shadowFraction, err = shadow.Compile(Fraction{}); err != nil {
		return Fraction{}, Fraction{}, &document.KeyError{Key: "shadow_enabled", Err: err}
	}
	return enabledFraction, shadowFraction, nil
}

// IsZero reports whether the fraction selects no request.
func (f Fraction) IsZero() bool { return f.millionths == 0 }

// Sample takes one random sample: it reports whether a request is selected.
func (f Fraction) Sample() bool {
	return f.millionths >= Million || f.millionths > 0 && f.Includes(rand.Uint32N(Million))
}

// Includes reports whether the fraction selects a request with this sample, a uniform random number
// below Million.
func (f Fraction) Includes(sample uint32) bool { return sample < f.millionths }
