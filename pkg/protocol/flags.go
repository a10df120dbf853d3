package protocol

import "strings"

// Flags say what happened to an exchange in addition to its Reason, for %response_flags%.
// They have Envoy's short names.
type Flags uint8

// The flags.
const (
	DelayInjected      Flags = 1 << iota // DI: the fault filter made it wait
	RetryLimitExceeded                   // URX: the last try failed, and the policy allows no more
	ExternallyDenied                     // UAEX: the service that ext_authz asks refused it, or failed
)

// With returns f's names and that of a reason, in the order in which they come to be, "-"
// for neither. It allocates only if there are several.
func (f Flags) With(r Reason) string {
	own, none := r.Traits().Flag, ReasonNone.Traits().Flag
	if f == 0 {
		return own
	}
	names := make([]string, 0, 4)
	for _, one := range [...]struct {
		flag Flags
		name string
	}{{DelayInjected, "DI"}, {ExternallyDenied, "UAEX"}, {RetryLimitExceeded, "URX"}} {
		if f&one.flag != 0 {
			names = append(names, one.name)
		}
	}
	if own != none {
		names = append(names, own)
	}
	return strings.Join(names, ",")
}
