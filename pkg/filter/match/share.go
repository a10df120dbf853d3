package match

import (
	"fmt"
	"math/rand/v2"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// ShareConfig is a share of requests, as Envoy writes one that can be changed at run
// time.
type ShareConfig struct {
	Default FractionConfig `key:"default_value" doc:"The share." required:"true"`
	Key     string         `key:"runtime_key" doc:"What the share is called in Envoy's runtime." noeffect:"there is no runtime: default_value is what counts" example:"\"cors.enabled\""`
}

// FractionConfig is a fraction.
type FractionConfig struct {
	Numerator   uint32 `key:"numerator" doc:"How many." default:"0" example:"25"`
	Denominator string `key:"denominator" doc:"Of how many." enum:"HUNDRED|TEN_THOUSAND|MILLION" default:"HUNDRED" example:"\"HUNDRED\""`
}

const million = 1_000_000

// Share is a share of requests. The zero Share is none of them.
type Share struct {
	millionths uint32
}

// All is every request.
func All() Share { return Share{million} }

// Compile checks c and returns it; absent is what a nil c is.
func (c *ShareConfig) Compile(absent Share) (Share, error) {
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
	if c.Default.Numerator > million/scale {
		return Share{}, fmt.Errorf("default_value.numerator %d is more than all: %d", c.Default.Numerator, million/scale)
	}
	return Share{c.Default.Numerator * scale}, nil
}

// Shares compiles the keys filter_enabled, which is all if absent, and shadow_enabled,
// which is none. An error names the key.
func Shares(enabled, shadow *ShareConfig) (on, counted Share, err error) {
	if on, err = enabled.Compile(All()); err != nil {
		return Share{}, Share{}, &document.KeyError{Key: "filter_enabled", Err: err}
	}
	if counted, err = shadow.Compile(Share{}); err != nil {
		return Share{}, Share{}, &document.KeyError{Key: "shadow_enabled", Err: err}
	}
	return on, counted, nil
}

// None reports whether no request is meant.
func (s Share) None() bool { return s.millionths == 0 }

// Hits decides for one request, by chance.
func (s Share) Hits() bool {
	return s.millionths >= million || s.millionths > 0 && rand.Uint32N(million) < s.millionths
}
