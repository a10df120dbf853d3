package hessian

import "encoding/binary"

// These values say what an open container expects next, if a byte marks its end. A container that
// declares its length has the number of remaining values instead, which is not negative.
const (
	valueOrEnd int32 = -1 - iota
	keyOrEnd
	valueOfKey
)

// Skip consumes a value of any kind, including nested values and the class definitions before it.
//
// Skip tracks the nesting of containers in d.levels instead of by recursion. Each number says what
// one of the open containers expects next.
func (d *Decoder) Skip() error {
	d.levels.n = 0
	for expected := int32(1); ; {
		for expected == 0 { // the container has all of its declared values
			if d.levels.n == 0 {
				return nil
			}
			expected = d.levels.pop()
		}
		if d.pos >= len(d.b) {
			return d.truncatedError()
		}
		t := &d.tags[d.b[d.pos]]
		if t.form >= formClass {
			if t.form != formEnd {
				if err := d.readClassDefinition(t); err != nil {
					return err
				}
				continue
			}
			if expected != valueOrEnd && expected != keyOrEnd {
				return d.ruleError(ruleEnd)
			}
			d.pos++
			expected = d.levels.pop()
			continue
		}
		if d.values++; d.values > d.limits.Values {
			return d.limitError(limitValues, d.limits.Values)
		}
		switch expected {
		case valueOrEnd:
		case keyOrEnd:
			expected = valueOfKey
		case valueOfKey:
			expected = keyOrEnd
		default:
			expected--
		}
		if t.kind < List || t.kind == Ref {
			if err := d.skipLeaf(t); err != nil {
				return err
			}
			continue
		}
		if d.levels.n >= d.limits.Depth {
			return d.limitError(limitDepth, d.limits.Depth)
		}
		start := d.pos
		next, err := d.openContainer(t)
		if err != nil {
			return err
		}
		if d.containers == d.targetContainer {
			d.targetOffset = start
			return nil
		}
		d.levels.push(expected)
		expected = next
	}
}

// skipLeaf consumes a value without nested values; t is its tag.
func (d *Decoder) skipLeaf(t *tag) error {
	switch {
	case t.kind == Ref:
		_, err := d.readReference()
		return err
	case t.form == formScalar:
		if len(d.b)-d.pos < int(t.size) {
			return d.truncatedError()
		}
		d.pos += int(t.size)
		return nil
	case t.form == formNone:
		return d.ruleError(ruleTag)
	default:
		return d.skipChunks(t.kind)
	}
}

// readReference consumes a reference and returns its number (Hessian 2.0 serialization 4.11).
func (d *Decoder) readReference() (int, error) {
	d.sawReference = true
	rest := d.b[d.pos:]
	t := &d.tags[rest[0]]
	if t.form == formRef {
		d.pos++
		return d.readCount()
	}
	if len(rest) < int(t.size) {
		return 0, d.truncatedError()
	}
	n := 0
	for _, c := range rest[1:t.size] {
		n = n<<8 | int(c)
	}
	d.pos += int(t.size)
	return n, nil
}

func (d *Decoder) skipChunks(kind Kind) error {
	for length := 0; ; {
		c, err := d.readChunk(kind, length)
		if err != nil || c.isLast {
			return err
		}
		length = c.length
	}
}

// openContainer consumes the head of a list, map or object, and returns what the container expects
// next.
func (d *Decoder) openContainer(t *tag) (int32, error) {
	d.containers++
	number := int(d.b[d.pos] - t.base)
	d.pos++
	switch t.form {
	case formDirectTyped, formFixedTyped, formOpenTyped:
		if err := d.skipType(); err != nil {
			return 0, err
		}
	case formDraftFixed:
		d.sawReference = true
		if _, err := d.readCount(); err != nil {
			return 0, err
		}
	case formDraftList, formDraftMap:
		if err := d.skipDraftType(); err != nil {
			return 0, err
		}
	default:
	}
	switch t.form {
	case formOpen, formOpenTyped, formDraftMap:
		if t.kind == Map {
			return keyOrEnd, nil
		}
		return valueOrEnd, nil
	case formDraftList:
		return valueOrEnd, d.skipDraftLength()
	case formDirect, formDirectTyped, formObjectDirect:
	default:
		var err error
		if number, err = d.readCount(); err != nil {
			return 0, err
		}
	}
	if t.kind == Object {
		d.sawReference = true
		if number >= d.classes.n {
			return 0, d.ruleError(ruleClass)
		}
		number = int(d.classes.at(number))
	}
	if number > len(d.b)-d.pos {
		if d.oversized {
			return 0, d.truncatedError()
		}
		return 0, d.ruleError(ruleCount)
	}
	return int32(number), nil
}

// readClassDefinition consumes a class definition: a name, the number of fields, and their names
// (Hessian 2.0 serialization 4.10.1).
func (d *Decoder) readClassDefinition(t *tag) error {
	if d.classes.n >= d.limits.Classes {
		return d.limitError(limitClasses, d.limits.Classes)
	}
	d.pos++
	name := d.skipName
	if t.form == formDraftClass {
		name = d.skipDraftName
	}
	if err := name(); err != nil {
		return err
	}
	fields, err := d.readCount()
	if err != nil {
		return err
	}
	if fields > d.limits.Fields {
		return d.limitError(limitFields, d.limits.Fields)
	}
	for range fields {
		if err := d.skipName(); err != nil {
			return err
		}
	}
	d.classes.push(int32(fields))
	return nil
}

func (d *Decoder) skipName() error {
	if kind := d.next(); kind != String && kind != End {
		return d.ruleError(ruleName)
	}
	return d.skipChunks(String)
}

// skipType consumes a type: its name, or the number of an earlier type name (Hessian 2.0
// serialization 4.13, 4.14).
func (d *Decoder) skipType() error {
	switch d.next() {
	case String:
		d.types++
		return d.skipChunks(String)
	case Int, End:
		d.sawReference = true
		_, err := d.readCount()
		return err
	default:
		return d.ruleError(ruleType)
	}
}

// readCount consumes an int that is a count or an index.
func (d *Decoder) readCount() (int, error) {
	if d.pos >= len(d.b) {
		return 0, d.truncatedError()
	}
	t := &d.tags[d.b[d.pos]]
	if t.kind != Int {
		return 0, d.ruleError(ruleInt)
	}
	rest := d.b[d.pos:]
	if len(rest) < int(t.size) {
		return 0, d.truncatedError()
	}
	n := t.number(rest[:t.size])
	if n < 0 {
		return 0, d.ruleError(ruleNegative)
	}
	d.pos += int(t.size)
	return int(n), nil
}

// skipDraftType consumes the optional type of a list or map in the Draft dialect.
func (d *Decoder) skipDraftType() error {
	if d.pos >= len(d.b) {
		return nil // the next read reports the end of the body
	}
	switch rest := d.b[d.pos:]; rest[0] {
	case draftType:
		if len(rest) < 3 {
			return d.truncatedError()
		}
		d.types++
		return d.skipUnits(3, int(binary.BigEndian.Uint16(rest[1:])))
	case draftTypeNumber, draftTypeOld:
		d.pos++
		d.sawReference = true
		_, err := d.readCount()
		return err
	default:
		return nil
	}
}

// skipDraftLength consumes the optional length of a list in the Draft dialect. The length is only a
// hint: the list continues until its end byte.
func (d *Decoder) skipDraftLength() error {
	if d.pos >= len(d.b) {
		return nil
	}
	size := 0
	switch d.b[d.pos] {
	case draftLengthByte:
		size = 2
	case draftLengthInt:
		size = 5
	}
	if len(d.b)-d.pos < size {
		return d.truncatedError()
	}
	d.pos += size
	return nil
}

func (d *Decoder) skipDraftName() error {
	n, err := d.readCount()
	if err != nil {
		return err
	}
	return d.skipUnits(0, n)
}

// skipUnits consumes n code units after head bytes.
func (d *Decoder) skipUnits(head, n int) error {
	if n > d.limits.Length {
		return d.limitError(limitLength, d.limits.Length)
	}
	size, _, rule := textSize(d.b[d.pos+head:], n)
	if rule == ruleTruncated {
		return d.truncatedError()
	}
	d.pos += head + size
	if rule != "" {
		return d.ruleError(rule)
	}
	return nil
}
