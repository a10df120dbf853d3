//go:build race || invariants

// Package invariants owns the switch for checks that are too dear for
// production: poisoned buffers, double releases, counts of what is outstanding.
// They are on in builds with -race or with the build tag "invariants".
package invariants

// Enabled is a constant, so that a disabled check costs nothing.
const Enabled = true
