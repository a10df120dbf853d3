//go:build !race && !invariants

// Package invariants holds the switch for checks that are too expensive for production: poisoned
// buffers, double releases, counts of outstanding buffers. Builds with -race or with the build tag
// "invariants" enable them.
package invariants

// Enabled is a constant, so that the compiler removes disabled checks.
const Enabled = false
