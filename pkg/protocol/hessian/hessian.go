// Package hessian reads and writes the part of Hessian 2 that routing, attachments and local
// replies need. It skips the values of a body without building objects, reads the few values that a
// proxy uses, and appends values. It does no I/O. Comments cite the sections of the public
// specification, Hessian 2.0 Serialization Protocol.
//
// A body is a sequence of values. Later values depend on earlier ones: objects on class
// definitions, types on earlier type names, references on earlier lists, maps and objects (5.
// Reference Maps). So a Decoder starts at the first byte of a body and reads it in order:
//
//	var d hessian.Decoder
//	d.Reset(body)
//	version, err := d.Text()   // strings borrow body if possible
//	path, err := d.Text()
//	…
//	err = d.Skip()             // an argument of any kind
//	head, err := d.Map()       // the attachments
//	var e hessian.Entry
//	for {
//		more, err := d.Entry(&e)
//		…                  // e.Key, e.Value; body[e.Start:e.End] is the entry
//	}
//
// To change the attachments, append a new map to body[:start]: head (or AppendMapStart), the
// unchanged entries byte for byte, the new entries with AppendString, and AppendMapEnd. Reference
// numbers count from the start of the body. So all values before the map stay valid (strings may
// change, because they have no numbers), and so do entries that refer to them. Only an entry with
// HasReference must not follow a removed entry with DefinesNumbers: see Entry.
//
// Bodies are untrusted. The time to read a body is proportional to its actual size, not to declared
// sizes. A Decoder allocates only 4 bytes for each open container and class definition, both of
// which are limited. Texts that do not borrow the body are about as long as their encoding. No
// function is recursive. References are not followed, unless the attachments are a reference.
// Reference numbers are not checked, because only receivers that build objects use them.
//
// The files in the order of the data flow: tag.go (meaning of first bytes), decoder.go (scalars),
// text.go (strings), skip.go (skipped values), entry.go (maps), append.go and throwable.go
// (writing).
package hessian

import "fmt"

// Dialect is one of the two grammars named Hessian 2. A body does not declare its dialect; the
// enclosing protocol determines it.
type Dialect uint8

const (
	// Final is the grammar of the specification and of Dubbo.
	Final Dialect = iota
	// Draft is the grammar of the 2007 draft, which the SOFA library uses up to version 3: objects
	// are 'O' and 'o', types have 't', lists end with 'z'. XML and remote objects are errors, as in
	// that library.
	Draft
)

// Kind is the kind of a value.
type Kind uint8

// Kinds of values.
const (
	Invalid Kind = iota // no value begins with this byte
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
	Object // object, with the class definitions before it
	Ref    // reference to an earlier list, map or object
)

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	names := [...]string{"invalid", "end", "null", "bool", "int", "long", "double", "date", "string", "binary", "list", "map", "object", "ref"}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return names[k]
}

// Limits limits the content of a body. No field may be negative; 0 means the default.
type Limits struct {
	Depth   int // maximum nesting of containers; default 512
	Classes int // class definitions in a body; default 1024
	Fields  int // fields of a class definition; default 4096
	Values  int // values in a body, including nested ones; default: limited only by the size of the body
	Length  int // UTF-16 code units of a string, or bytes of a binary; default: limited only by the size of the body
	Size    int // bytes of a body; default and maximum 2^31-1
}

// Error reports a body that is not Hessian or exceeds a limit. Every error of a Decoder is an
// *Error.
type Error struct {
	// Offset is the offset in the body at which the error was found.
	Offset int
	// Rule is the violated rule. It never contains a part of the body, which may be secret.
	Rule string
	// Limit is the limit that was exceeded, or 0 for other rules.
	Limit int
}

// Error returns the offset and the rule.
func (e *Error) Error() string {
	if e.Limit > 0 {
		return fmt.Sprintf("hessian: at byte %d: %s (the limit is %d)", e.Offset, e.Rule, e.Limit)
	}
	return fmt.Sprintf("hessian: at byte %d: %s", e.Offset, e.Rule)
}

// Violated rules. The section numbers refer to the specification.
const (
	ruleTruncated = "the body ends within a value"
	ruleTag       = "no value begins with this byte (Hessian 2.0 serialization 6)"
	ruleEnd       = "a container ends where a value is expected (Hessian 2.0 serialization 4.8)"
	ruleText      = "an invalid character, or one of more than 16 bits (Hessian 2.0 serialization 4.12)"
	ruleChunk     = "a chunk is not followed by a chunk of the same type (Hessian 2.0 serialization 4.1, 4.12)"
	ruleInt       = "a count or number is not an int (Hessian 2.0 serialization 4.6, 4.10)"
	ruleNegative  = "a count or number is negative"
	ruleCount     = "the body declares more values than it has bytes left"
	ruleClass     = "an object refers to an undefined class (Hessian 2.0 serialization 4.10)"
	ruleName      = "a class or field name is not a string (Hessian 2.0 serialization 4.10)"
	ruleType      = "a type is neither a string nor a number (Hessian 2.0 serialization 4.13)"
	ruleRef       = "a reference does not refer to an earlier map (Hessian 2.0 serialization 4.11)"

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
