package http2

import (
	"encoding/binary"
	"math/bits"
)

// encoder writes header blocks (RFC 7541). Field texts are views that do not outlive
// the exchange, so it copies what it adds to the table, and it adds only what it saw
// twice lately: identifiers and dates that never come again cost neither memory nor
// the place of those that do. It does not use the Huffman code, which costs more
// time on both sides than its bytes cost on the links of a sidecar: docs/decisions/0009.
type encoder struct {
	ring []encoderEntry // its length is a power of two, or 0
	n    int            // entries
	// added counts the entries ever added; the newest is number added-1, at that
	// place of the ring.
	added uint32
	size  uint32
	max   uint32

	// lowest is the least max since the last block: it has to be told first (RFC
	// 7541 4.2). changed: max is to be told.
	lowest  uint32
	changed bool

	seen *[64]uint32 // hashes of fields that were written lately and not added; nil: none
}

type encoderEntry struct {
	name, value string
	nameHash    uint32
	hash        uint32 // of both
}

func (e *encoderEntry) size() uint32 { return fieldSize(e.name, e.value) }

// setLimit takes the peer's SETTINGS_HEADER_TABLE_SIZE. We never use more than the
// default.
func (e *encoder) setLimit(size uint32) {
	size = min(size, DefaultTableSize)
	if size == e.max {
		return
	}
	if !e.changed || size < e.lowest {
		e.lowest = size
	}
	e.changed = true
	e.max = size
	e.evict(size)
}

// appendStart appends what a block has to start with: changes of the table's size.
// One that fell and rose is emptied in between: x/net's decoder, which gRPC has,
// refuses a second size while there are entries (TestEncodedIsRead).
func (e *encoder) appendStart(dst []byte) []byte {
	if !e.changed {
		return dst
	}
	e.changed = false
	if e.lowest < e.max {
		e.evict(0)
		dst = appendInteger(dst, 0x20, 5, 0)
	}
	return appendInteger(dst, 0x20, 5, e.max)
}

// restart empties the table, and the peer's with the next block: entries may have been
// added by a block that never leaves.
func (e *encoder) restart() {
	e.evict(0)
	e.seen = nil
	e.lowest, e.changed = 0, true
}

// appendIndex appends an entry of the static table.
func appendIndex(dst []byte, i uint32) []byte { return appendInteger(dst, 0x80, 7, i) }

// appendLiteral appends a field that is never to be in a table; name is its place in
// the static table. never: nor in one of anybody who passes it on (RFC 7541 6.2.3).
func appendLiteral(dst []byte, name uint32, value string, never bool) []byte {
	var form byte
	if never {
		form = 0x10
	}
	dst = appendInteger(dst, form, 4, name)
	return appendText(dst, value)
}

// appendSecret appends a field that nobody may put into a table.
func appendSecret(dst []byte, name, value string) []byte {
	i := uint32(staticName(name))
	dst = appendInteger(dst, 0x10, 4, i)
	if i == 0 {
		dst = appendText(dst, name)
	}
	return appendText(dst, value)
}

// appendField appends a field, from the table if it is there. inStatic is the place
// of its name in the static table, 0 if it has none. name is in lowercase.
func (e *encoder) appendField(dst []byte, inStatic uint32, name, value string) []byte {
	nameHash := hashText(0, name)
	hash := hashText(nameHash, value) | 1 // not 0, which is nothing in seen
	named := inStatic
	for i := range e.n {
		number := e.added - 1 - uint32(i)
		entry := &e.ring[number&uint32(len(e.ring)-1)]
		if entry.hash == hash && entry.name == name && entry.value == value {
			return appendIndex(dst, staticLen+1+uint32(i))
		}
		if named == 0 && entry.nameHash == nameHash && entry.name == name {
			named = staticLen + 1 + uint32(i)
		}
	}
	if e.seen == nil {
		e.seen = new([64]uint32)
	}
	slot := &e.seen[hash>>1%uint32(len(e.seen))]
	size := fieldSize(name, value)
	again := *slot == hash && size <= e.max/2
	*slot = hash
	if again {
		dst = appendInteger(dst, 0x40, 6, named)
	} else {
		dst = appendInteger(dst, 0, 4, named)
	}
	if named == 0 {
		dst = appendText(dst, name)
	}
	dst = appendText(dst, value)
	if again {
		e.add(name, value, nameHash, hash)
	}
	return dst
}

func (e *encoder) add(name, value string, nameHash, hash uint32) {
	name, value = cloneBoth(name, value)
	entry := encoderEntry{name, value, nameHash, hash}
	e.evict(e.max - entry.size())
	if e.n == len(e.ring) {
		e.grow()
	}
	e.ring[e.added&uint32(len(e.ring)-1)] = entry
	e.added++
	e.n++
	e.size += entry.size()
}

func (e *encoder) grow() {
	bigger := make([]encoderEntry, max(8, 2*len(e.ring)))
	for i := range e.n {
		number := e.added - 1 - uint32(i)
		bigger[number&uint32(len(bigger)-1)] = e.ring[number&uint32(len(e.ring)-1)]
	}
	e.ring = bigger
}

// evict removes the oldest entries until at most size bytes are left.
func (e *encoder) evict(size uint32) {
	for e.size > size {
		oldest := &e.ring[(e.added-uint32(e.n))&uint32(len(e.ring)-1)]
		e.size -= oldest.size()
		*oldest = encoderEntry{}
		e.n--
	}
}

// hashText mixes s into seed, eight bytes at a time. It is not for secrets: a peer
// that finds two fields of one hash gains that both are compared.
func hashText(seed uint32, s string) uint32 {
	const odd = 0x9e3779b97f4a7c15
	h := (uint64(seed)<<32 | uint64(len(s))) * odd
	var word [8]byte
	for len(s) >= 8 {
		copy(word[:], s)
		h = bits.RotateLeft64(h^binary.LittleEndian.Uint64(word[:]), 29) * odd
		s = s[8:]
	}
	if s != "" {
		word = [8]byte{}
		copy(word[:], s)
		h = bits.RotateLeft64(h^binary.LittleEndian.Uint64(word[:]), 29) * odd
	}
	return uint32(h>>32) ^ uint32(h)
}

// appendText appends a string literal as it is (RFC 7541 5.2).
func appendText(dst []byte, s string) []byte {
	dst = appendInteger(dst, 0, 7, uint32(len(s)))
	return append(dst, s...)
}

// appendInteger appends n with prefix bits of it in the first byte, whose others are
// form's (RFC 7541 5.1).
func appendInteger(dst []byte, form byte, prefix uint8, n uint32) []byte {
	most := uint32(1)<<prefix - 1
	if n < most {
		return append(dst, form|byte(n))
	}
	dst = append(dst, form|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}
