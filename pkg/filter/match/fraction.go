package match

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// RuntimeFractionConfig is a fraction of requests in the format of Envoy's RuntimeFractionalPercent.
type RuntimeFractionConfig struct {
	Default FractionConfig `key:"default_value" doc:"The fraction." required:"true"`
	Key     string         `key:"runtime_key" doc:"Name in Envoy's runtime." noeffect:"Weft has no runtime; default_value is used" example:"\"cors.enabled\""`
}

// FractionConfig is a numerator with a denominator.
type FractionConfig struct {
	Numerator   uint32 `key:"numerator" doc:"Numerator of the fraction." default:"0" example:"25"`
	Denominator string `key:"denominator" doc:"Denominator of the fraction." enum:"HUNDRED|TEN_THOUSAND|MILLION" default:"HUNDRED" example:"\"HUNDRED\""`
}

// Million is the denominator of Fraction.
const Million = 1_000_000

// Fraction is a share of requests in millionths, the finest unit of Envoy. The zero Fraction
// selects none.
type Fraction struct {
	millionths uint32
}

// FractionFromPercent returns the fraction for 0 to 100 percent, rounded to millionths. It returns an error
// if a positive f rounds to zero.
func FractionFromPercent(f float64) (Fraction, error) {
	s := Fraction{uint32(math.Round(f * Million / 100))}
	if s.IsZero() && f > 0 {
		return Fraction{}, fmt.Errorf("%v percent is too small: the smallest fraction is one in a million (0.0001)", f)
	}
	return s, nil
}

// AllRequests returns the fraction that selects every request.
func AllRequests() Fraction { return Fraction{Million} }

// Compile checks c and returns its fraction. It returns absent for a nil c.
func (c *RuntimeFractionConfig) Compile(absent Fraction) (Fraction, error) {
	if c == nil {
		return absent, nil
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

// CompileFractions compiles the keys filter_enabled, which defaults to all requests, and shadow_enabled,
// which defaults to none. An error names the key.
func CompileFractions(enabled, shadow *RuntimeFractionConfig) (on, counted Fraction, err error) {
	if on, err = enabled.Compile(AllRequests()); err != nil {
		return Fraction{}, Fraction{}, &document.KeyError{Key: "filter_enabled", Err: err}
	}
	if counted, err = shadow.Compile(Fraction{}); err != nil {
		return Fraction{}, Fraction{}, &document.KeyError{Key: "shadow_enabled", Err: err}
	}
	return on, counted, nil
}

// IsZero reports whether the fraction selects no request.
func (s Fraction) IsZero() bool { return s.millionths == 0 }

// Sample takes one random sample: it reports whether a request is selected.
func (s Fraction) Sample() bool {
	return s.millionths >= Million || s.millionths > 0 && s.Includes(rand.Uint32N(Million))
}

// Includes reports whether the fraction selects a request whose sample is roll, a uniform number below
// Million.
func (s Fraction) Includes(roll uint32) bool { return roll < s.millionths }
