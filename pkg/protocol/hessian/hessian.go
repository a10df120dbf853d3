// Package hessian owns the part of Hessian 2 that routing, attachments and
// faults need: it walks the values of a body without building them, reads the
// few that a proxy acts on, and writes what a proxy has to say. It is pure: it
// sees bytes, never a connection. ("Hessian 2.0 serialization 4.x" below is the
// public specification, Hessian 2.0 Serialization Protocol.)
//
// A body is a row of values. Later values lean on earlier ones: objects on class
// definitions, types on the types that were spelt out, references on the lists,
// maps and objects that came before (5. Reference Maps). So a Decoder starts at
// the first byte of a body and goes through it in order:
//
//	var d hessian.Decoder
//	d.Reset(body)
//	version, err := d.Text()   // strings as views of body where they can be
//	path, err := d.Text()
//	…
//	err = d.Skip()             // an argument, whatever it is
//	head, err := d.Map()       // the attachments
//	var e hessian.Entry
//	for {
//		more, err := d.Entry(&e)
//		…                  // e.Key, e.Value; body[e.Start:e.End] is the entry
//	}
//
// To change the attachments, write the map anew behind body[:start]: head (or
// AppendMapStart), the entries that stay, byte for byte, those that are new
// with AppendString, and AppendMapEnd. Numbers of references count from the
// start of the body, so what stands before the map keeps its meaning (its strings
// may be changed, they have no numbers), and so does an entry that refers back to
// it. Only an entry that Refers must not follow one that was taken out and
// Defines: see Entry.
//
// Bytes come from anybody. A walk costs time in proportion to the bytes that are
// there, never to what they declare, and needs no memory but 4 bytes for each
// open container and class definition, both limited; texts that are no views of
// the body are about as long as what they come from. Nothing recurses. References
// are not followed, except where the attachments are one; their numbers are not
// checked, because only a receiver that builds the values needs what they name.
//
// The files in the order that data passes through them: tag.go (what a first
// byte means), decoder.go (the scalars), text.go (strings), skip.go (the walk),
// entry.go (maps), append.go and throwable.go (the way back).
package hessian

import "fmt"

// Dialect is one of the two grammars that call themselves Hessian 2. A body
// does not say which it is in; the protocol around it has to.
type Dialect uint8

const (
	// Final is the grammar of the specification and of Dubbo.
	Final Dialect = iota
	// Draft is the grammar of the draft of 2007, which SOFA's library speaks up
	// to version 3: objects are 'O' and 'o', typed things have 't', lists end in
	// 'z'. Its XML and remote objects are refused, as that library does.
	Draft
)

// Kind is what a value is.
type Kind uint8

// The kinds.
const (
	Invalid Kind = iota // the byte begins no value
	End                 // the body has no further value
	Null
	Bool
	Int
	Long
	Double
	Date
	String
	Binary
	List
	Map
	Object // with the class definitions that stand before it
	Ref    // to a list, map or object that came before
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	names := [...]string{"invalid", "end", "null", "bool", "int", "long", "double", "date", "string", "binary", "list", "map", "object", "ref"}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return names[k]
}

// Limits bound what a body may hold. No field is negative; zero stands for the
// default.
type Limits struct {
	Depth   int // containers within one another; default 512
	Classes int // class definitions in a body; default 1024
	Fields  int // fields of a class definition; default 4096
	Values  int // values in a body, with those inside others; default: no limit but its size
	Length  int // UTF-16 code units of a string, or bytes of a binary; default: no limit but its size
	Size    int // bytes of a body; default 2^31-1, which is also the most
}

// Error is a body that is not Hessian, or not within the limits. Every error of
// a Decoder is an *Error.
type Error struct {
	// Offset is where in the body reading ended, in bytes: at the value, length
	// or character that cannot be.
	Offset int
	// Rule is what it breaks; never a part of the body, which may be a secret.
	Rule string
	// Limit is the limit that was exceeded, 0 if none was.
	Limit int
}

// Error says where and what.
func (e *Error) Error() string {
	if e.Limit > 0 {
		return fmt.Sprintf("hessian: at byte %d: %s (the limit is %d)", e.Offset, e.Rule, e.Limit)
	}
	return fmt.Sprintf("hessian: at byte %d: %s", e.Offset, e.Rule)
}

// What bodies break. The numbers are the specification's.
const (
	ruleCut      = "the body ends within a value"
	ruleTag      = "no value begins with this byte (Hessian 2.0 serialization 6)"
	ruleEnd      = "a container ends where a value is expected (Hessian 2.0 serialization 4.8)"
	ruleText     = "an invalid character, or one of more than 16 bits (Hessian 2.0 serialization 4.12)"
	ruleChunk    = "a chunk is not followed by a chunk of the same type (Hessian 2.0 serialization 4.1, 4.12)"
	ruleInt      = "a count or number is not an int (Hessian 2.0 serialization 4.6, 4.10)"
	ruleNegative = "a count or number is negative"
	ruleCount    = "the body declares more values than it has bytes left"
	ruleClass    = "an object refers to an undefined class (Hessian 2.0 serialization 4.10)"
	ruleName     = "a class or field name is not a string (Hessian 2.0 serialization 4.10)"
	ruleType     = "a type is neither a string nor a number (Hessian 2.0 serialization 4.13)"
	ruleRef      = "a reference does not refer to an earlier map (Hessian 2.0 serialization 4.11)"

	ruleWantNumber = "the value is not an int or a long"
	ruleWantRange  = "the value does not fit an int"
	ruleWantDouble = "the value is not a double"
	ruleWantBool   = "the value is not a bool"
	ruleWantText   = "the value has no text"
	ruleWantMap    = "the value is not a map"

	limitDepth   = "containers are nested too deep"
	limitClasses = "too many class definitions"
	limitFields  = "too many fields in a class definition"
	limitValues  = "too many values"
	limitLength  = "a string or binary is too long"
	limitSize    = "the body is too long"
)
