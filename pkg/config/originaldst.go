package config

import "time"

// OriginalDstMode says how a listener receives connections that clients made to another address;
// "": it receives none.
type OriginalDstMode string

// The redirection modes.
const (
	OriginalDstRedirect OriginalDstMode = "redirect" // the kernel has rewritten the destination and reports the original one
	OriginalDstTProxy   OriginalDstMode = "tproxy"   // the kernel has rewritten nothing: the local address of the socket is the original destination
)

// ClusterOriginalDst is a cluster without configured hosts: it sends requests and connections to
// their original destination.
const ClusterOriginalDst ClusterType = "ORIGINAL_DST"

// LBOriginalDst is the only policy of ClusterOriginalDst; no other type supports it.
const LBOriginalDst LBPolicy = "LB_ORIGINAL_DST"

// OriginalDst configures a cluster of type ClusterOriginalDst.
type OriginalDst struct {
	Header          string        // header, in lower case, with an ip:port that replaces the original destination; "": none
	Port            uint16        // port that replaces the port of the destination; 0: none
	CleanupInterval time.Duration // an unused destination is removed after this time; default 5 s
}

// DefaultCleanupInterval is the default of OriginalDst.CleanupInterval.
const DefaultCleanupInterval = 5 * time.Second
