//go:build noxds

package inspect

// XDS has no values in this build.
type XDS struct{}
