// Package registry is the language in which Weft and registries of Dubbo services
// speak of them: URLs, services, instances, and what a registry can do. A Registry is a
// folder below this one's parent; a Delivery is what they tell subscribers with. All other
// types are values.
package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"
)

// OpenFunc opens a session with a registry. It returns at once: connecting goes on behind,
// for as long as the Registry is open. An error is one of the options, and says which.
type OpenFunc func(Options) (Registry, error)

// Options say which registry is meant, and who asks.
type Options struct {
	// Address is where the registry is, in its type's own notation: for ZooKeeper
	// "host:port,host:port/chroot", for Nacos "host:port,host:port".
	Address            string
	Username, Password string      // "": nobody in particular
	TLS                *tls.Config // nil: plaintext
	// Root is the folder, or group of the registry, that everything is in; "": its
	// type's default, as "/dubbo" of ZooKeeper.
	Root string
	// SessionTimeout is how long the registry keeps what a process registered that it
	// does not hear of; 0: the type's default.
	SessionTimeout time.Duration
	// Changed is called after State has changed, on a goroutine of the Registry's; it
	// does not wait.
	Changed func()
	Log     *slog.Logger // says which registry it is of; nil: no log
}

// Registry is a session with one registry, for all services of that address. A session
// that is lost is replaced by another, and everything is registered and watched again:
// who uses a Registry says once what he wants. Its methods may be called at once.
type Registry interface {
	InstanceRegistry

	// Register makes a URL known, under its category, until Unregister or Close. It
	// returns once the registry has it, at once if it has it already. An error says why it
	// has it not yet: ctx ended, or the registry refused. The wish stays, and is tried
	// again, until Unregister.
	Register(ctx context.Context, u URL) error
	// Unregister takes back what Register said. The wish is gone at once; an error says
	// why the registry may still have the URL, which it forgets with the session then. Of a
	// URL that was replaced, by one of the same service and address with other parameters,
	// the new one is registered before the old one is taken back: where a registry has one
	// entry for both, it stays.
	Unregister(ctx context.Context, u URL) error
	// Subscribe follows what is said of a service until stop is called, which returns
	// once notify is not running and will not be called again. Each call of notify has
	// all that is known, is made when there is something new, and one after the other.
	// It is not called before the registry has answered for the first time, nor while
	// the registry is away: silence means that nothing is known to have changed.
	Subscribe(s Service, notify func(Snapshot)) (stop func())
	// Metadata returns what an application published of a revision of its services, as
	// JSON (org.apache.dubbo.metadata.MetadataInfo); ErrNoMetadata if there is none.
	Metadata(ctx context.Context, application, revision string) ([]byte, error)
	// State says how it stands with the session.
	State() State
	// Close ends the session, and with it all that was registered. It returns once that
	// is so, or ctx has ended, and no notify is running.
	Close(ctx context.Context)
}

// ErrNoMetadata is returned for a revision that nothing was published of.
var ErrNoMetadata = errors.New("the registry has no metadata of that revision")

// Snapshot is all that a registry says of a service at one time. It is not changed.
type Snapshot struct {
	Providers     []URL // enabled or not
	Configurators []URL // override://
	Routers       []URL // condition://, tag:// and others
	// Authoritative: whoever is missing has taken himself back, so that even an empty list means
	// what it says. It is false where a registry cannot tell that from a loss.
	Authoritative bool
	// Instances are of the applications that are said to provide the service
	// (Dubbo 3); whether they do is in their metadata.
	Instances []Instance
}

// Instance is a process of an application, as Dubbo 3 registers them.
type Instance struct {
	Application string
	ID          string // "" if the registry has none
	Host        string
	Port        uint16
	Weight      float64 // 1 is usual; 0: gets nothing
	Healthy     bool
	Enabled     bool
	Metadata    map[string]string // as "dubbo.metadata.revision"
}

// State is how it stands with a session.
type State struct {
	Connected bool
	Since     time.Time // of Connected
	Session   string    // the registry's name of it; "": none
	Sessions  int       // how many there have been
	LastError string    // of the connection; "": none so far
}
