package config

import "time"

// Redirection is how connections come to a listener that their callers made to another
// address; "": they do not.
type Redirection string

// The ways.
const (
	ByRedirect Redirection = "redirect" // the kernel has rewritten their destination, and tells what it was
	ByTProxy   Redirection = "tproxy"   // the kernel has rewritten nothing: their destination is the socket's address
)

// ClusterOriginalDst is a cluster without hosts of its own: what comes for it goes on to
// where its caller was going.
const ClusterOriginalDst ClusterType = "ORIGINAL_DST"

// LBOriginalDst is the policy of ClusterOriginalDst, and of no other type.
const LBOriginalDst Policy = "LB_ORIGINAL_DST"

// OriginalDst is what a cluster of type ClusterOriginalDst goes by.
type OriginalDst struct {
	Header          string        // field that says ip:port in the connection's stead, in lower case; "": none is believed
	Port            uint16        // in the place of the destination's; 0: that
	CleanupInterval time.Duration // a destination that nobody wants for so long is forgotten; default 5 s
}

// DefaultCleanupInterval is OriginalDst's.
const DefaultCleanupInterval = 5 * time.Second
