// Package document reads configuration documents. It parses JSON, JSON with comments, and YAML into
// a tree with the position of each value, and decodes the tree into structs by their field tags. It
// generates everything else from the same tags: diagnostics, redaction, a JSON Schema and the
// tables of docs/reference.
//
// A document is processed in steps. Parse (json.go, yaml.go) builds a tree of nodes and expands
// ${ENV} (env.go). Build (build.go) builds the same tree from a Value, which a program fills.
// Decoder.Decode (decode.go, scalar.go) fills structs. Report (report.go) collects every problem of
// these steps. Parsing continues after a problem unless the rest cannot be read, for example after
// a bracket or string that is not closed.
//
// # Field tags
//
// Every exported field of a configuration struct has a key tag, or is an embedded struct whose keys
// belong to the surrounding struct.
//
//	key:"name,alias"       the key; aliases are accepted as well. Keys match
//	                       case-insensitively. "." captures the object itself (the
//	                       field is a Node); with "-" the field has no key.
//	doc:"…"                describes the key. The tests require it.
//	unit:"…"               the unit of a number. With "bytes" the field also accepts
//	                       "64KB".
//	default:"…"            the value of an absent key, as text: set by Decode. A
//	                       field without a default tag keeps its value.
//	example:"…"            a value as written in a JSON file: 100, "10s", [1,2].
//	enum:"a|b"             the accepted strings, in any case; the field gets the
//	                       spelling of the tag. On an integer field, words for
//	                       numbers: enum:"auto=0".
//	min:"1" max:"128"      inclusive bounds of a number or a duration. A number
//	                       without them may have any value of its Go type; a
//	                       duration without min cannot be negative.
//	oneof:"301|302"        the accepted numbers of an integer field.
//	required:"true"        absence is an error.
//	allowstring:"true"     an integer may be written as a string: "4".
//	accept:"bool|string"   the kinds that a Node field accepts.
//	variant:"name"         for a Node field: its content depends on the sibling
//	                       member "type" or "name"; see Variants.
//	object:"name"          for a Node field: the keys of its object form are those of
//	                       the prototype in Variants["name"]; for the tables and
//	                       the JSON Schema only.
//	choice:"name"          for a string: one of the names in Variants["name"]; see
//	                       Key.VariantNames.
//	wrapperkey:"name"      for a list: {"name": […]} is accepted as well.
//	secret:"true"          never printed: see Redact.
//	refers:"cluster"       the value is the name of a cluster; of a list, each element;
//	                       of a map, each key. With "cluster,warn", an unknown cluster
//	                       is a warning, not an error; see Decoder.OnReference.
//	emptyisabsent:"true"   for an object or an enum: "" means absent, as in older files.
//	ignored:"why"          the key is accepted for old files and ignored. Decode warns
//	                       with this reason, or without one if the tag is "true".
//	unsupported:"feature"  the key is not supported yet: Decode reports an error with
//	                       this name unless the value disables the feature (see
//	                       Node.IsDisabled).
//	since:"0.2"            the version that introduced the key, for the tables.
//
// Field types: string, bool, integers, floats, time.Duration (written as Go durations), structs,
// pointers to any of these (nil: absent), slices, Streams, maps with string keys, Node (the raw
// value) and any (map[string]any, []any, string, bool, int64, float64). Named types of these kinds
// work as well. null is the same as an absent key. If a struct or its pointer has a method
// Validate() error, Decode calls it after it has filled the struct from a present object without an
// error; the error of Validate may be a KeyError, which points at a key.
//
// A method Warnings() []KeyError reports valid settings that are probably mistakes; Decode calls it
// after Validate.
//
// A struct with a method ProtoJSON() is also accepted in the JSON form of a protobuf message: its
// keys, and those of the structs in it, may also be written in lowerCamelCase.
//
// # Cost
//
// JSON is read in a single pass by a custom parser: hujson.Parse takes 400 ms and 256 MB (175 MB of
// them retained) for a file of 14.7 MB with 10,000 clusters, 20,000 hosts and 50,000 routes, before
// decoding. The tree of this package takes 28 bytes per value. Line numbers and key paths are
// computed when a diagnostic needs them, and only one struct of a Stream exists at a time. The
// tests verify with hujson which documents are accepted.
//
// The package is pure: it uses no files, environment, clock or locks. A tree and its Report are not
// safe for concurrent use.
package document
