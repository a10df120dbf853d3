// Package configs owns the example configurations; the quick start is part of
// the binary.
package configs

import _ "embed" // for the quick start

// Quickstart is quickstart.json: what "weft start" runs without a file.
//
//go:embed quickstart.json
var Quickstart []byte
