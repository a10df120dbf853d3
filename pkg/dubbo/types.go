package dubbo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Options configure a Discovery. All fields except TLS and CheckOnly are required.
type Options struct {
	// Registries are the supported registries, by type.
	Registries map[string]registry.OpenFunc
	Config     config.DubboRegistry
	// Apply activates a change, or returns why it cannot. Calls do not overlap. After an error,
	// Discovery applies the change again, merged with later changes.
	Apply func(ctx context.Context, c layers.Change) error
	// TLS creates the TLS configuration for connections to a registry. If it is nil, New rejects a
	// registry with TLS settings.
	TLS func(*config.TLS) (*tls.Config, error)
	// CheckOnly makes New leave all files as they are. The caller does not call Run.
	CheckOnly bool
	Log       *slog.Logger
}

// Request is a request of the local application to publish a service, to subscribe to it, or to
// revert either request. Its JSON form is that of the HTTP API.
type Request struct {
	Registry Registry `json:"registry"`
	Service  Service  `json:"service"`
}

// Registry identifies a registry. If Address is empty, it is the first configured registry of the
// type, or of any type if Type is empty, too. If both are empty and no registry is configured, it
// is the registry in memory.
type Registry struct {
	Type     string `json:"type"` // such as "zookeeper"; case-insensitive
	Address  string `json:"addr"` // in the notation of the type; see registry.Options
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// Service identifies a service.
type Service struct {
	Interface string   `json:"interface"`
	Methods   []string `json:"methods,omitempty"`
	// Group and Version select one of several services. A subscription may select several groups,
	// "a,b", or any group or version, "*". In a subscription, "" means that each call selects the
	// group or version.
	Group   string `json:"group,omitempty"`
	Version string `json:"version,omitempty"`
	Name    string `json:"name,omitempty"` // name of the application; "": the configured name
	// Port is the port at which the application itself listens. Weft publishes the configured
	// ServerPort, or Port if ServerPort is 0.
	Port string `json:"port,omitempty"`
	// Parameters are added to the URL: for a provider, for example "weight" or "timeout"; for a
	// consumer, "loadbalance" or "sayHello.timeout".
	Parameters map[string]string `json:"parameters,omitempty"`
}

// FieldError reports an invalid field of a request or of the configuration.
type FieldError struct {
	Field  string // JSON path, such as "service.interface"
	Reason string
}

// Error returns the field and the reason.
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// ErrPending means that a request is accepted but not performed yet; Weft keeps trying.
var ErrPending = errors.New("pending: Weft performs the request when the registry is available")

// ErrNotFound means that the service is not published, or that there is no subscription to it.
var ErrNotFound = errors.New("not published or subscribed")

// Status is the state of a Discovery. Its lists are sorted.
type Status struct {
	Host       string            `json:"host"` // host of the published providers
	Port       uint16            `json:"port"`
	Registries []RegistryStatus  `json:"registries"`
	Published  []PublishedStatus `json:"published"`
	Subscribed []ReferenceStatus `json:"subscribed"`
	LastError  string            `json:"last_error,omitempty"` // of one of the services that could not be applied; "": all are active
}

// RegistryStatus is the state of the session with a registry.
type RegistryStatus struct {
	Type      string    `json:"type"`
	Address   string    `json:"address"`
	Username  string    `json:"username,omitempty"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"` // when Connected last changed
	Session   string    `json:"session,omitempty"`
	Sessions  int       `json:"sessions"` // number of sessions so far
	LastError string    `json:"last_error,omitempty"`
}

// PublishedStatus is a service that this application provides.
type PublishedStatus struct {
	Key        string    `json:"key"` // group/interface:version
	Registry   string    `json:"registry"`
	Interface  string    `json:"interface"`
	Group      string    `json:"group,omitempty"`
	Version    string    `json:"version,omitempty"`
	Methods    []string  `json:"methods,omitempty"`
	URL        string    `json:"url"`                     // without secrets
	Mode       string    `json:"register_mode,omitempty"` // "": register only the URL
	Registered bool      `json:"registered"`              // the registry has the service, and is connected
	Since      time.Time `json:"since"`                   // when the application requested the publication
	Error      string    `json:"error,omitempty"`
}

// ReferenceStatus is a service that the local consumer calls.
type ReferenceStatus struct {
	Key         string               `json:"key"` // group/interface:version, which is the name of the cluster
	Interface   string               `json:"interface"`
	Group       string               `json:"group,omitempty"`
	Version     string               `json:"version,omitempty"`
	Methods     []string             `json:"methods,omitempty"`
	LoadBalance string               `json:"load_balance"`
	Timeout     string               `json:"timeout"`
	Retries     int                  `json:"retries"`
	Sources     []SubscriptionStatus `json:"sources"`
	Providers   []Provider           `json:"providers"`
	Warnings    []string             `json:"warnings,omitempty"`
}

// SubscriptionStatus is the subscription to a service at one registry.
type SubscriptionStatus struct {
	Registry   string    `json:"registry"`
	Registered bool      `json:"registered"`           // the registry has the consumer's URL, and is connected
	Since      time.Time `json:"since"`                // when the application subscribed
	Received   bool      `json:"received"`             // Weft has a snapshot of the service
	ReceivedAt time.Time `json:"received_at,omitzero"` // when Weft began to use that snapshot
	Age        string    `json:"age,omitempty"`        // time since ReceivedAt
	// Restored means that Weft uses a snapshot of the state file, or one that arrived with other
	// credentials, because the registry has not sent one since.
	Restored bool `json:"restored,omitempty"`
	// EmptySince is when the registry began to report no provider; zero: empty protection is not in
	// use.
	EmptySince time.Time `json:"empty_since,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// Provider is an address that provides a service. Its fields describe the group and version that
// match the reference best, preferably one that gets calls.
type Provider struct {
	Address      string `json:"address"`
	Protocol     string `json:"protocol"`
	Weight       int    `json:"weight"` // in Dubbo's units: 100 is usual
	Application  string `json:"application,omitempty"`
	Group        string `json:"group,omitempty"`
	Version      string `json:"version,omitempty"`
	Registry     string `json:"registry"`                // the registry whose report Weft uses
	UnusedReason string `json:"unused_reason,omitempty"` // why the provider gets no calls; "": it gets some
	Retained     bool   `json:"retained,omitempty"`      // in use although the registry no longer reports it
	// Variants are the other groups and versions at the same address.
	Variants []Provider `json:"variants,omitempty"`
}

// Totals are numbers for gauges and counters.
type Totals struct {
	Registries, ConnectedRegistries int
	Published, RegisteredServices   int // published services, and the published services that the registries have
	Subscribed, Providers           int // subscribed services, and the addresses in use
	WithoutSnapshot                 int // subscribed services without a snapshot from any registry
	RestoredServices                int // subscribed services with a SubscriptionStatus.Restored
	EmptyProtected                  int // services that use retained providers, because the registry reports none
	// OldestSnapshot is the age of the oldest snapshot in use from a disconnected registry; 0:
	// there is none.
	OldestSnapshot    time.Duration
	Applied           uint64 // applied changes
	ApplyFailures     uint64 // failed attempts to apply a change
	StateFileFailures uint64 // failed attempts to write the state file
}
