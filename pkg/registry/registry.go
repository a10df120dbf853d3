// Package registry defines the model that Weft and the registries of Dubbo services share: URLs,
// services, instances, and the interface of a registry. Each type of registry is a package below
// this one. A Notifier delivers snapshots to subscribers, and a StateTracker keeps the state of a
// session.
package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"
)

// OpenFunc opens a session with a registry. It returns immediately; connecting continues in the
// background while the Registry is open. An error reports an invalid option or an exceeded limit.
type OpenFunc func(Options) (Registry, error)

// Options selects a registry and configures the session.
type Options struct {
	// Address is the address of the registry, in the notation of its type: for ZooKeeper
	// "host:port,host:port/chroot", for Nacos "host:port,host:port/context".
	Address            string
	Username, Password string      // "": no authentication
	TLS                *tls.Config // nil: plaintext
	// Root is where the registry stores registrations: for ZooKeeper a znode, such as "/dubbo"; for
	// Nacos "namespace/group". "": the default of the type.
	Root string
	// SessionTimeout is how long the registry keeps the registrations of a process that sends no
	// heartbeats; 0: the default of the type.
	SessionTimeout time.Duration
	// OnChange is called after State has changed, on any goroutine. It must not block.
	OnChange func()
	Log      *slog.Logger // a logger whose attributes identify the registry; nil: no log
}

// Registry is a session with one registry, for all services at that address. It replaces a lost
// session, and repeats all registrations and subscriptions, so that the caller registers and
// subscribes only once. Its methods are safe for concurrent use.
type Registry interface {
	InstanceRegistry

	// Register registers a URL, in its category, until Unregister or Close. It returns when the
	// registry has stored the URL. An error says why the registry has not stored it yet, for
	// example that ctx ended or that the registry rejected it. The URL stays desired: the Registry
	// retries the registration until Unregister, unless the registry can never store the URL.
	Register(ctx context.Context, u URL) error
	// Unregister reverts Register: the URL is no longer desired. An error says why the registry may
	// still have the URL, which ends with the session at the latest. To change the parameters of a
	// URL, the caller registers the new URL before it unregisters the old one. A registry that
	// stores both as the same entry keeps the entry.
	Unregister(ctx context.Context, u URL) error
	// Subscribe subscribes to a service until the caller calls stop. stop returns when notify is
	// not running and will not be called again. The Registry calls notify when the service has
	// changed, with a complete snapshot, one call at a time. It does not call notify before the
	// first response of the registry, or while the registry is unavailable.
	Subscribe(s Service, notify func(Snapshot)) (stop func())
	// Metadata returns the metadata that an application published for a revision, as JSON
	// (org.apache.dubbo.metadata.MetadataInfo), or ErrNoMetadata if there is none.
	Metadata(ctx context.Context, application, revision string) ([]byte, error)
	// State returns the state of the session.
	State() State
	// Close ends the session, and with it all registrations. It returns when the session has ended
	// and no notify is running. When ctx ends, it stops waiting for the registry.
	Close(ctx context.Context)
}

// ErrNoMetadata is the error for a revision without published metadata.
var ErrNoMetadata = errors.New("the registry has no metadata of that revision")

// Snapshot holds all entries of a service that a registry reports at one time. It is immutable.
type Snapshot struct {
	Providers     []URL // enabled or not
	Configurators []URL // override://
	Routers       []URL // condition://, tag:// and others
	// Authoritative reports that missing providers have unregistered themselves, so that even an
	// empty list is reliable. It is false if the registry cannot distinguish an unregistered
	// provider from a lost one.
	Authoritative bool
	// Instances holds the instances of the applications that are mapped to the service (Dubbo 3).
	// The metadata of an instance says whether the instance provides the service.
	Instances []Instance
}

// Instance is a process of an application, as Dubbo 3 registers it.
type Instance struct {
	Application string
	ID          string // "" if the registry has none
	Host        string
	Port        uint16
	Weight      float64 // default 1; 0: the instance gets no calls
	Healthy     bool
	Enabled     bool
	Metadata    map[string]string // for example "dubbo.metadata.revision"
}

// State is the state of a session.
type State struct {
	Connected    bool
	Since        time.Time // when Connected last changed
	SessionID    string    // the ID that the registry gave the session; "": none
	SessionCount int       // number of sessions so far
	LastError    string    // last error of the session or of a request; "": none so far
}
