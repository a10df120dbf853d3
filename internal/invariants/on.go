//go:build race || invariants

// Package invariants holds the switch for checks that are too expensive for production, such as
// poisoned buffers, double releases, and counts of outstanding buffers. Builds with -race or with
// the build tag "invariants" enable them.
package invariants

// Enabled is a constant, so that the compiler removes disabled checks.
const Enabled = true
