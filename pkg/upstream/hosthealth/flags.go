package hosthealth

import (
	"fmt"
	"slices"
	"strings"
)

// Flags are the reasons why a host is down, as bits; 0: it is up. The end of one reason does not
// bring the host up while another lasts. As text and in JSON they are the names of the reasons:
// "unreachable, ejected".
type Flags uint32

// The flags.
const (
	Unreachable       Flags = 1 << iota // connecting failed; ends with a successful connect or a response
	FailedCheck                         // active checks failed; ends when they pass or end
	Ejected                             // outlier detection ejected the host; ends with the ejection
	ReportedUnhealthy                   // discovery reports config.HostUnhealthy; ends when it reports another state
	ReportedDraining                    // discovery reports config.HostDraining; ends when it reports another state
)

// flagNames returns the names of the flags, by bit. The admin API shows them.
func flagNames() [5]string {
	return [...]string{"unreachable", "failing checks", "ejected", "reported unhealthy", "reported draining"}
}

const flagSeparator = ", "

// Has reports whether f has one of the flags.
func (f Flags) Has(flags Flags) bool { return f&flags != 0 }

// String returns the names of the flags, or "" if there are none.
func (f Flags) String() string {
	var names []string
	for i, name := range flagNames() {
		if f.Has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, flagSeparator)
}

// MarshalText implements encoding.TextMarshaler.
func (f Flags) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It returns an error for an unknown name.
func (f *Flags) UnmarshalText(text []byte) error {
	*f = 0
	if len(text) == 0 {
		return nil
	}
	names := flagNames()
	for name := range strings.SplitSeq(string(text), flagSeparator) {
		i := slices.Index(names[:], name)
		if i < 0 {
			return fmt.Errorf("%q is not a valid health flag: expected one of %q", name, names)
		}
		*f |= 1 << i
	}
	return nil
}
