package hessian

// Entry is one entry of a map: a key and its value.
//
// To write a changed map, copy the unchanged entries, body[e.Start:e.End], with one exception.
// Lists, maps, objects, class definitions and types have reference numbers in the order of the
// body. If an entry with such numbers (DefinesNumbers) is omitted or gets another value, the
// numbers after it change, and a later entry with a reference (HasReference) would refer to another
// value. So no entry with HasReference may follow a removed or changed entry with DefinesNumbers.
// Strings and scalars have no numbers: you can always change or add them.
type Entry struct {
	Key   []byte // the text of a key that is a string, otherwise nil: see Decoder.Text
	Value []byte // the text of the value, as Decoder.Text returns it; nil if it has none
	Kind  Kind   // kind of the value; Null, Date, Binary, Ref and the containers have no text
	// Start and End are the offsets of the entry in the body. ValueStart is the offset of its
	// value.
	Start, ValueStart, End int
	// DefinesNumbers: the entry contains a value or a name with a reference number. HasReference:
	// the entry contains a reference.
	DefinesNumbers, HasReference bool
}

// mapPosition is the position of a Decoder in a map.
type mapPosition struct {
	inMap bool
	// resumeOffset is the offset after the reference if the map is a reference, otherwise 0.
	// containers, types and classes are the counts at that offset.
	resumeOffset               int
	containers, types, classes int
}

// Map consumes the head of a map; Entry then consumes its entries. A null is a map without entries.
// A reference to an earlier map is read as that map (Hessian 2.0 serialization 4.11): the Decoder
// moves back to the map, and after its last entry to the end of the reference. To find the map, the
// Decoder reads the body again from its start, because it stores no positions.
//
// head borrows the bytes at the start of the map, including its type; a map that replaces it must
// start with them. head is empty for a null.
func (d *Decoder) Map() (head []byte, err error) {
	d.mapPosition = mapPosition{}
	switch d.next() {
	case Map:
	case Null:
		d.pos++
		return nil, nil
	case Ref:
		if err := d.followReference(); err != nil {
			return nil, err
		}
	case End:
		return nil, d.truncatedError()
	default:
		return nil, d.ruleError(ruleWantMap)
	}
	if d.values++; d.values > d.limits.Values {
		return nil, d.limitError(limitValues, d.limits.Values)
	}
	start := d.pos
	if _, err := d.openContainer(&d.tags[d.b[start]]); err != nil {
		return nil, err
	}
	d.mapPosition.inMap = true
	return d.b[start:d.pos:d.pos], nil
}

// followReference consumes a reference and moves d back to the map that it refers to.
func (d *Decoder) followReference() error {
	start := d.pos
	number, err := d.readReference()
	if err != nil {
		return err
	}
	// walker shares slices with d. It decodes the same bytes, so it stores the same class
	// definitions again.
	walker := *d
	walker.Reset(d.b[:start])
	walker.targetContainer = number + 1
	for walker.targetOffset < 0 && number < d.containers && err == nil {
		err = walker.Skip()
	}
	if err != nil || walker.targetOffset < 0 || d.tags[d.b[walker.targetOffset]].kind != Map {
		d.pos = start
		return d.ruleError(ruleRef)
	}
	d.mapPosition = mapPosition{resumeOffset: d.pos, containers: d.containers, types: d.types, classes: d.classes.n}
	d.pos = walker.targetOffset
	return nil
}

// Entry consumes the next entry of the current map into e. At the end of the map it consumes the
// end and returns false. It also returns false if there is no current map.
func (d *Decoder) Entry(e *Entry) (more bool, err error) {
	if !d.mapPosition.inMap {
		return false, nil
	}
	if d.pos >= len(d.b) {
		return false, d.truncatedError()
	}
	if d.readShortEntry(e) {
		return true, nil
	}
	if d.tags[d.b[d.pos]].form == formEnd {
		d.pos++
		d.leaveMap()
		return false, nil
	}
	containers, types, classes := d.containers, d.types, d.classes.n
	d.sawReference = false
	*e = Entry{Start: d.pos}
	if d.next() == String {
		e.Key, err = d.readString()
	} else {
		err = d.Skip()
	}
	if err != nil {
		return false, err
	}
	e.ValueStart, e.Kind = d.pos, d.next()
	switch e.Kind {
	case Bool, Int, Long, Double, String:
		e.Value, err = d.Text()
	default:
		err = d.Skip()
	}
	if err != nil {
		return false, err
	}
	e.End = d.pos
	e.HasReference = d.sawReference
	// If the map is a reference, the original map stays in the body, and its numbers do not change.
	e.DefinesNumbers = d.mapPosition.resumeOffset == 0 && (containers != d.containers || types != d.types || classes != d.classes.n)
	return true, nil
}

// readShortEntry is Entry for the most common case, two short ASCII strings. For other entries it
// consumes nothing and returns false.
func (d *Decoder) readShortEntry(e *Entry) bool {
	start := d.pos
	key, middle := d.shortAt(start)
	if key == nil {
		return false
	}
	value, end := d.shortAt(middle)
	// If the key is not ASCII, value is not the value of the entry, but then isASCII returns false
	// too.
	if value == nil || !isASCII(d.b[start:end]) || d.values+2 > d.limits.Values {
		return false
	}
	d.pos = end
	d.values += 2
	e.Key, e.Value, e.Kind = key, value, String
	e.Start, e.ValueStart, e.End = start, middle, end
	e.HasReference, e.DefinesNumbers = false, false
	return true
}

// leaveMap continues after the map, or after the reference to it.
func (d *Decoder) leaveMap() {
	if s := d.mapPosition; s.resumeOffset > 0 {
		d.pos, d.containers, d.types, d.classes.n = s.resumeOffset, s.containers, s.types, s.classes
	}
	d.mapPosition = mapPosition{}
}
