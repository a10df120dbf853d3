package hessian

import (
	"encoding/binary"
	"math"
)

// Decoder goes through the values of one body in order. It begins with Reset,
// reads in the Final dialect within the default Limits unless told otherwise,
// and may live on the stack; one that is used again allocates nothing in steady
// state. After an error it is good for Reset only.
type Decoder struct {
	// The caller's; Reset reads them.
	Dialect Dialect
	Limits  Limits

	b         []byte
	pos       int // of the next value in b
	tags      *[256]tag
	limits    Limits // with defaults in place of zeros
	oversized bool   // b is only the part of the body that Limits.Size allows

	values     int   // that began so far
	containers int   // lists, maps and objects that began so far: the number of the next
	types      int   // types that were spelt out so far
	classes    stack // how many fields each class has that was defined so far
	refers     bool  // something had a number since the entry began: see Entry.Refers

	levels stack // how many values the containers around wait for: see Skip
	want   int   // the container that Skip looks for, counted from 1; 0: none
	found  int   // where it begins; -1: not yet known

	entries entries
	text    []byte // text that cannot be a view of b
}

// Reset makes d ready for the body b, from its first byte: numbers of references
// count from there. Until the next Reset b must not change: what d returns may
// be a view of it. A body beyond Limits.Size is an error once reading gets there.
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
	d.want, d.found = 0, -1
	d.entries = entries{}
	d.text = d.text[:0]
}

func orDefault(limit, byDefault int) int {
	if limit == 0 {
		return byDefault
	}
	return limit
}

// Offset returns where in the body the next value begins, in bytes. Among the
// entries of a map that came by reference it goes back, see Map.
func (d *Decoder) Offset() int { return d.pos }

// Kind returns what the next value is, without consuming it. A value that is cut
// off or malformed behind its first byte is found when it is read.
func (d *Decoder) Kind() Kind {
	k := d.next()
	if k == End && d.oversized {
		return Invalid
	}
	return k
}

// next returns what the next value is, or End where reading has to end.
func (d *Decoder) next() Kind {
	if d.pos >= len(d.b) {
		return End
	}
	return d.tags[d.b[d.pos]].kind
}

// Bool consumes a bool.
func (d *Decoder) Bool() (bool, error) {
	t, v, err := d.scalar(ruleWantBool)
	if err != nil {
		return false, err
	}
	if t.kind != Bool {
		return false, d.back(v, ruleWantBool)
	}
	return t.base == 1, nil
}

// Int consumes an int, or a long that fits one.
func (d *Decoder) Int() (int32, error) {
	start := d.pos
	n, err := d.Long()
	if err == nil && n != int64(int32(n)) {
		d.pos = start
		err = d.broken(ruleWantRange)
	}
	return int32(n), err
}

// Long consumes a long or an int.
func (d *Decoder) Long() (int64, error) {
	t, v, err := d.scalar(ruleWantNumber)
	if err != nil {
		return 0, err
	}
	if t.kind != Int && t.kind != Long {
		return 0, d.back(v, ruleWantNumber)
	}
	return t.number(v), nil
}

// Double consumes a double. Five bytes hold thousandths in the Final dialect, as
// Dubbo's peers have it (the specification says a float), and a float in Draft.
func (d *Decoder) Double() (float64, error) {
	t, v, err := d.scalar(ruleWantDouble)
	if err != nil {
		return 0, err
	}
	if t.kind != Double {
		return 0, d.back(v, ruleWantDouble)
	}
	return d.double(t, v), nil
}

// scalar consumes a value that is its tag and a few bytes: v, with the tag.
// Any other value is an error with the rule given.
func (d *Decoder) scalar(rule string) (t *tag, v []byte, err error) {
	if d.pos >= len(d.b) {
		return nil, nil, d.cut()
	}
	t = &d.tags[d.b[d.pos]]
	if t.form != formScalar {
		return nil, nil, d.broken(rule)
	}
	rest := d.b[d.pos:]
	if len(rest) < int(t.size) {
		return nil, nil, d.cut()
	}
	if d.values++; d.values > d.limits.Values {
		return nil, nil, d.exceeded(limitValues, d.limits.Values)
	}
	d.pos += int(t.size)
	return t, rest[:t.size], nil
}

// number returns the int or long that v is (Hessian 2.0 serialization 4.5, 4.7).
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

// double returns the double that v is (Hessian 2.0 serialization 4.4).
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
		return 0.001 * float64(int32(bits)) // not a division: this is how writers round
	default:
		return math.Float64frombits(binary.BigEndian.Uint64(v[1:]))
	}
}

// back is broken for a scalar that was consumed.
func (d *Decoder) back(v []byte, rule string) error {
	d.pos -= len(v)
	return d.broken(rule)
}

// broken is the error of a body that breaks a rule where d is.
func (d *Decoder) broken(rule string) error { return &Error{Offset: d.pos, Rule: rule} }

// cut is the error of a body that ends too early.
func (d *Decoder) cut() error {
	if d.oversized {
		return d.exceeded(limitSize, d.limits.Size)
	}
	return &Error{Offset: len(d.b), Rule: ruleCut}
}

// exceeded is the error of a body beyond a limit where d is.
func (d *Decoder) exceeded(rule string, limit int) error {
	return &Error{Offset: d.pos, Rule: rule, Limit: limit}
}

// stack holds numbers, the first of them without an allocation.
type stack struct {
	n    int
	near [16]int32
	far  []int32 // from the 17th; as long as it ever was
}

func (s *stack) push(v int32) {
	if s.n < len(s.near) {
		s.near[s.n] = v
	} else {
		s.far = append(s.far[:s.n-len(s.near)], v)
	}
	s.n++
}

// at returns number i, which is less than s.n.
func (s *stack) at(i int) int32 {
	if i < len(s.near) {
		return s.near[i]
	}
	return s.far[i-len(s.near)]
}

// pop takes out the last number; s.n is not 0.
func (s *stack) pop() int32 {
	s.n--
	return s.at(s.n)
}
