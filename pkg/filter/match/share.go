package match

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// ShareConfig is a fraction of requests in the format of Envoy's RuntimeFractionalPercent.
type ShareConfig struct {
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

// Percent returns the fraction for 0 to 100 percent, rounded to millionths. It returns an error
// if a positive f rounds to zero.
func Percent(f float64) (Fraction, error) {
	s := Fraction{uint32(math.Round(f * Million / 100))}
	if s.None() && f > 0 {
		return Fraction{}, fmt.Errorf("%v percent is too small: the smallest fraction is one in a million (0.0001)", f)
	}
	return s, nil
}

// All returns the fraction that selects every request.
func All() Fraction { return Fraction{Million} }

// Compile checks c and returns its fraction. It returns absent for a nil c.
func (c *ShareConfig) Compile(absent Fraction) (Fraction, error) {
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

// Shares compiles the keys filter_enabled, which defaults to all requests, and shadow_enabled,
// which defaults to none. An error names the key.
func Shares(enabled, shadow *ShareConfig) (on, counted Fraction, err error) {
	if on, err = enabled.Compile(All()); err != nil {
		return Fraction{}, Fraction{}, &document.KeyError{Key: "filter_enabled", Err: err}
	}
	if counted, err = shadow.Compile(Fraction{}); err != nil {
		return Fraction{}, Fraction{}, &document.KeyError{Key: "shadow_enabled", Err: err}
	}
	return on, counted, nil
}

// None reports whether the fraction selects no request.
func (s Fraction) None() bool { return s.millionths == 0 }

// Hits takes one random sample: it reports whether a request is selected.
func (s Fraction) Hits() bool {
	return s.millionths >= Million || s.millionths > 0 && s.Has(rand.Uint32N(Million))
}

// Has reports whether the fraction selects a request whose sample is roll, a uniform number below
// Million.
func (s Fraction) Has(roll uint32) bool { return roll < s.millionths }
