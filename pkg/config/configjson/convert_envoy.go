package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// readEnvoy refuses what of Envoy's bootstrap asks for something else than what there is.
func (r *reader) readEnvoy(j *envoyJSON) {
	for _, one := range []struct {
		value document.Node
		only  string
	}{
		{j.RegexEngine.Get("name"), "envoy.regex_engines.google_re2"},
		{j.ListenerManager.Get("name"), "envoy.listener_manager_impl.default"},
		{j.SocketFactory, "envoy.extensions.network.socket_interface.default_socket_interface"},
		{j.HeaderPrefix, "x-envoy"},
	} {
		if text := one.value.Text(); text != "" && text != one.only {
			r.report.Errorf(one.value, "found %q, expected %q: there is no other", text, one.only)
		}
	}
	for _, servers := range []document.Node{j.DNS.Get("typed_config").Get("resolvers"), j.DNSOlder.Get("resolvers")} {
		if !servers.Off() {
			r.report.Unbuilt(servers, "a name server for all clusters")
		}
	}
}

// hasBootstrap reports whether the file is one of Envoy's kind, which has no server.
func (j *rootJSON) hasBootstrap() bool {
	return !j.StaticResources.Off() || !j.DynamicResources.Off()
}

// withoutServer is readServer of a file of Envoy's kind: the server is as if it said
// nothing, and named as the node is.
func (r *reader) withoutServer(j *rootJSON) {
	var s serverJSON
	r.decoder.Decode(document.Node{}, &s)
	s.Name = j.EnvoyNode.Get("id").Text()
	if chain := slices.IndexFunc(j.StreamFilters, func(c chainJSON) bool { return !c.Node.Off() }); chain >= 0 {
		r.report.Warnf(j.StreamFilters[chain].Node, "stream_filters are of listeners of a server, and the file has none")
	}
	r.readServer(&s, nil)
}
