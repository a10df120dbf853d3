package hessian

// Entry is a key of a map and its value.
//
// The entries that stay when a map is written anew can be taken over byte for
// byte, body[e.Start:e.End], with one exception. Lists, maps, objects, class
// definitions and types have numbers in the order of the body; without an entry
// that Defines some, those behind it count differently, and an entry that Refers
// to them by number says something else. So when an entry that Defines is left
// out, or gets another value, no entry behind it may be one that Refers. Strings
// and scalars have no numbers: to change or add such is always safe.
type Entry struct {
	Key   []byte // the text of a key that is a string, else nil: see Decoder.Text
	Value []byte // the value's text, as Decoder.Text has it; nil if it has none
	Kind  Kind   // the value's; Null, Date, Binary and the containers have no text
	// Start and End are where the entry is in the body, in bytes; Middle is
	// where its value begins.
	Start, Middle, End int
	// Defines: something in it takes a number. Refers: something in it has one.
	Defines, Refers bool
}

// entries is where a Decoder is in a map.
type entries struct {
	inside bool
	// For a map that came by reference: where the body goes on, else 0, and what
	// was counted before.
	resume                     int
	containers, types, classes int
}

// Map consumes the head of a map, whose entries Entry then consumes. A null is a
// map without entries. A reference to a map that came before is read as that map
// (Hessian 2.0 serialization 4.11): Entry goes back to where it stands, and after
// its last entry to what is behind the reference. To find it the body is walked
// once more from its start; nothing is kept for that on the way.
//
// head is a view of the bytes that begin the map, with its type: a map that is to
// take its place begins with them. It is empty for a null.
func (d *Decoder) Map() (head []byte, err error) {
	d.entries = entries{}
	switch d.next() {
	case Map:
	case Null:
		d.pos++
		return nil, nil
	case Ref:
		if err := d.follow(); err != nil {
			return nil, err
		}
	case End:
		return nil, d.cut()
	default:
		return nil, d.broken(ruleWantMap)
	}
	if d.values++; d.values > d.limits.Values {
		return nil, d.exceeded(limitValues, d.limits.Values)
	}
	start := d.pos
	if _, err := d.open(&d.tags[d.b[start]]); err != nil {
		return nil, err
	}
	d.entries.inside = true
	return d.b[start:d.pos:d.pos], nil
}

// follow consumes a reference and goes to the map that it means.
func (d *Decoder) follow() error {
	start := d.pos
	number, err := d.reference()
	if err != nil {
		return err
	}
	w := *d // shares its memory: the same walk writes the same there
	w.Reset(d.b[:start])
	w.want = number + 1
	for w.found < 0 && number < d.containers && err == nil {
		err = w.Skip()
	}
	if err != nil || w.found < 0 || d.tags[d.b[w.found]].kind != Map {
		d.pos = start
		return d.broken(ruleRef)
	}
	d.entries = entries{resume: d.pos, containers: d.containers, types: d.types, classes: d.classes.n}
	d.pos = w.found
	return nil
}

// Entry consumes the next entry of the map that Map began, into e; or the end of
// the map, or what stands for it, and reports that there is no more.
func (d *Decoder) Entry(e *Entry) (more bool, err error) {
	if !d.entries.inside {
		return false, nil
	}
	if d.pos >= len(d.b) {
		return false, d.cut()
	}
	if d.shortEntry(e) {
		return true, nil
	}
	if d.tags[d.b[d.pos]].form == formEnd {
		d.pos++
		d.leave()
		return false, nil
	}
	containers, types, classes := d.containers, d.types, d.classes.n
	d.refers = false
	*e = Entry{Start: d.pos}
	if d.next() == String {
		e.Key, err = d.stringText()
	} else {
		err = d.Skip()
	}
	if err != nil {
		return false, err
	}
	e.Middle, e.Kind = d.pos, d.next()
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
	e.Refers = d.refers
	// What stands before the map's own place keeps its numbers anyway.
	e.Defines = d.entries.resume == 0 && (containers != d.containers || types != d.types || classes != d.classes.n)
	return true, nil
}

// shortEntry is Entry for the commonest sort, two strings of short's; it reports
// false, and has consumed nothing, if another comes.
func (d *Decoder) shortEntry(e *Entry) bool {
	start := d.pos
	key, middle := d.shortAt(start)
	if key == nil {
		return false
	}
	value, end := d.shortAt(middle)
	// If the key is not ASCII the value is elsewhere, but then this is found, too.
	if value == nil || !isASCII(d.b[start:end]) || d.values+2 > d.limits.Values {
		return false
	}
	d.pos = end
	d.values += 2
	e.Key, e.Value, e.Kind = key, value, String
	e.Start, e.Middle, e.End = start, middle, end
	e.Refers, e.Defines = false, false
	return true
}

// leave goes on behind the map, or behind the reference to it.
func (d *Decoder) leave() {
	if s := d.entries; s.resume > 0 {
		d.pos, d.containers, d.types, d.classes.n = s.resume, s.containers, s.types, s.classes
	}
	d.entries = entries{}
}
