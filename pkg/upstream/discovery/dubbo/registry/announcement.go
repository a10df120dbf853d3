package registry

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// InstanceRegistration is what a process says of itself as Dubbo 3 does: that it is an instance of
// an application, and what the application's revision provides, which all its instances
// share that provide the same. It is not changed.
type InstanceRegistration struct {
	// Instance is the process. What counts are Application, Host, Port and Metadata, which
	// names the revision.
	Instance Instance
	Revision string
	// MetadataInfo is what the revision provides, as JSON
	// (org.apache.dubbo.metadata.MetadataInfo).
	MetadataInfo []byte
	// Interfaces are what consumers look the application up by, each once.
	Interfaces []string
}

// Address returns host:port; IPv6 in brackets.
func (i *Instance) Address() string { return URL{Host: i.Host, Port: i.Port}.Address() }

// Name returns what Dubbo calls the instance in registries that have a name for it:
// host:port, IPv6 without brackets.
func (i *Instance) Name() string { return i.Host + ":" + strconv.Itoa(int(i.Port)) }

// InstanceRegistry is a registry in which applications make themselves known.
type InstanceRegistry interface {
	// RegisterInstance makes an instance known until Retract or Close: first what its revision
	// provides, then which application has its interfaces, then the instance. It returns
	// once the registry has it all, at once if it has it already. What was announced before
	// of the application at that address is replaced; what its revision provided stays for
	// a while, and is removed if no instance has that revision then. An error says why the
	// registry has it not yet: ctx ended, or the registry refused. The wish stays, and is
	// tried again, until Retract. An UnmappedError says that the registry has all that it
	// can have.
	RegisterInstance(ctx context.Context, a *InstanceRegistration) error
	// UnregisterInstance takes back what was announced of an application at an address, whatever else
	// i says. The wish is gone at once; an error says why the registry may still have the
	// instance, which it forgets with the session then. That the application has its
	// interfaces stays known: others may be instances of it.
	UnregisterInstance(ctx context.Context, i Instance) error
}

// UnmappedError is of an instance that a registry has, and of interfaces that it cannot have
// as names: consumers do not find the application by them.
type UnmappedError struct {
	Application string
	Interfaces  []string
	Err         error // why
}

// Error says which interfaces, of many the first.
func (e *UnmappedError) Error() string {
	const most = 8
	names := strings.Join(e.Interfaces[:min(most, len(e.Interfaces))], ", ")
	if more := len(e.Interfaces) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s is not found by %s: %v", e.Application, names, e.Err)
}

// Unwrap returns why.
func (e *UnmappedError) Unwrap() error { return e.Err }

// separator is between the applications that provide an interface.
const separator = ","

// Applications reads which applications provide an interface, as registries have it:
// "a,b". Names that are empty are none.
func Applications(mapping string) []string { return slices.Collect(applications(mapping)) }

func applications(mapping string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range strings.SplitSeq(mapping, separator) {
			if name = strings.TrimSpace(name); name != "" && !yield(name) {
				return
			}
		}
	}
}

// MostApplications bounds who provides an interface for those who call it: each is followed,
// as are its instances and rules.
const MostApplications = 512

// FirstApplications returns which applications of a mapping are followed, each once: those
// that can be, and of too many the first.
func FirstApplications(mapping string, canBe func(name string) bool) []string {
	var names []string
	for name := range applications(mapping) {
		if canBe(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) == MostApplications {
			break
		}
	}
	return names
}

// WithApplication returns a mapping that has an application as well; false: it has it
// already.
func WithApplication(mapping, application string) (with string, changed bool) {
	names := Applications(mapping)
	if slices.Contains(names, application) {
		return mapping, false
	}
	return strings.Join(append(names, application), separator), true
}

// Check says what is wrong with an announcement that no registry could hold; nil: nothing.
func (a *InstanceRegistration) Check() error {
	i := &a.Instance
	switch {
	case i.Application == "" || strings.Contains(i.Application, separator):
		return fmt.Errorf("%q cannot be the name of an application", clip(i.Application))
	case i.Host == "" || i.Port == 0:
		return fmt.Errorf("the instance of %s has the address %q", clip(i.Application), clip(i.Name()))
	case a.Revision == "":
		return fmt.Errorf("the instance of %s has no revision", clip(i.Application))
	}
	return nil
}
