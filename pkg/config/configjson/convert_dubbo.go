package configjson

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// DubboRegistry is the extension that registers and subscribes Dubbo services.
const DubboRegistry = "dubbo_registry"

func knownExtensions() []string { return []string{DubboRegistry} }

func (r *reader) readExtensions(list []extensionJSON) {
	var built []string
	if len(r.capabilities.DubboRegistries) > 0 {
		built = knownExtensions()
	}
	var before *extensionJSON
	for i := range list {
		e := &list[i]
		at := e.Node.Get("type").Or(e.Node)
		if e.Type == "" {
			continue // reported
		}
		if _, ok := choose(r.report, at, "extension", e.Type, built, knownExtensions()); !ok {
			continue
		}
		if before != nil {
			r.report.Errorf(at, "duplicate extension %s", DubboRegistry)
			continue
		}
		before = e
		var j dubboRegistryJSON
		if r.decoder.Decode(e.Node.Member("config"), &j) {
			r.snapshot.Dubbo = r.dubboRegistry(&j)
		}
	}
}

func (r *reader) dubboRegistry(j *dubboRegistryJSON) config.DubboRegistry {
	if !j.Enable {
		return config.DubboRegistry{}
	}
	d := config.DubboRegistry{
		Enable: true, Socket: socketPath(j.APISocket), Token: j.Token, StrictStatus: j.StrictStatus,
		Host: j.Host, ServerPort: j.ServerPort, Application: j.Application,
		StateFile: j.StateFile, EmptyProtection: j.EmptyAfter, UnregisterWait: j.WithdrawWait,
	}
	if j.APIPort != 0 {
		d.API = numericHost(net.JoinHostPort(j.APIAddress, strconv.Itoa(int(j.APIPort))))
	}
	if _, err := netip.ParseAddr(j.APIAddress); err != nil && j.APIAddress != localhost {
		r.report.Errorf(j.Node.Get("api_address"), "found %q, expected an IP address", j.APIAddress)
	}
	if d.API == "" && d.Socket == "" {
		r.report.Errorf(j.Node.Get("api_port"), "api_port 0 disables the API port: api_socket is required")
	}
	if d.Socket != "" && (!isPath(d.Socket) || d.Socket[0] == '@') { // any process may connect to an abstract socket
		r.report.Errorf(j.Node.Get("api_socket"), "found %q, expected a path", j.APISocket)
	}
	if strings.ContainsAny(d.Host, " /?&") {
		r.report.Errorf(j.Node.Get("host"), "found %q, expected an address without a port", d.Host)
	}
	if j.TokenFile != "" {
		d.Token = r.token(j)
	}
	for i := range j.Registries {
		if s, ok := r.registry(&j.Registries[i], d.Registries); ok {
			d.Registries = append(d.Registries, s)
		}
	}
	return d
}

// token reads the token from token_file.
func (r *reader) token(j *dubboRegistryJSON) string {
	at := j.Node.Get("token_file")
	if j.Token != "" {
		r.report.Errorf(at, "token_file and token are mutually exclusive")
		return ""
	}
	text, err := r.files.ReadFile(j.TokenFile)
	if err != nil && !filepath.IsAbs(j.TokenFile) {
		if beside, errBeside := r.files.ReadFile(filepath.Join(filepath.Dir(r.file), j.TokenFile)); errBeside == nil {
			text, err = beside, nil
		}
	}
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		r.report.Errorf(at, "the file %q %s", j.TokenFile, readProblem(err))
	case token == "":
		r.report.Errorf(at, "the file %q is empty: without a token any client could use the API", j.TokenFile)
	}
	return token
}

// registry converts the settings of one registry and reports a duplicate of an earlier one.
func (r *reader) registry(j *registryJSON, before []config.RegistrySettings) (config.RegistrySettings, bool) {
	if j.Type == "" || j.Address == "" {
		return config.RegistrySettings{}, false // reported
	}
	kind, ok := choose(r.report, j.Node.Get("type"), "registry", j.Type, r.capabilities.DubboRegistries, knownRegistries())
	if !ok {
		return config.RegistrySettings{}, false
	}
	for i := range before {
		if before[i].Type == kind && before[i].Address == j.Address {
			r.report.Errorf(j.Node, "duplicate %s registry %s", kind, j.Address)
			return config.RegistrySettings{}, false
		}
	}
	if j.Username == "" && j.Password != "" {
		r.report.Errorf(j.Node.Get("password"), "password requires username")
	}
	return config.RegistrySettings{
		Type: kind, Address: j.Address, Username: j.Username, Password: j.Password,
		Root: j.Root, SessionTimeout: j.SessionTimeout, RegisterMode: config.RegisterMode(j.RegisterMode), TLS: r.tls(j.TLS, clusterTLS),
	}, true
}

func knownRegistries() []string { return []string{"zookeeper", "nacos", "memory"} }

// addDubboTable adds the route table of the subscribed services, unless the file has one with its
// name. It is empty until an application subscribes.
func (r *reader) addDubboTable() {
	const name = config.DubboRouteTable
	if !r.snapshot.Dubbo.Enable || r.tables[name] != nil {
		return
	}
	t := &table{model: &config.RouteTable{Name: name}, routeNames: map[string]bool{}, usedFilters: map[string]bool{}}
	r.tables[name] = t
	r.snapshot.Routes = append(r.snapshot.Routes, t.model)
}
