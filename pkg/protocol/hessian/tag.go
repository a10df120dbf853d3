package hessian

// form is the form of a value's bytes after the first byte, which is called the tag.
type form uint8

const (
	formNone form = iota
	// formScalar has tag.size bytes, including the tag.
	formScalar
	// The next four forms are a length and as many bytes, or UTF-16 code units of a string. The
	// length is in the tag; in the tag and the next byte; in two bytes; or in two bytes, and
	// another chunk follows.
	formLengthInTag
	formLengthShort
	formLengthFinal
	formLengthChunk
	// The next six forms are a list or map, with or without a type. The number of values is in the
	// tag or in an int, or the values continue until formEnd.
	formDirect
	formDirectTyped
	formFixed
	formFixedTyped
	formOpen
	formOpenTyped
	// An object; the tag or an int is the index of its class.
	formObjectDirect
	formObject
	// A reference; an int is its number.
	formRef
	// Forms of the Draft dialect: a list with an optional type and length, and an end; a list with
	// two ints, type and length; a map with an optional type.
	formDraftList
	formDraftFixed
	formDraftMap

	// The last forms are not values: class definitions before a value, and ends.
	formClass
	formDraftClass
	formEnd
)

// tag is the meaning of the first byte of a value.
type tag struct {
	kind Kind
	form form
	size uint8 // bytes of a scalar, including the tag
	base uint8 // the tag that represents zero; or the value of a one-byte bool or double
}

// Markers of the Draft dialect within values.
const (
	draftType       = 't'
	draftTypeNumber = 'u'
	draftTypeOld    = 'T'
	draftLengthByte = 'n'
	draftLengthInt  = 'l'
)

//nolint:gochecknoglobals // a constant table
var tags = [...][256]tag{Final: finalTags(), Draft: draftTags()}

// finalTags returns the bytecode map of the specification (Hessian 2.0 serialization 6). Bytes
// without an entry are reserved.
func finalTags() (t [256]tag) {
	commonTags(&t)
	setRange(&t, 0x30, 0x33, tag{kind: String, form: formLengthShort, base: 0x30})
	setRange(&t, 0x34, 0x37, tag{kind: Binary, form: formLengthShort, base: 0x34})
	setRange(&t, 0x60, 0x6f, tag{kind: Object, form: formObjectDirect, base: 0x60})
	setRange(&t, 0x70, 0x77, tag{kind: List, form: formDirectTyped, base: 0x70})
	setRange(&t, 0x78, 0x7f, tag{kind: List, form: formDirect, base: 0x78})
	t['A'] = tag{kind: Binary, form: formLengthChunk}
	t['C'] = tag{kind: Object, form: formClass}
	t['H'] = tag{kind: Map, form: formOpen}
	t[0x4a] = tag{kind: Date, form: formScalar, size: 9} // milliseconds
	t[0x4b] = tag{kind: Date, form: formScalar, size: 5} // minutes
	t['M'] = tag{kind: Map, form: formOpenTyped}
	t['O'] = tag{kind: Object, form: formObject}
	t[0x51] = tag{kind: Ref, form: formRef}
	t['R'] = tag{kind: String, form: formLengthChunk}
	t[0x55] = tag{kind: List, form: formOpenTyped}
	t['V'] = tag{kind: List, form: formFixedTyped}
	t[0x57] = tag{kind: List, form: formOpen}
	t[0x58] = tag{kind: List, form: formFixed}
	t[0x59] = tag{kind: Long, form: formScalar, size: 5}
	t['Z'] = tag{form: formEnd}
	t[0x5b] = tag{kind: Double, form: formScalar, size: 1, base: 0}
	t[0x5c] = tag{kind: Double, form: formScalar, size: 1, base: 1}
	t[0x5d] = tag{kind: Double, form: formScalar, size: 2}
	t[0x5e] = tag{kind: Double, form: formScalar, size: 3}
	t[0x5f] = tag{kind: Double, form: formScalar, size: 5}
	return t
}

func draftTags() (t [256]tag) {
	commonTags(&t)
	t[0x4a] = tag{kind: Ref, form: formScalar, size: 2}
	t[0x4b] = tag{kind: Ref, form: formScalar, size: 3}
	t['R'] = tag{kind: Ref, form: formScalar, size: 5}
	t['M'] = tag{kind: Map, form: formDraftMap}
	t['O'] = tag{kind: Object, form: formDraftClass}
	t['V'] = tag{kind: List, form: formDraftList}
	t['b'] = tag{kind: Binary, form: formLengthChunk}
	t['d'] = tag{kind: Date, form: formScalar, size: 9}
	t[0x67] = tag{kind: Double, form: formScalar, size: 1, base: 0}
	t[0x68] = tag{kind: Double, form: formScalar, size: 1, base: 1}
	t[0x69] = tag{kind: Double, form: formScalar, size: 2}
	t[0x6a] = tag{kind: Double, form: formScalar, size: 3}
	t[0x6b] = tag{kind: Double, form: formScalar, size: 5}
	t['o'] = tag{kind: Object, form: formObject}
	t['s'] = tag{kind: String, form: formLengthChunk}
	t['v'] = tag{kind: List, form: formDraftFixed}
	t[0x77] = tag{kind: Long, form: formScalar, size: 5}
	t['z'] = tag{form: formEnd}
	return t
}

func commonTags(t *[256]tag) {
	setRange(t, 0x00, 0x1f, tag{kind: String, form: formLengthInTag, base: 0x00})
	setRange(t, 0x20, 0x2f, tag{kind: Binary, form: formLengthInTag, base: 0x20})
	setRange(t, 0x38, 0x3f, tag{kind: Long, form: formScalar, size: 3, base: 0x3c})
	setRange(t, 0x80, 0xbf, tag{kind: Int, form: formScalar, size: 1, base: 0x90})
	setRange(t, 0xc0, 0xcf, tag{kind: Int, form: formScalar, size: 2, base: 0xc8})
	setRange(t, 0xd0, 0xd7, tag{kind: Int, form: formScalar, size: 3, base: 0xd4})
	setRange(t, 0xd8, 0xef, tag{kind: Long, form: formScalar, size: 1, base: 0xe0})
	setRange(t, 0xf0, 0xff, tag{kind: Long, form: formScalar, size: 2, base: 0xf8})
	t['B'] = tag{kind: Binary, form: formLengthFinal}
	t['D'] = tag{kind: Double, form: formScalar, size: 9}
	t['F'] = tag{kind: Bool, form: formScalar, size: 1, base: 0}
	t['I'] = tag{kind: Int, form: formScalar, size: 5}
	t['L'] = tag{kind: Long, form: formScalar, size: 9}
	t['N'] = tag{kind: Null, form: formScalar, size: 1}
	t['S'] = tag{kind: String, form: formLengthFinal}
	t['T'] = tag{kind: Bool, form: formScalar, size: 1, base: 1}
}

func setRange(t *[256]tag, first, last int, entry tag) {
	for c := first; c <= last; c++ {
		t[c] = entry
	}
}
