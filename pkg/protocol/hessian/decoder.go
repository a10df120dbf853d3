package hessian

import (
	"encoding/binary"
	"math"
)

// Decoder reads the values of one body in order. Call Reset first. It reads the Final dialect
// within the default Limits unless the caller sets Dialect or Limits. A Decoder can live on the
// stack. A reused Decoder does not allocate in steady state. After an error, the caller may call
// only Reset.
type Decoder struct {
	// The caller sets Dialect and Limits before Reset.
	Dialect Dialect
	Limits  Limits

	b         []byte
	pos       int // offset of the next value in b
	tags      *[256]tag
	limits    Limits // with defaults in place of zeros
	oversized bool   // the body is larger than Limits.Size, and b contains only the first bytes

	values       int   // number of values so far
	containers   int   // number of lists, maps and objects so far: the reference number of the next one
	types        int   // number of type names so far
	classes      stack // number of fields of each class defined so far
	sawReference bool  // the current entry contains a reference: see Entry.HasReference

	levels          stack // what the enclosing containers expect next: see Skip
	targetContainer int   // the container that Skip searches for, counted from 1; 0: none
	targetOffset    int   // offset of that container; -1: not found yet

	mapPosition mapPosition
	text        []byte // storage of texts that cannot borrow b
}

// Reset prepares d to read the body b from its first byte. b must not change until the next Reset,
// because results may borrow it. A body that exceeds Limits.Size is an error once d reads beyond
// the limit.
func (d *Decoder) Reset(b []byte) {
	d.tags = &tags[d.Dialect]
	d.limits = Limits{
		Depth:   orDefault(d.Limits.Depth, 512),
		Classes: orDefault(d.Limits.Classes, 1024),
		Fields:  orDefault(d.Limits.Fields, 4096),
		Values:  orDefault(d.Limits.Values, math.MaxInt),
		Length:  orDefault(d.Limits.Length, math.MaxInt),
		Size:    min(orDefault(d.Limits.Size, math.MaxInt32), math.MaxInt32),
	}
	d.oversized = len(b) > d.limits.Size
	d.b, d.pos = b[:min(len(b), d.limits.Size)], 0
	d.values, d.containers, d.types, d.classes.n = 0, 0, 0, 0
	d.targetContainer, d.targetOffset = 0, -1
	d.mapPosition = mapPosition{}
	d.text = d.text[:0]
}

func orDefault(limit, defaultLimit int) int {
	if limit == 0 {
		return defaultLimit
	}
	return limit
}

// Offset returns the offset of the next value in the body. The offset decreases while the entries
// of a map that is a reference are read; see Map.
func (d *Decoder) Offset() int { return d.pos }

// Kind returns the kind of the next value without consuming it. It does not detect a value that is
// truncated or malformed after its first byte.
func (d *Decoder) Kind() Kind {
	k := d.next()
	if k == End && d.oversized {
		return Invalid
	}
	return k
}

// next returns the kind of the next value, or End at the end of the readable body.
func (d *Decoder) next() Kind {
	if d.pos >= len(d.b) {
		return End
	}
	return d.tags[d.b[d.pos]].kind
}

// Bool consumes a bool.
func (d *Decoder) Bool() (bool, error) {
	t, v, err := d.readScalar(ruleWantBool)
	if err != nil {
		return false, err
	}
	if t.kind != Bool {
		return false, d.unreadError(v, ruleWantBool)
	}
	return t.base == 1, nil
}

// Int consumes an int, or a long that fits into an int.
func (d *Decoder) Int() (int32, error) {
	start := d.pos
	n, err := d.Long()
	if err == nil && n != int64(int32(n)) {
		d.pos = start
		err = d.ruleError(ruleWantRange)
	}
	return int32(n), err
}

// Long consumes a long or an int.
func (d *Decoder) Long() (int64, error) {
	t, v, err := d.readScalar(ruleWantNumber)
	if err != nil {
		return 0, err
	}
	if t.kind != Int && t.kind != Long {
		return 0, d.unreadError(v, ruleWantNumber)
	}
	return t.number(v), nil
}

// Double consumes a double. In the Final dialect, a five-byte double is an integer number of
// thousandths, as in the Hessian libraries of Dubbo; the specification defines a float. In Draft it
// is a float.
func (d *Decoder) Double() (float64, error) {
	t, v, err := d.readScalar(ruleWantDouble)
	if err != nil {
		return 0, err
	}
	if t.kind != Double {
		return 0, d.unreadError(v, ruleWantDouble)
	}
	return d.double(t, v), nil
}

// readScalar consumes a value that consists of a tag and a few bytes. v includes the tag. Any other
// value is an error with the given rule.
func (d *Decoder) readScalar(rule string) (t *tag, v []byte, err error) {
	if d.pos >= len(d.b) {
		return nil, nil, d.truncatedError()
	}
	t = &d.tags[d.b[d.pos]]
	if t.form != formScalar {
		return nil, nil, d.ruleError(rule)
	}
	remaining := d.b[d.pos:]
	if len(remaining) < int(t.size) {
		return nil, nil, d.truncatedError()
	}
	if d.values++; d.values > d.limits.Values {
		return nil, nil, d.limitError(limitValues, d.limits.Values)
	}
	d.pos += int(t.size)
	return t, remaining[:t.size], nil
}

// number returns the int or long in v (Hessian 2.0 serialization 4.5, 4.7).
func (t *tag) number(v []byte) int64 {
	high := int64(v[0]) - int64(t.base)
	switch len(v) {
	case 1:
		return high
	case 2:
		return high<<8 | int64(v[1])
	case 3:
		return high<<16 | int64(v[1])<<8 | int64(v[2])
	case 5:
		return int64(int32(binary.BigEndian.Uint32(v[1:])))
	default:
		return int64(binary.BigEndian.Uint64(v[1:]))
	}
}

// double returns the double in v (Hessian 2.0 serialization 4.4).
func (d *Decoder) double(t *tag, v []byte) float64 {
	switch len(v) {
	case 1:
		return float64(t.base)
	case 2:
		return float64(int8(v[1]))
	case 3:
		return float64(int16(binary.BigEndian.Uint16(v[1:])))
	case 5:
		bits := binary.BigEndian.Uint32(v[1:])
		if d.Dialect == Draft {
			return float64(math.Float32frombits(bits))
		}
		return 0.001 * float64(int32(bits)) // encoders compute the double as 0.001*n; n/1000 may round differently
	default:
		return math.Float64frombits(binary.BigEndian.Uint64(v[1:]))
	}
}

// unreadError moves back to the start of the consumed scalar v, and returns the error for it.
func (d *Decoder) unreadError(v []byte, rule string) error {
	d.pos -= len(v)
	return d.ruleError(rule)
}

// ruleError returns the error for a body that violates a rule at the current offset.
func (d *Decoder) ruleError(rule string) error { return &Error{Offset: d.pos, Rule: rule} }

func (d *Decoder) truncatedError() error {
	if d.oversized {
		return d.limitError(limitSize, d.limits.Size)
	}
	return &Error{Offset: len(d.b), Rule: ruleTruncated}
}

// limitError returns the error for a body that exceeds a limit at the current offset.
func (d *Decoder) limitError(rule string, limit int) error {
	return &Error{Offset: d.pos, Rule: rule, Limit: limit}
}

// stack allocates only for more than 16 numbers.
type stack struct {
	n        int
	inline   [16]int32
	overflow []int32 // from the 17th number; never shrinks
}

func (s *stack) push(v int32) {
	if s.n < len(s.inline) {
		s.inline[s.n] = v
	} else {
		s.overflow = append(s.overflow[:s.n-len(s.inline)], v)
	}
	s.n++
}

// at returns the number at index i, which must be less than s.n.
func (s *stack) at(i int) int32 {
	if i < len(s.inline) {
		return s.inline[i]
	}
	return s.overflow[i-len(s.inline)]
}

// pop removes and returns the last number; s.n must not be 0.
func (s *stack) pop() int32 {
	s.n--
	return s.at(s.n)
}
