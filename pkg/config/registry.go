package config

import "time"

// DubboRegistry configures the registration of the local application's services in registries, and
// the discovery of the services that it calls. The zero value disables both.
type DubboRegistry struct {
	Enable bool

	// API is the ip:port where the application registers and subscribes services; default
	// "127.0.0.1:22222"; "": none. Socket is the path of a unix socket with the same API; "": none.
	API, Socket string
	// Token is the token that clients of the API must send; "": none.
	Token string
	// StrictStatus makes the API return an error status for a failed request; otherwise it returns
	// 200, as existing clients expect.
	StrictStatus bool

	// Host and ServerPort are the address that Weft registers for the application's services. If
	// Host is "", Weft uses the environment variable DUBBO_IP_TO_REGISTRY, or else the first global
	// IPv4 address of the machine, or else 127.0.0.1.
	Host       string
	ServerPort uint16 // 0: the port of the service, which then is required
	// Application is the application name in registry URLs; "": "weft".
	Application string

	// StateFile stores registrations and subscriptions for the next start; "": not stored. It
	// contains registry passwords.
	StateFile string
	// EmptyProtection is how long the last known providers of a service are retained after the
	// registry has reported that there are none; default 10 min.
	EmptyProtection time.Duration
	// UnregisterWait is the time between unregistering everything and continuing the shutdown, in
	// which consumers notice the change; default 3 s.
	UnregisterWait time.Duration

	// Registries are settings of registries by address. The first is also the registry of API
	// requests that name none.
	Registries []RegistrySettings
}

// RegistrySettings are settings of the registry with this type and address that requests of the API
// do not contain.
type RegistrySettings struct {
	Type               string // such as "zookeeper"
	Address            string
	Username, Password string        // for requests without credentials
	Root               string        // ZooKeeper: parent of all znodes; Nacos: group; "": the default of the type
	SessionTimeout     time.Duration // 0: the default of the type
	RegisterMode       RegisterMode  // mode of registrations that set none; "": RegisterInterface
	TLS                *TLS          // nil: plaintext
}

// RegisterMode says how a service is registered, in Dubbo's terms.
type RegisterMode string

// The modes.
const (
	RegisterInterface RegisterMode = "interface" // interface-level: one URL per service
	RegisterInstance  RegisterMode = "instance"  // application-level: the application instance and its metadata (Dubbo 3)
	RegisterAll       RegisterMode = "all"       // both
)

// DubboRouteTable is the name of the route table for the subscribed services.
const DubboRouteTable = "dubbo"

// The defaults of DubboRegistry.
const (
	DefaultRegistryAPI     = "127.0.0.1:22222"
	DefaultApplication     = "weft"
	DefaultEmptyProtection = 10 * time.Minute
	DefaultUnregisterWait  = 3 * time.Second
)

// DefaultDubboRegistry returns the defaults.
func DefaultDubboRegistry() DubboRegistry {
	return DubboRegistry{
		API:             DefaultRegistryAPI,
		Application:     DefaultApplication,
		EmptyProtection: DefaultEmptyProtection,
		UnregisterWait:  DefaultUnregisterWait,
	}
}
