// Package configs contains the example configurations. The binary embeds quickstart.json.
package configs

import _ "embed" // for the quick start

// Quickstart is quickstart.json: the configuration of "weft start" without a file.
//
//go:embed quickstart.json
var Quickstart []byte
