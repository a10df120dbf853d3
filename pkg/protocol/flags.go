package protocol

import (
	"slices"
	"strings"
)

// Flags record events of an exchange in addition to its Reason, for %response_flags%. They have
// Envoy's short names.
type Flags uint8

// Flags of an exchange.
const (
	DelayInjected      Flags = 1 << iota // DI: the fault filter delayed the request
	RetryLimitExceeded                   // URX: the last attempt failed, and the retry policy allows no further attempt
	RetryOverflow                        // UO: the last attempt failed, and the cluster's circuit breaker allows no further retry
	ExternallyDenied                     // UAEX: the ext_authz service denied the request, or failed
	HealthCheckFailed                    // LH: the health check failed because of /healthcheck/fail of the admin port
)

// NamesWith returns the names of the flags and of r's flag. See Exchange.FlagNames for a proxy that
// sends the local replies of Envoy.
func (f Flags) NamesWith(r Reason) string { return f.namesWith(r.Spec().Flag) }

// namesWith returns the names of the flags and then reasonFlag, each once and in the order in which
// the events occur, or "-" if there are none. It allocates only if a flag is set.
func (f Flags) namesWith(reasonFlag string) string {
	none := ReasonNone.Spec().Flag
	if f == 0 {
		return reasonFlag
	}
	names := make([]string, 0, 4)
	for _, entry := range [...]struct {
		flag Flags
		name string
	}{{DelayInjected, "DI"}, {ExternallyDenied, "UAEX"}, {RetryLimitExceeded, "URX"}, {RetryOverflow, Overflow.Spec().Flag}, {HealthCheckFailed, "LH"}} {
		if f&entry.flag != 0 {
			names = append(names, entry.name)
		}
	}
	if reasonFlag != none && !slices.Contains(names, reasonFlag) {
		names = append(names, reasonFlag)
	}
	return strings.Join(names, ",")
}
