package localratelimit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// action is a compiled Action. It derives a value from a request.
type action struct {
	makes   making
	field   match.Field
	text    string // constant value, unless makes is ofField or ofClient
	headers []match.HeaderMatcher
	expect  bool // whether the headers must match
	v4, v6  int  // length of the address prefix in bits
}

type making uint8

const (
	ofNothing making = iota
	ofField
	ofClient
	ofMatch
)

func (a *action) isAddress() bool { return a.makes == ofClient }

// value is the result of an action.
type value struct {
	text string
	addr netip.Addr // only of address actions; zero: unknown
}

// of returns the n-th value that a derives from x, and whether it exists. more reports whether
// others follow; only a repeated header has several.
func (a *action) of(x *protocol.Exchange, client *match.ClientAddr, n int) (v value, ok, more bool) {
	switch a.makes {
	case ofField:
		v.text, ok, more = a.field.Value(x, n)
		return v, ok, more
	case ofClient:
		return value{addr: a.network(x, client)}, true, false
	case ofMatch:
		return value{text: a.text}, a.holds(x) == a.expect, false
	case ofNothing:
	}
	return value{text: a.text}, true, false
}

// network returns the network of the client's address. It is the zero Addr for a client without a
// valid address: all such clients share one bucket.
func (a *action) network(x *protocol.Exchange, client *match.ClientAddr) netip.Addr {
	addr, err := client.Address(x)
	if err != nil || !addr.IsValid() {
		return netip.Addr{}
	}
	bits := a.v6
	if addr = addr.WithZone(""); addr.Is4() {
		bits = a.v4
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}

func (a *action) holds(x *protocol.Exchange) bool {
	for i := range a.headers {
		if !a.headers[i].Holds(x) {
			return false
		}
	}
	return true
}

// description has the values that the actions of a compiledLimit derive from a request. If headers
// repeat, it is one of several combinations of values.
type description struct {
	values
	taken [maxActions]int  // index of the value of each action
	more  [maxActions]bool // whether the action has further values
}

type values [maxActions]value

// describe sets d to the first combination of values for x. It returns false if an action of s has
// no value.
func (s *compiledLimit) describe(d *description, x *protocol.Exchange, client *match.ClientAddr) bool {
	for i := range s.actions {
		var ok bool
		d.taken[i] = 0
		if d.values[i], ok, d.more[i] = s.actions[i].of(x, client, 0); !ok {
			return false
		}
	}
	return true
}

// next sets d to the next combination. It returns false if there is none.
func (s *compiledLimit) next(d *description, x *protocol.Exchange, client *match.ClientAddr) bool {
	for i := range s.actions {
		again := d.more[i]
		if d.taken[i]++; !again {
			d.taken[i] = 0
		}
		d.values[i], _, d.more[i] = s.actions[i].of(x, client, d.taken[i])
		if again {
			return true
		}
	}
	return false
}

// repeats reports whether an action has further values after those in d.
func (d *description) repeats() bool { return d.more != [maxActions]bool{} }

// choose returns the first descriptor that v matches, nil if there is none.
func (s *compiledLimit) choose(v *values) *descriptor {
	for i := range s.choices {
		if c := &s.choices[i]; c.fits(v) {
			return c
		}
	}
	return nil
}

func (c *descriptor) fits(v *values) bool {
	for i := range c.wants {
		w := &c.wants[i]
		if !w.any && (w.text != v[i].text && !w.addr.IsValid() || w.addr != v[i].addr) {
			return false
		}
	}
	return true
}

// longest is the maximum length in bytes of a value in the key of a bucket. The key has a hash of
// longer values, so that clients cannot exhaust memory.
const longest = 64

// appendKey appends the values that identify a bucket of c.
func (c *descriptor) appendKey(dst []byte, v *values, seed maphash.Seed) []byte {
	for i := range c.wants {
		if !c.wants[i].any {
			continue
		}
		switch text := v[i].text; {
		case v[i].addr.IsValid():
			bits := v[i].addr.As16()
			dst = append(append(dst, 16), bits[:]...)
		case len(text) > longest:
			dst = binary.LittleEndian.AppendUint64(append(dst, 0xff), maphash.String(seed, text))
		default:
			dst = append(append(dst, byte(len(text))), text...)
		}
	}
	return dst
}
