package http2

import (
	"math/bits"

	"github.com/weft-proxy/weft/internal/swar"
)

// encoder encodes header blocks (RFC 7541). The strings of fields may borrow memory of the
// exchange, so the encoder copies the strings that it adds to the table. It adds a field only if it
// has encoded the same field recently: values that never recur, such as identifiers, cost neither
// memory nor table space. It does not use the Huffman code, which costs both sides more time than
// the saved bytes are worth on the links of a sidecar: docs/decisions/0009.
type encoder struct {
	ring []encoderEntry // its length is a power of two, or 0
	n    int            // number of entries
	// added counts all entries that were ever added. The newest has number added-1; its index in
	// ring is that number modulo the length of ring.
	added uint32
	size  uint32 // size of all entries (RFC 7541 4.1)
	max   uint32 // maximum of size

	// minSize is the minimum of max since the last block, or 0 after resetTable; see
	// appendSizeUpdates. It is valid only if sizeChanged is true. sizeChanged means that the next
	// block has to start with a table size update (RFC 7541 4.2).
	minSize     uint32
	sizeChanged bool

	recentHashes *[64]uint32 // hashes of recently encoded fields, 0 for an empty slot; nil: none
}

type encoderEntry struct {
	name, value string
	nameHash    uint32
	hash        uint32 // hash of name and value
	validated   bool   // the field came from a Header and passed validation
}

func (e *encoderEntry) size() uint32 { return fieldSize(e.name, e.value) }

// setMaxSize applies the peer's SETTINGS_HEADER_TABLE_SIZE. The encoder never uses more than the
// default.
func (e *encoder) setMaxSize(size uint32) {
	size = min(size, DefaultTableSize)
	if size == e.max {
		return
	}
	if !e.sizeChanged || size < e.minSize {
		e.minSize = size
	}
	e.sizeChanged = true
	e.max = size
	e.evict(size)
}

// appendSizeUpdates appends the table size updates that a block has to start with. If the maximum
// fell and rose again, appendSizeUpdates empties the table and appends an update to 0 before the
// update to the maximum. The reason is x/net's decoder, which gRPC uses: it rejects a second update
// while its table has entries (TestEncodeDecodeRoundTrip).
func (e *encoder) appendSizeUpdates(dst []byte) []byte {
	if !e.sizeChanged {
		return dst
	}
	e.sizeChanged = false
	if e.minSize < e.max {
		e.evict(0)
		dst = appendInteger(dst, 0x20, 5, 0)
	}
	return appendInteger(dst, 0x20, 5, e.max)
}

// resetTable empties the table, and makes the next block empty the peer's table: a block that was
// never sent may have added entries that the peer does not have.
func (e *encoder) resetTable() {
	e.evict(0)
	e.recentHashes = nil
	e.minSize, e.sizeChanged = 0, true
}

func appendIndex(dst []byte, i uint32) []byte { return appendInteger(dst, 0x80, 7, i) }

// appendLiteral appends a field without adding it to the table. name is the index of its name in
// the static table. If neverIndexed is set, no intermediary may add the field to a table either
// (RFC 7541 6.2.3).
func appendLiteral(dst []byte, name uint32, value string, neverIndexed bool) []byte {
	var firstByte byte
	if neverIndexed {
		firstByte = 0x10
	}
	dst = appendInteger(dst, firstByte, 4, name)
	return appendText(dst, value)
}

// appendNeverIndexed appends a field that no intermediary may add to a table (RFC 7541 6.2.3).
func appendNeverIndexed(dst []byte, name, value string) []byte {
	i := uint32(staticNameIndex(name))
	dst = appendInteger(dst, 0x10, 4, i)
	if i == 0 {
		dst = appendText(dst, name)
	}
	return appendText(dst, value)
}

// tableMatch is the result of find.
type tableMatch struct {
	nameHash  uint32
	hash      uint32 // of name and value
	index     uint32 // index of the field; 0: it is not in the table
	validated bool   // the field with index came from a Header and passed validation
}

// find looks up a field in the dynamic table. It never finds a name with capital letters.
func (e *encoder) find(name, value string) (m tableMatch) {
	m.nameHash = hashText(0, name)
	m.hash = hashText(m.nameHash, value) | 1 // not 0, which marks an empty slot of recentHashes
	for i := range uint32(e.n) {
		entry := e.entry(i)
		if entry.hash == m.hash && entry.name == name && entry.value == value {
			m.index, m.validated = staticTableLen+1+i, entry.validated
			break
		}
	}
	return m
}

// findName returns the index of the newest entry called name, or 0 if there is none.
func (e *encoder) findName(nameHash uint32, name string) uint32 {
	for i := range uint32(e.n) {
		if entry := e.entry(i); entry.nameHash == nameHash && entry.name == name {
			return staticTableLen + 1 + i
		}
	}
	return 0
}

// entry returns entry i; 0 is the newest.
func (e *encoder) entry(i uint32) *encoderEntry {
	return &e.ring[(e.added-1-i)&uint32(len(e.ring)-1)]
}

// appendField appends a field, as an index if it is in the dynamic table. staticIndex is the index
// of its name in the static table, or 0. name is in lowercase.
func (e *encoder) appendField(dst []byte, staticIndex uint32, name, value string) []byte {
	m := e.find(name, value)
	return e.appendMatched(dst, staticIndex, name, value, &m, false)
}

// appendMatched appends a field for which find returned m. validated is stored in the entry if the
// field is added to the table.
func (e *encoder) appendMatched(dst []byte, staticIndex uint32, name, value string, m *tableMatch, validated bool) []byte {
	if m.index > 0 {
		return appendIndex(dst, m.index)
	}
	nameIndex := staticIndex
	if nameIndex == 0 {
		nameIndex = e.findName(m.nameHash, name)
	}
	if e.recentHashes == nil {
		e.recentHashes = new([64]uint32)
	}
	slot := &e.recentHashes[m.hash>>1%uint32(len(e.recentHashes))]
	size := fieldSize(name, value)
	recent := *slot == m.hash && size <= e.max/2
	*slot = m.hash
	if recent {
		dst = appendInteger(dst, 0x40, 6, nameIndex)
	} else {
		dst = appendInteger(dst, 0, 4, nameIndex)
	}
	if nameIndex == 0 {
		dst = appendText(dst, name)
	}
	dst = appendText(dst, value)
	if recent {
		e.add(encoderEntry{name: name, value: value, nameHash: m.nameHash, hash: m.hash, validated: validated})
	}
	return dst
}

// add adds an entry, copies its strings, and evicts the oldest entries to make space for it.
func (e *encoder) add(entry encoderEntry) {
	entry.name, entry.value = cloneBoth(entry.name, entry.value)
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
	ring := make([]encoderEntry, max(8, 2*len(e.ring)))
	for i := range e.n {
		n := e.added - 1 - uint32(i)
		ring[n&uint32(len(ring)-1)] = *e.entry(uint32(i))
	}
	e.ring = ring
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

// hashText mixes s into seed, eight bytes at a time. It is not collision-resistant: a collision
// costs a comparison of strings, or adds a field to the table early.
func hashText(seed uint32, s string) uint32 {
	const odd = 0x9e3779b97f4a7c15
	h := (uint64(seed)<<32 | uint64(len(s))) * odd
	var last uint64
	if len(s) >= 8 {
		last = swar.Load(s[len(s)-8:])
		for ; len(s) > 8; s = s[8:] {
			h = bits.RotateLeft64(h^swar.Load(s), 29) * odd
		}
	} else {
		for i := range len(s) {
			last |= uint64(s[i]) << (8 * i)
		}
	}
	h = bits.RotateLeft64(h^last, 29) * odd
	return uint32(h>>32) ^ uint32(h)
}

// appendText appends a string literal without Huffman code (RFC 7541 5.2).
func appendText(dst []byte, s string) []byte {
	dst = appendInteger(dst, 0, 7, uint32(len(s)))
	return append(dst, s...)
}

// appendInteger appends n with a prefix of prefix bits in the first byte. form holds the other bits
// of that byte (RFC 7541 5.1).
func appendInteger(dst []byte, form byte, prefix uint8, n uint32) []byte {
	maxPrefix := uint32(1)<<prefix - 1
	if n < maxPrefix {
		return append(dst, form|byte(n))
	}
	dst = append(dst, form|byte(maxPrefix))
	for n -= maxPrefix; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}
