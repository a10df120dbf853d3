package http2

import (
	"errors"

	"golang.org/x/net/http2/hpack"
)

// decoder decodes header blocks (RFC 7541). It decodes all fields, because later blocks depend on
// the table, but keeps only those within its limits. It uses the Huffman decoder of x/net, but not
// hpack.Decoder, which allocates each string: docs/decisions/0009.
type decoder struct {
	table        decoderTable
	maxTableSize uint32 // upper bound for table.max, which the peer sets
	// needsSizeUpdate: the peer acknowledged a smaller table; the next block must start with a size
	// update (RFC 7541 4.2).
	needsSizeUpdate bool

	maxListSize uint32 // maximum size of a header section, in bytes
	maxFields   int

	fields   []field // fields of the last block, in order
	size     uint32  // size of all fields of the last block
	tooLarge bool    // the last block exceeded a limit; fields holds only the fields before the limit
	text     appender
}

// appender is the buffer into which literals are decoded. The Huffman decoder calls Write.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// maxKeptText is the maximum size, in bytes, of text storage that is kept for the next block, so
// that a connection does not retain the memory of one unusually large block.
const maxKeptText = 4 << 10

// maxKeptFields is the maximum capacity of decoder.fields that is kept for the next block.
const maxKeptFields = 64

// Errors of decoding. They end the connection with CompressionError.
var (
	errTruncated  = errors.New("header block ends within a field (RFC 7541 3.2)")
	errIndex      = errors.New("header block refers to an unknown table entry (RFC 7541 2.3.3)")
	errInteger    = errors.New("header block contains an integer that is too large (RFC 7541 5.1)")
	errHuffman    = errors.New("header block contains an invalid Huffman code (RFC 7541 5.2)")
	errSizeUpdate = errors.New("header block contains an invalid table size update (RFC 7541 4.2)")
)

// decode decodes one block into d.fields, which are valid until the next call.
func (d *decoder) decode(block []byte) error {
	d.fields = d.fields[:0]
	d.text.b = d.text.b[:0]
	d.size, d.tooLarge = 0, false
	first := true
	for len(block) > 0 {
		b := block[0]
		var f field
		var err error
		switch {
		case b&0x80 != 0:
			f, block, err = d.readIndexed(block)
		case b&0xc0 == 0x40:
			if f, block, err = d.readLiteral(block, 6); err == nil {
				d.insert(&f)
			}
		case b&0xe0 == 0x20:
			if block, err = d.readSizeUpdate(block, first); err != nil {
				return err
			}
			continue
		default:
			f, block, err = d.readLiteral(block, 4)
		}
		if err != nil {
			return err
		}
		if d.needsSizeUpdate {
			return errSizeUpdate
		}
		first = false
		d.addField(&f)
	}
	return nil
}

// releaseOversized releases storage that an unusually large block needed. The fields become
// invalid.
func (d *decoder) releaseOversized() {
	if cap(d.text.b) > maxKeptText {
		d.text.b = nil
	}
	if cap(d.fields) > maxKeptFields {
		d.fields = nil
	}
}

func (d *decoder) addField(f *field) {
	size := f.size()
	if d.size > unlimited-size {
		d.tooLarge = true
		return
	}
	d.size += size
	if d.size > d.maxListSize || len(d.fields) >= d.maxFields {
		d.tooLarge = true
		return
	}
	d.fields = append(d.fields, *f)
}

func (d *decoder) readIndexed(block []byte) (field, []byte, error) {
	i, block, err := readInteger(block, 7)
	if err != nil {
		return field{}, nil, err
	}
	f := d.at(i)
	if f == nil {
		return field{}, nil, errIndex
	}
	return *f, block, nil
}

// at returns the entry with index i of the static and the dynamic table (RFC 7541 2.3.3), or nil if
// there is none.
func (d *decoder) at(i uint32) *field {
	if i-1 < staticTableLen { // false for 0, because 0-1 wraps
		return &staticTable[i]
	}
	if i -= staticTableLen + 1; i < uint32(d.table.n) {
		return d.table.at(int(i))
	}
	return nil
}

// readLiteral decodes a literal field. prefix is the number of bits in the first byte that hold the
// index of the name.
func (d *decoder) readLiteral(block []byte, prefix uint8) (f field, rest []byte, err error) {
	i, block, err := readInteger(block, prefix)
	if err != nil {
		return field{}, nil, err
	}
	if i == 0 {
		if f.name, block, err = d.readString(block); err != nil {
			return field{}, nil, err
		}
		f.kind = classifyName(f.name)
	} else {
		entry := d.at(i)
		if entry == nil {
			return field{}, nil, errIndex
		}
		f.name, f.kind, f.flags = entry.name, entry.kind, nameOwned
	}
	if f.value, block, err = d.readString(block); err != nil {
		return field{}, nil, err
	}
	if !isFieldValue(f.value) {
		f.flags |= invalidValue
	}
	return f, block, nil
}

// readString decodes a string literal (RFC 7541 5.2). The string borrows d.text.
func (d *decoder) readString(block []byte) (string, []byte, error) {
	if len(block) == 0 {
		return "", nil, errTruncated
	}
	huffman := block[0]&0x80 != 0
	n, block, err := readInteger(block, 7)
	if err != nil {
		return "", nil, err
	}
	if uint64(n) > uint64(len(block)) {
		return "", nil, errTruncated
	}
	start := len(d.text.b)
	if !huffman {
		d.text.b = append(d.text.b, block[:n]...)
	} else if _, err := hpack.HuffmanDecode(&d.text, block[:n]); err != nil {
		return "", nil, errHuffman
	}
	return unsafeString(d.text.b[start:]), block[n:], nil
}

// insert adds f to the table, which then owns its strings. It copies the name even if a table entry
// has the same name: sharing that string would retain the memory of an evicted entry.
func (d *decoder) insert(f *field) {
	if f.size() > d.table.max {
		d.table.evict(0) // a field larger than the table empties it (RFC 7541 4.4)
		return
	}
	f.name, f.value = cloneBoth(f.name, f.value)
	f.flags |= nameOwned | valueOwned
	d.table.add(f)
}

// readSizeUpdate decodes a table size update, which may occur only at the start of a block.
func (d *decoder) readSizeUpdate(block []byte, first bool) ([]byte, error) {
	size, block, err := readInteger(block, 5)
	if err != nil {
		return nil, err
	}
	if !first || size > d.maxTableSize {
		return nil, errSizeUpdate
	}
	d.needsSizeUpdate = false
	d.table.max = size
	d.table.evict(size)
	return block, nil
}

// setMaxTableSize sets the maximum table size that the peer may use, after the peer has
// acknowledged it.
func (d *decoder) setMaxTableSize(size uint32) {
	d.maxTableSize = size
	d.needsSizeUpdate = d.table.max > size
}

// readInteger decodes an integer with a prefix of prefix bits in the first byte, and returns the
// bytes after it (RFC 7541 5.1). It rejects integers above 2^31, because no valid index, length or
// table size is that large.
func readInteger(b []byte, prefix uint8) (uint32, []byte, error) {
	if len(b) == 0 {
		return 0, nil, errTruncated
	}
	maxPrefix := uint32(1)<<prefix - 1
	n := uint32(b[0]) & maxPrefix
	if n < maxPrefix {
		return n, b[1:], nil
	}
	sum := uint64(n)
	for i, shift := 1, 0; i < len(b); i, shift = i+1, shift+7 {
		if shift > 28 {
			return 0, nil, errInteger
		}
		sum += uint64(b[i]&0x7f) << shift
		if b[i]&0x80 == 0 {
			if sum > 1<<31 {
				return 0, nil, errInteger
			}
			return uint32(sum), b[i+1:], nil
		}
	}
	return 0, nil, errTruncated
}

// decoderTable is the dynamic table of a decoder (RFC 7541 2.3.2).
type decoderTable struct {
	ring []field // its length is a power of two, or 0
	next int     // index of the next entry in ring
	n    int     // number of entries
	size uint32  // size of all entries (RFC 7541 4.1)
	max  uint32  // maximum of size
}

// at returns entry i; 0 is the newest.
func (t *decoderTable) at(i int) *field {
	return &t.ring[(t.next-1-i)&(len(t.ring)-1)]
}

// add adds f, which is not larger than max, and evicts the oldest entries to make space for it.
func (t *decoderTable) add(f *field) {
	t.evict(t.max - f.size())
	if t.n == len(t.ring) {
		t.grow()
	}
	t.ring[t.next] = *f
	t.next = (t.next + 1) & (len(t.ring) - 1)
	t.n++
	t.size += f.size()
}

func (t *decoderTable) grow() {
	ring := make([]field, max(8, 2*len(t.ring)))
	for i := range t.n {
		ring[i] = *t.at(t.n - 1 - i)
	}
	t.ring, t.next = ring, t.n
}

// evict removes the oldest entries until at most size bytes are left.
func (t *decoderTable) evict(size uint32) {
	for t.size > size {
		oldest := t.at(t.n - 1)
		t.size -= oldest.size()
		*oldest = field{}
		t.n--
	}
}
