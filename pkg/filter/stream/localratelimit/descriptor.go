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
	headers []match.Header
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

// of returns the value of a request, and whether there is one.
func (a *action) of(x *protocol.Exchange, client *match.Client) (value, bool) {
	switch a.makes {
	case ofField:
		text, ok := a.field.Value(x)
		return value{text: text}, ok
	case ofClient:
		return value{addr: a.network(x, client)}, true
	case ofMatch:
		return value{text: a.text}, a.holds(x) == a.expect
	case ofNothing:
	}
	return value{text: a.text}, true
}

// network returns the part of the client's address that counts. Clients who are
// unknown are one: whoever writes no address into a field shares with all who do.
func (a *action) network(x *protocol.Exchange, client *match.Client) netip.Addr {
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

// values are what the actions of a step made.
type values [maxActions]value

// describe fills v with what the actions of s make of x; false: one of them makes
// nothing.
func (s *step) describe(v *values, x *protocol.Exchange, client *match.Client) bool {
	for i := range s.actions {
		var ok bool
		if v[i], ok = s.actions[i].of(x, client); !ok {
			return false
		}
	}
	return true
}

func (c *choice) fits(v *values) bool {
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
func (c *choice) appendKey(dst []byte, v *values, seed maphash.Seed) []byte {
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
