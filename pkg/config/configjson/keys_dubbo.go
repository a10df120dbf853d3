package configjson

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config/document"
)

type extensionJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the extension: dubbo_registry." required:"true" example:"\"dubbo_registry\""`
	Config document.Node `key:"config" doc:"Its settings." accept:"object" variant:"extension" example:"{\"enable\": true}"`
}

// dubboRegistryJSON is the extension "dubbo_registry".
type dubboRegistryJSON struct {
	Node       document.Node `key:"."`
	Enable     bool          `key:"enable" doc:"Whether applications may publish and subscribe Dubbo services; see docs/dubbo.md." default:"false" example:"true"`
	ServerPort uint16        `key:"server_port" doc:"Port that providers are published with: that of the listener for their callers. 0: the one that the application names." numeral:"true" default:"0" example:"20080"`
	Host       string        `key:"host" doc:"Address that providers are published with; empty: DUBBO_IP_TO_REGISTRY of the environment, else the machine's first global IPv4 address, else 127.0.0.1." example:"\"10.0.0.7\""`

	APIPort      uint16 `key:"api_port" doc:"Port of the API; 0: none, but api_socket." numeral:"true" default:"22222" example:"10022"`
	APIAddress   string `key:"api_address" doc:"IP address of the API. Whoever reaches it may publish: loopback, or with a token." default:"127.0.0.1" example:"\"::1\""`
	APISocket    string `key:"api_socket" doc:"Path of a unix socket that is the API as well, for Weft's own user." example:"\"/run/weft/dubbo.sock\""`
	Token        string `key:"token" doc:"What callers of the API have to send as \"Authorization: Bearer TOKEN\"; empty: nothing." secret:"true" example:"\"${DUBBO_TOKEN:-t0ken}\""`
	TokenFile    string `key:"token_file" doc:"File that holds the token; relative to the working directory, else to this file." example:"\"dubbo.token\""`
	StrictStatus bool   `key:"strict_status" doc:"Whether a call that fails gets a status that says so. Existing clients expect 200 always." default:"false" example:"true"`

	Application  string        `key:"application" doc:"Name of the application in registries, if a call has none." default:"weft" example:"\"shop\""`
	StateFile    string        `key:"state_file" doc:"Where it is kept what is published and subscribed, for the next start; empty: nowhere. It holds passwords of registries, and nobody else may read it." example:"\"/var/lib/weft/dubbo.json\""`
	EmptyAfter   time.Duration `key:"empty_after" doc:"How long providers go on being used that a registry has forgotten all at once." default:"10m" example:"\"30m\""`
	WithdrawWait time.Duration `key:"withdraw_wait" doc:"From when everything is unpublished, on SIGTERM, until listeners stop accepting: callers need to notice." default:"3s" example:"\"5s\""`

	Registries []registryJSON `key:"registries" doc:"What is to be known of registries beside what calls of the API say. The first is the one that a call means which names none."`
	LogPath    string         `key:"log_path" doc:"Log of the registries' clients." noeffect:"they write into Weft's log" example:"\"logs\""`
}

type registryJSON struct {
	Node           document.Node `key:"."`
	Type           string        `key:"type" choice:"registry" doc:"Kind of registry." required:"true" example:"\"memory\""`
	Address        string        `key:"address" doc:"Where it is, as calls of the API write it: host:port, or a list of them separated by commas. Of memory: a name, or file:/path for Wefts on one machine." required:"true" example:"\"file:/tmp/dubbo\""`
	Username       string        `key:"username" doc:"User, if a call has none." example:"\"dubbo\""`
	Password       string        `key:"password" doc:"The user's password." secret:"true" example:"\"${DUBBO_PASSWORD:-p}\""`
	Root           string        `key:"root" doc:"The folder, or group, that everything is in; empty: as usual with that kind." example:"\"/dubbo-test\""`
	SessionTimeout time.Duration `key:"session_timeout" doc:"How long the registry keeps what a process registered that it does not hear of; 0: as usual with that kind." default:"0s" example:"\"20s\""`
	RegisterMode   string        `key:"register_mode" doc:"How services are published: interface, each by itself; instance, as one instance of the application, which consumers of Dubbo 3 look for; or all, both. A call of the API may say another in the parameter register-mode." enum:"interface|instance|all" default:"interface" example:"\"all\""`
	TLS            *tlsJSON      `key:"tls_context" doc:"TLS towards the registry."`
}
