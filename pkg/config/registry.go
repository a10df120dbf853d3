package config

import "time"

// DubboRegistry says how the services of the local application are published to
// registries, and those that it calls are found there. The zero value is not at all.
type DubboRegistry struct {
	Enable bool

	// API is where the application says what it provides and calls: ip:port; "": nowhere,
	// default "127.0.0.1:22222". Socket is a unix socket that does the same; "": none.
	API, Socket string
	// Token is what callers of the API have to bring; "": nothing.
	Token string
	// StrictStatus: a request of the API that fails is answered with a status that says
	// so; else with 200, as existing clients expect.
	StrictStatus bool

	// Host and ServerPort are what providers are published with: where callers of the
	// application are listened for. Host "": the environment's DUBBO_IP_TO_REGISTRY, else
	// the machine's first global IPv4 address, else 127.0.0.1.
	Host       string
	ServerPort uint16 // 0: nothing can be published
	// Application is what the URLs in a registry name; "": "weft".
	Application string

	// StateFile is where what was published and subscribed to is kept, for the next
	// start; "": nowhere. It has passwords of registries in it.
	StateFile string
	// EmptyAfter is how long the last known providers of a service are used after the
	// registry has said that there are none; default 10 min.
	EmptyAfter time.Duration
	// WithdrawWait is from when everything is unpublished until the process goes on
	// ending: what callers need to notice; default 3 s.
	WithdrawWait time.Duration

	// Registries are settings of registries by their address. The first is also the one
	// that a request without a registry means.
	Registries []RegistrySettings
}

// RegistrySettings are what is to be known of a registry beside what requests of the API
// say, for those with this type and address.
type RegistrySettings struct {
	Type               string // as "zookeeper"
	Address            string
	Username, Password string        // of requests that say none
	Root               string        // the folder, or group, that everything is in; "": the type's default
	SessionTimeout     time.Duration // 0: the type's default
	RegisterMode       RegisterMode  // of what is published without saying one; "": RegisterInterface
	TLS                *TLS          // nil: plaintext
}

// RegisterMode is how a service is made known to a registry, in Dubbo's words.
type RegisterMode string

// The modes.
const (
	RegisterInterface RegisterMode = "interface" // by a URL of its own
	RegisterInstance  RegisterMode = "instance"  // by the application's instance, and its metadata (Dubbo 3)
	RegisterAll       RegisterMode = "all"       // by both
)

// DubboRouteTable is the name of the route table of the services that are subscribed to.
const DubboRouteTable = "dubbo"

// The defaults of DubboRegistry.
const (
	DefaultRegistryAPI  = "127.0.0.1:22222"
	DefaultApplication  = "weft"
	DefaultEmptyAfter   = 10 * time.Minute
	DefaultWithdrawWait = 3 * time.Second
)

// DefaultDubboRegistry returns the defaults.
func DefaultDubboRegistry() DubboRegistry {
	return DubboRegistry{
		API:          DefaultRegistryAPI,
		Application:  DefaultApplication,
		EmptyAfter:   DefaultEmptyAfter,
		WithdrawWait: DefaultWithdrawWait,
	}
}
