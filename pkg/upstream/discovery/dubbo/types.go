package dubbo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// Options are what a Hub needs. All fields but TLS are required.
type Options struct {
	// Registries are what exists, by the type that requests name.
	Registries map[string]registry.OpenFunc
	Config     config.DubboRegistry
	// Apply puts a change in force, or says why it cannot be. One call ends before the
	// next. After an error the same is applied again, with what has changed since.
	Apply func(ctx context.Context, c Change) error
	// TLS makes what connections to a registry are secured with; nil: a registry with TLS
	// settings is an error.
	TLS func(*config.TLS) (*tls.Config, error)
	Log *slog.Logger
}

// Change is what is different since the change before. What it points to is not changed
// afterwards, by either side.
type Change struct {
	Clusters []*config.Cluster  // new or changed, in the order of their names
	Removed  []string           // names of clusters, in order
	Routes   *config.RouteTable // the whole table config.DubboRouteTable; nil: it is as before
}

// Request is what the local application asks for: a service to be published, found, or
// neither any longer. Its JSON form is that of the HTTP API.
type Request struct {
	Registry Registry `json:"registry"`
	Service  Service  `json:"service"`
}

// Registry says which registry is meant. With Type and Address empty it is the first of
// the configuration's, else the one in memory.
type Registry struct {
	Type     string `json:"type"` // in lower case
	Address  string `json:"addr"` // in the type's notation; see registry.Options
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// Service says which service is meant.
type Service struct {
	Interface string   `json:"interface"`
	Methods   []string `json:"methods,omitempty"`
	// Group and Version are which of several. Of a subscription there may be several groups,
	// "a,b", or all, "*", and all versions; "" is what calls name, or who names none.
	Group   string `json:"group,omitempty"`
	Version string `json:"version,omitempty"`
	Name    string `json:"name,omitempty"` // of the application; "": the configuration's
	// Port is where the application itself listens. What is published is the
	// configuration's ServerPort, and Port only if that is 0.
	Port string `json:"port,omitempty"`
	// Parameters are added to the URL: of a provider as "weight" or "timeout", of a
	// consumer as "loadbalance" or "sayHello.timeout".
	Parameters map[string]string `json:"parameters,omitempty"`
}

// FieldError is a mistake in a request.
type FieldError struct {
	Field  string // its path in JSON, as "service.interface"
	Reason string
}

// Error says what is wrong, and where.
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// ErrPending is in the errors of what has not been done yet and will be.
var ErrPending = errors.New("kept: it is made when the registry is there")

// ErrNotFound is in the errors of what is to be undone and was never asked for.
var ErrNotFound = errors.New("not known here")

// Status is everything that a Hub knows, at one time. Lists are in the order of names.
type Status struct {
	Host       string            `json:"host"` // what providers are published with
	Port       uint16            `json:"port"`
	Registries []RegistryStatus  `json:"registries"`
	Published  []PublishedStatus `json:"published"`
	Subscribed []ReferenceStatus `json:"subscribed"`
	LastError  string            `json:"last_error,omitempty"` // why the last change could not be applied; "": it was
}

// RegistryStatus is how it stands with a registry.
type RegistryStatus struct {
	Type      string    `json:"type"`
	Address   string    `json:"address"`
	Username  string    `json:"username,omitempty"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"` // of Connected
	Session   string    `json:"session,omitempty"`
	Sessions  int       `json:"sessions"`
	LastError string    `json:"last_error,omitempty"`
}

// PublishedStatus is a service that is provided here.
type PublishedStatus struct {
	Key        string    `json:"key"` // group/interface:version
	Registry   string    `json:"registry"`
	Interface  string    `json:"interface"`
	Group      string    `json:"group,omitempty"`
	Version    string    `json:"version,omitempty"`
	Methods    []string  `json:"methods,omitempty"`
	URL        string    `json:"url"`                     // without secrets
	Mode       string    `json:"register_mode,omitempty"` // "": by the URL alone
	Registered bool      `json:"registered"`              // the registry has been told
	Since      time.Time `json:"since"`                   // when it was asked for
	Error      string    `json:"error,omitempty"`
}

// ReferenceStatus is a service that is called from here.
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

// SubscriptionStatus is what one registry says of a service that is called from here.
type SubscriptionStatus struct {
	Registry   string    `json:"registry"`
	Registered bool      `json:"registered"`      // as a consumer
	Since      time.Time `json:"since"`           // when it was asked for
	Received   bool      `json:"known"`           // there is a list
	ReceivedAt time.Time `json:"listed,omitzero"` // when the registry said what is used
	Age        string    `json:"age,omitempty"`
	// Restored: the list is of the process before this one, and the registry has not
	// answered yet.
	Restored bool `json:"restored,omitempty"`
	// EmptySince is when the registry began to say that there is nobody, which is not
	// believed yet; zero: it does not.
	EmptySince time.Time `json:"emptied,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// Provider is an address that provides a service: the group and version that are nearest
// to what was asked for, of those that get calls.
type Provider struct {
	Address      string `json:"address"`
	Protocol     string `json:"protocol"`
	Weight       int    `json:"weight"` // as Dubbo counts: 100 is usual
	Application  string `json:"application,omitempty"`
	Group        string `json:"group,omitempty"`
	Version      string `json:"version,omitempty"`
	Registry     string `json:"registry"`         // the first that has it
	UnusedReason string `json:"unused,omitempty"` // why it gets no calls; "": it gets some
	Retained     bool   `json:"kept,omitempty"`   // the registry does not name it any more, which may be a loss
	// Variants are the other groups and versions that it provides at the same address.
	Variants []Provider `json:"beside,omitempty"`
}

// Totals are numbers for gauges and counters.
type Totals struct {
	Registries, Connected int
	Published, Registered int // services that are to be published, and those that are
	Subscribed, Providers int // services that are called, and the addresses in use
	Unanswered            int // services of which no registry has said anything yet
	Restored              int // services whose list is of before the start, or the session
	EmptyProtected        int // services whose list has become empty, which is not believed yet
	// OldestSnapshot is how long ago the registry said what is used of a service, of the one
	// where that is longest and the registry is away; 0: none is away.
	OldestSnapshot time.Duration
	Applied        uint64 // changes that were put in force
	NotApplied     uint64 // attempts that failed
	StateFileFails uint64 // attempts to write the state file that failed
}
