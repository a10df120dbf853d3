//go:build noxds

package inspect

// XDS is empty because this build has no xDS client.
type XDS struct{}
