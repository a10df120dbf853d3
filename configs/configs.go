// Package configs owns the example configurations; the binary embeds the one of the quick start.
package configs

import _ "embed" // for the quick start

// Quickstart is quickstart.json: the configuration of "weft start" without a file.
//
//go:embed quickstart.json
var Quickstart []byte
