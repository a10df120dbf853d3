package configjson

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// DubboRegistry is the extension that registers and subscribes Dubbo services.
const DubboRegistry = "dubbo_registry"

type extensionJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the extension: dubbo_registry." required:"true" example:"\"dubbo_registry\""`
	Config document.Node `key:"config" doc:"Settings of the extension." accept:"object" variant:"extension" example:"{\"enable\": true}"`
}

// dubboRegistryJSON is the extension "dubbo_registry".
type dubboRegistryJSON struct {
	Node       document.Node `key:"."`
	Enable     bool          `key:"enable" doc:"Whether applications can register and subscribe to Dubbo services through Weft; see docs/dubbo.md." default:"false" example:"true"`
	ServerPort uint16        `key:"server_port" doc:"Port that Weft registers for providers: the port of the listener that serves their consumers. 0: the port that the application reports." allowstring:"true" default:"0" example:"20080"`
	Host       string        `key:"host" doc:"Address that Weft registers for providers. Empty: the environment variable DUBBO_IP_TO_REGISTRY, else the first global IPv4 address of the machine, else 127.0.0.1." example:"\"10.0.0.7\""`

	APIPort      uint16 `key:"api_port" doc:"Port of the registry API. 0: none; api_socket is then required." allowstring:"true" default:"22222" example:"10022"`
	APIAddress   string `key:"api_address" doc:"IP address of the registry API. Clients that can connect to it can register services: use a loopback address or a token." default:"127.0.0.1" example:"\"::1\""`
	APISocket    string `key:"api_socket" doc:"Path of a unix socket that also serves the API, for processes of the user that runs Weft." example:"\"/run/weft/dubbo.sock\""`
	Token        string `key:"token" doc:"Token that clients of the API must send as \"Authorization: Bearer TOKEN\". Empty: none." secret:"true" example:"\"${DUBBO_TOKEN:-t0ken}\""`
	TokenFile    string `key:"token_file" doc:"File with the token. A relative path is resolved in the working directory, then in the directory of this file." example:"\"dubbo.token\""`
	StrictStatus bool   `key:"strict_status" doc:"Whether failed API requests get an error status. Existing clients expect 200 in all cases." default:"false" example:"true"`

	Application     string        `key:"application" doc:"Application name in registries if an API request has none." default:"weft" example:"\"shop\""`
	StateFile       string        `key:"state_file" doc:"File that stores registrations and subscriptions for the next start. Empty: they are not stored. The file contains registry passwords; only its owner can read it." example:"\"/var/lib/weft/dubbo.json\""`
	EmptyProtection time.Duration `key:"empty_after" doc:"How long Weft keeps using the providers of a service after the registry has dropped all of them." default:"10m" example:"\"30m\""`
	UnregisterWait  time.Duration `key:"withdraw_wait" doc:"Time between unregistering everything on SIGTERM and closing the listeners, in which consumers notice the change." default:"3s" example:"\"5s\""`

	Registries []registryJSON `key:"registries" doc:"Settings of registries that API requests do not contain. The first is the registry of API requests that name none."`
	LogPath    string         `key:"log_path" doc:"Log of the registry clients." ignored:"the clients write to Weft's log" example:"\"logs\""`
}

type registryJSON struct {
	Node           document.Node `key:"."`
	Type           string        `key:"type" choice:"registry" doc:"Type of the registry." required:"true" example:"\"memory\""`
	Address        string        `key:"address" doc:"Address of the registry, as in API requests: host:port, or a comma-separated list. For memory: a name, or file:/path for several Weft processes on one machine." required:"true" example:"\"file:/tmp/dubbo\""`
	Username       string        `key:"username" doc:"User name if an API request has none." example:"\"dubbo\""`
	Password       string        `key:"password" doc:"Password of the user." secret:"true" example:"\"${DUBBO_PASSWORD:-p}\""`
	Root           string        `key:"root" doc:"Parent znode (ZooKeeper), or namespace/group (Nacos), of all data. Empty: the default of the registry type." example:"\"/dubbo-test\""`
	SessionTimeout time.Duration `key:"session_timeout" doc:"How long the registry keeps the registrations of a process that it has lost contact with. 0: the default of the registry type." default:"0s" example:"\"20s\""`
	RegisterMode   string        `key:"register_mode" doc:"How services are registered. interface: each interface separately. instance: as one application instance, which Dubbo 3 consumers discover. all: both. An API request can override it with the parameter register-mode." enum:"interface|instance|all" default:"interface" example:"\"all\""`
	TLS            *tlsJSON      `key:"tls_context" doc:"TLS on connections to the registry."`
}

func knownExtensions() []string { return []string{DubboRegistry} }

// dubboReader reads the key "extends". The only extension is the Dubbo registry.
type dubboReader struct {
	*input
	tls tlsReader
}

// read converts the list of extensions. It returns the zero DubboRegistry if the extension is
// absent or disabled.
func (r *dubboReader) read(list []extensionJSON) (out config.DubboRegistry) {
	var supported []string
	if len(r.capabilities.DubboRegistries) > 0 {
		supported = knownExtensions()
	}
	var first *extensionJSON
	for i := range list {
		e := &list[i]
		node := e.Node.Get("type").Or(e.Node)
		if e.Type == "" {
			continue // already reported
		}
		if _, ok := choose(r.report, node, "extension", e.Type, supported, knownExtensions()); !ok {
			continue
		}
		if first != nil {
			r.report.Errorf(node, "duplicate extension %s", DubboRegistry)
			continue
		}
		first = e
		var j dubboRegistryJSON
		if r.decoder.Decode(e.Node.MemberOrEmpty("config"), &j) {
			out = r.readDubboRegistry(&j)
		}
	}
	return out
}

func (r *dubboReader) readDubboRegistry(j *dubboRegistryJSON) config.DubboRegistry {
	if !j.Enable {
		return config.DubboRegistry{}
	}
	d := config.DubboRegistry{
		Enable: true, Token: j.Token, StrictStatus: j.StrictStatus,
		Host: j.Host, ServerPort: j.ServerPort, Application: j.Application,
		StateFile: j.StateFile, EmptyProtection: j.EmptyProtection, UnregisterWait: j.UnregisterWait,
	}
	if j.APIPort != 0 {
		d.API = numericHost(net.JoinHostPort(j.APIAddress, strconv.Itoa(int(j.APIPort))))
	}
	if _, err := netip.ParseAddr(j.APIAddress); err != nil && j.APIAddress != localhost {
		r.report.Errorf(j.Node.Get("api_address"), "found %q, expected an IP address", j.APIAddress)
	}
	if d.API == "" && j.APISocket == "" {
		r.report.Errorf(j.Node.Get("api_port"), "api_port 0 disables the API port: api_socket is required")
	}
	switch address, isSocket, err := unixaddr.Parse(j.APISocket); {
	case err != nil:
		r.report.Errorf(j.Node.Get("api_socket"), "%v", err)
	case j.APISocket != "" && (!isSocket || unixaddr.IsAbstract(address)): // any process may connect to an abstract socket
		r.report.Errorf(j.Node.Get("api_socket"), "found %q, expected a path", j.APISocket)
	default:
		d.Socket = address
	}
	if strings.ContainsAny(d.Host, " /?&") {
		r.report.Errorf(j.Node.Get("host"), "found %q, expected an address without a port", d.Host)
	}
	if j.TokenFile != "" {
		d.Token = r.readToken(j)
	}
	for i := range j.Registries {
		if s, ok := r.readRegistry(&j.Registries[i], d.Registries); ok {
			d.Registries = append(d.Registries, s)
		}
	}
	return d
}

// readToken reads the token from the file that the key "token_file" names.
func (r *dubboReader) readToken(j *dubboRegistryJSON) string {
	node := j.Node.Get("token_file")
	if j.Token != "" {
		r.report.Errorf(node, "token_file and token are mutually exclusive")
		return ""
	}
	_, text, err := readRelative(r.file, j.TokenFile, r.files.ReadFile)
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		r.report.Errorf(node, "the file %q %s", j.TokenFile, fileProblem(err))
	case token == "":
		r.report.Errorf(node, "the file %q is empty: without a token any client could use the API", j.TokenFile)
	}
	return token
}

// readRegistry converts the settings of one registry and reports a duplicate of a registry in
// earlier.
func (r *dubboReader) readRegistry(j *registryJSON, earlier []config.RegistrySettings) (config.RegistrySettings, bool) {
	if j.Type == "" || j.Address == "" {
		return config.RegistrySettings{}, false // already reported
	}
	registryType, ok := choose(r.report, j.Node.Get("type"), "registry", j.Type, r.capabilities.DubboRegistries, knownRegistries())
	if !ok {
		return config.RegistrySettings{}, false
	}
	for i := range earlier {
		if earlier[i].Type == registryType && earlier[i].Address == j.Address {
			r.report.Errorf(j.Node, "duplicate %s registry %s", registryType, j.Address)
			return config.RegistrySettings{}, false
		}
	}
	if j.Username == "" && j.Password != "" {
		r.report.Errorf(j.Node.Get("password"), "password requires username")
	}
	return config.RegistrySettings{
		Type: registryType, Address: j.Address, Username: j.Username, Password: j.Password,
		Root: j.Root, SessionTimeout: j.SessionTimeout, RegisterMode: config.RegisterMode(j.RegisterMode), TLS: r.tls.readContext(j.TLS, clusterTLS),
	}, true
}

func knownRegistries() []string { return []string{"zookeeper", "nacos", "memory"} }

// addDubboTable adds the route table of the subscribed services, which is empty until an
// application subscribes, unless the file defines a table with this name.
func (r *routeReader) addDubboTable() {
	const name = config.DubboRouteTable
	if r.tables[name] != nil {
		return
	}
	t := &table{model: &config.RouteTable{Name: name}, routeNames: map[string]bool{}, usedFilters: map[string]bool{}}
	r.tables[name] = t
	r.out = append(r.out, t.model)
}
