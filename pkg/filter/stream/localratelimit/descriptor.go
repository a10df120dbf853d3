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
	kind    actionKind
	field   match.Field
	text    string // the value, if kind is actionConstant or actionMatch
	headers []match.HeaderMatcher
	expect  bool // whether the headers must match
	v4, v6  int  // length of the address prefix in bits
}

type actionKind uint8

const (
	actionConstant actionKind = iota
	actionHeader
	actionAddress
	actionMatch
)

func (a *action) isAddress() bool { return a.kind == actionAddress }

// value is the result of an action.
type value struct {
	text string
	addr netip.Addr // only for address actions; zero: unknown
}

// value returns the n-th value that a derives from x, and whether it exists. more reports whether
// other values follow; only a repeated header has several values.
func (a *action) value(x *protocol.Exchange, client *match.ClientAddr, n int) (v value, ok, more bool) {
	switch a.kind {
	case actionHeader:
		v.text, ok, more = a.field.Value(x, n)
		return v, ok, more
	case actionAddress:
		return value{addr: a.network(x, client)}, true, false
	case actionMatch:
		return value{text: a.text}, a.matches(x) == a.expect, false
	case actionConstant:
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

func (a *action) matches(x *protocol.Exchange) bool {
	for i := range a.headers {
		if !a.headers[i].Matches(x) {
			return false
		}
	}
	return true
}

// combination holds the values that the actions of a compiledLimit derive from a request. If
// headers are repeated, a request has several combinations.
type combination struct {
	values
	indexes [maxActions]int  // index of the value of each action
	more    [maxActions]bool // whether the action has further values
}

type values [maxActions]value

// firstCombination sets c to the first combination of values for x. It returns false if an action
// of l has no value.
func (l *compiledLimit) firstCombination(c *combination, x *protocol.Exchange, client *match.ClientAddr) bool {
	for i := range l.actions {
		var ok bool
		c.indexes[i] = 0
		if c.values[i], ok, c.more[i] = l.actions[i].value(x, client, 0); !ok {
			return false
		}
	}
	return true
}

// nextCombination sets c to the next combination. It returns false if there is none.
func (l *compiledLimit) nextCombination(c *combination, x *protocol.Exchange, client *match.ClientAddr) bool {
	for i := range l.actions {
		hasNext := c.more[i]
		if c.indexes[i]++; !hasNext {
			c.indexes[i] = 0
		}
		c.values[i], _, c.more[i] = l.actions[i].value(x, client, c.indexes[i])
		if hasNext {
			return true
		}
	}
	return false
}

// hasMore reports whether an action has further values after those in c.
func (c *combination) hasMore() bool { return c.more != [maxActions]bool{} }

// findDescriptor returns the first descriptor that v matches, nil if there is none.
func (l *compiledLimit) findDescriptor(v *values) *descriptor {
	for i := range l.descriptors {
		if d := &l.descriptors[i]; d.matches(v) {
			return d
		}
	}
	return nil
}

func (d *descriptor) matches(v *values) bool {
	for i := range d.matchers {
		m := &d.matchers[i]
		if !m.matchesAny && (m.text != v[i].text && !m.addr.IsValid() || m.addr != v[i].addr) {
			return false
		}
	}
	return true
}

// maxKeyValueBytes is the maximum length in bytes of a value in the key of a bucket. The key
// contains a hash instead of longer values, so that clients cannot exhaust memory.
const maxKeyValueBytes = 64

// appendKey appends the values of v that select a bucket of d: those for which d accepts any value.
func (d *descriptor) appendKey(dst []byte, v *values, seed maphash.Seed) []byte {
	for i := range d.matchers {
		if !d.matchers[i].matchesAny {
			continue
		}
		switch text := v[i].text; {
		case v[i].addr.IsValid():
			bits := v[i].addr.As16()
			dst = append(append(dst, 16), bits[:]...)
		case len(text) > maxKeyValueBytes:
			dst = binary.LittleEndian.AppendUint64(append(dst, 0xff), maphash.String(seed, text))
		default:
			dst = append(append(dst, byte(len(text))), text...)
		}
	}
	return dst
}
