// Package document owns the reading of configuration documents: a tree that
// knows where each value was written, out of JSON, JSON with comments, and
// YAML; the decoding of that tree into structs by their field tags; and
// everything else that follows from the same tags: diagnostics, redaction, a
// JSON Schema and the tables of docs/configuration.md.
//
// The way of a document: Parse (json.go, yaml.go) makes a tree of nodes and
// expands ${ENV} (env.go); Decoder.Decode (decode.go, scalar.go) fills structs;
// Report (report.go) collects every problem of both; nothing stops the reading
// but a document whose brackets do not close.
//
// # Field tags
//
// Every exported field of a configuration struct has a key tag, or is an
// embedded struct whose keys are those of the struct around it.
//
//	key:"name,alias"    the key; aliases are accepted as well. Keys match
//	                    case-insensitively. "." captures the object itself (the
//	                    field is a Node), "-" is no key.
//	doc:"…"             one sentence: what it means. Required by the tests.
//	unit:"…"            of a number. "bytes" makes the field accept "64KB" too.
//	default:"…"         the value of an absent key, as text: set by Decode. A
//	                    field without it keeps what it held.
//	example:"…"         a value as it stands in a JSON file: 100, "10s", [1,2].
//	enum:"a|b"          the strings that are accepted, in any case; the field
//	                    gets the spelling of the tag. On an integer field the
//	                    words that stand for numbers: enum:"auto=0".
//	min:"1" max:"128"   bounds of a number or a duration, both included.
//	                    Numbers have no bounds without them but those of their
//	                    type; durations are never negative.
//	required:"true"     absence is an error.
//	numeral:"true"      an integer may be written as a string: "4".
//	accept:"bool|string" of a Node field: the kinds that it takes.
//	variant:"name"      of a Node field: what it holds depends on the member
//	                    "type" or "name" beside it; see Variants.
//	secret:"true"       never printed: see Redact.
//	blank:"true"        of an object: "" stands for its absence, as in older files
//	noeffect:"why"      accepted for old files, means nothing: a warning that
//	                    gives the reason; "true" for none.
//	unbuilt:"name"      known, and not supported yet: an error that refuses it
//	                    by that name unless the value says that it is off (see
//	                    Node.Off).
//	since:"0.2"         the version that brought it, for the tables.
//
// Field types: string, bool, integers, floats, time.Duration (written as Go
// durations), structs, pointers to any of these (nil: absent), slices, Streams,
// maps with string keys, Node (the raw value) and any (map[string]any, []any,
// string, bool, int64, float64). Named types of these kinds work as well. null
// is the same as an absent key. A struct with a method Validate() error, on
// itself or its pointer, is asked once it was filled without an error; the
// error may be a KeyError, which points at a key.
//
// # Cost
//
// JSON is read in a single pass of our own: hujson.Parse takes 400 ms and
// 256 MB (175 MB of them stay) for a file of 14.7 MB with 10,000 clusters,
// 20,000 hosts and 50,000 routes, before anything is decoded. This package's
// tree takes 28 bytes a value; line numbers and key paths are worked out when a
// diagnostic asks for them, and a Stream's structs live one at a time. The tests
// use hujson as the independent judge of what is accepted.
//
// The package is pure: no files, no environment, no clock, no locks. A tree and
// its Report belong to one goroutine.
package document
