package localratelimit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// action is a compiled Action: it makes a value of a request.
type action struct {
	makes   making
	field   match.Field
	text    string // that it makes
	headers []match.HeaderMatcher
	expect  bool // the headers are to hold
	v4, v6  int  // bits of an address that count
}

type making uint8

const (
	ofNothing making = iota
	ofField
	ofClient
	ofMatch
)

func (a *action) isAddress() bool { return a.makes == ofClient }

// value is what an action makes.
type value struct {
	text string
	addr netip.Addr // of an action that makes addresses; zero: unknown
}

// of returns the n-th value of a request, and whether there is one. Only a repeated field
// has more than one.
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

// network returns the part of the client's address that counts. Clients who are
// unknown are one: whoever writes no address into a field shares with all who do.
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

// description is what the actions of a step make of a request: one of its combinations
// of values, of which there are several if fields repeat.
type description struct {
	values
	taken [maxActions]int  // which value of each action it is
	more  [maxActions]bool // the action has others after it
}

type values [maxActions]value

// describe fills d with the first combination of what the actions of s make of x; false:
// one of them makes nothing.
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

// next makes d the combination after it; false: there is none.
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

// repeats reports whether a field that d is made of repeats.
func (d *description) repeats() bool { return d.more != [maxActions]bool{} }

// choose returns the first choice that v fits, nil if there is none.
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

// longest is how many bytes of a value are in the key of its bucket: of a longer one
// it is a hash, so that callers cannot fill the memory.
const longest = 64

// appendKey appends what tells the buckets of c apart.
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
