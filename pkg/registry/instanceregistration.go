package registry

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// InstanceRegistration describes this process as an instance of a Dubbo 3 application, and the
// services that the revision of the application provides. Instances with the same revision have
// equal MetadataInfo. It is immutable.
type InstanceRegistration struct {
	// Instance is the process. ZooKeeper and Nacos store only Application, Host, Port and Metadata;
	// Metadata names the revision.
	Instance Instance
	Revision string
	// MetadataInfo describes what the revision provides, as JSON
	// (org.apache.dubbo.metadata.MetadataInfo).
	MetadataInfo []byte
	// Interfaces are the names by which consumers look up the application, without duplicates.
	Interfaces []string
}

// Address returns host:port, with brackets around an IPv6 host.
func (i *Instance) Address() string { return URL{Host: i.Host, Port: i.Port}.Address() }

// Name returns host:port without brackets around an IPv6 host, which is Dubbo's name for the
// instance in registries that name instances.
func (i *Instance) Name() string { return i.Host + ":" + strconv.Itoa(int(i.Port)) }

// InstanceRegistry is a registry in which applications register instances.
type InstanceRegistry interface {
	// RegisterInstance registers an instance until UnregisterInstance or Close: first the metadata
	// of its revision, then the mapping from its interfaces to the application, then the instance.
	// It returns when the registry has stored all of them. It replaces the previous registration of
	// the application at this address. A registry may retain the metadata of the previous revision
	// for a while, and then removes it if no instance has that revision. An error says why the
	// registry has not stored the registration yet, for example that ctx ended or that the registry
	// rejected it. The registration stays desired, and is retried until UnregisterInstance, unless
	// the registry can never store it. An UnmappedError means that the registry has stored
	// everything except some mappings.
	RegisterInstance(ctx context.Context, reg *InstanceRegistration) error
	// UnregisterInstance removes the registration of an application at an address; it ignores all
	// other fields of i. The registration is no longer desired from then on. An error says why the
	// registry may still have the instance, which ends with the session at the latest. The mapping
	// from interfaces to the application may stay, because other instances may need it.
	UnregisterInstance(ctx context.Context, i Instance) error
}

// UnmappedError reports that a registry has stored an instance, but no mapping for some of its
// interfaces, because their names are not valid there. Consumers do not find the application by
// these interfaces.
type UnmappedError struct {
	Application string
	Interfaces  []string
	Err         error // why the names are not valid
}

// Error names the first interfaces, and the number of the others.
func (e *UnmappedError) Error() string {
	const limit = 8
	names := strings.Join(e.Interfaces[:min(limit, len(e.Interfaces))], ", ")
	if rest := len(e.Interfaces) - limit; rest > 0 {
		names += fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Sprintf("consumers cannot find %s by %s: %v", e.Application, names, e.Err)
}

// Unwrap returns Err.
func (e *UnmappedError) Unwrap() error { return e.Err }

// separator separates the applications that provide an interface.
const separator = ","

// Applications parses the applications that provide an interface, as registries store them: "a,b".
// It skips empty names.
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

// MaxApplications bounds the applications that provide one interface: Weft subscribes to each,
// with its instances and rules.
const MaxApplications = 512

// FirstApplications returns the first MaxApplications applications of a mapping for which accept
// returns true, without duplicates.
func FirstApplications(mapping string, accept func(name string) bool) []string {
	var names []string
	for name := range applications(mapping) {
		if accept(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) == MaxApplications {
			break
		}
	}
	return names
}

// WithApplication returns mapping with application added. changed is false if mapping contains the
// application already.
func WithApplication(mapping, application string) (updated string, changed bool) {
	names := Applications(mapping)
	if slices.Contains(names, application) {
		return mapping, false
	}
	return strings.Join(append(names, application), separator), true
}

// Check returns an error if no registry can store the registration.
func (r *InstanceRegistration) Check() error {
	i := &r.Instance
	switch {
	case i.Application == "" || strings.Contains(i.Application, separator):
		return fmt.Errorf("%q is not a valid application name", truncate(i.Application))
	case i.Host == "" || i.Port == 0:
		return fmt.Errorf("the instance of %s has the invalid address %q", truncate(i.Application), truncate(i.Name()))
	case r.Revision == "":
		return fmt.Errorf("the instance of %s has no revision", truncate(i.Application))
	}
	return nil
}
