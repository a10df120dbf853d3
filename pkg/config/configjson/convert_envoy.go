package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// checkEnvoyBootstrap reports settings of Envoy's bootstrap that select unavailable alternatives.
func (r *reader) checkEnvoyBootstrap(j *envoyJSON) {
	for _, one := range []struct {
		value document.Node
		only  string
	}{
		{j.SocketFactory, "envoy.extensions.network.socket_interface.default_socket_interface"},
		{j.HeaderPrefix, "x-envoy"},
	} {
		if text := one.value.Text(); text != "" && text != one.only {
			r.report.Errorf(one.value, "found %q, expected %q: no other value is supported", text, one.only)
		}
	}
	r.checkExtension(j.RegexEngine, "envoy.regex_engines.google_re2", "envoy.extensions.regex_engines.v3.GoogleRE2")
	r.checkExtension(j.ListenerManager, "envoy.listener_manager_impl.default", "envoy.config.listener.v3.ListenerManager")
	for _, servers := range []document.Node{r.envoyMember(j.DNS, "typed_config").Get("resolvers"), j.DNSResolutionConfig.Get("resolvers")} {
		if !servers.IsDisabled() {
			r.report.Unsupported(servers, "a DNS server for all clusters")
		}
	}
}

// checkExtension reports an extension that is not the only available one. The type of typed_config
// identifies it; its name does so only if there is no typed_config.
func (r *reader) checkExtension(n document.Node, name, message string) {
	at, only := n.Get("name"), name
	if url := r.envoyMember(n, "typed_config").Get("@type"); url.Text() != "" {
		at, only = url, message
	}
	text := at.Text()
	if text != "" && text[strings.LastIndexByte(text, '/')+1:] != only {
		r.report.Errorf(at, "found %q, expected %q: no other extension is supported", text, only)
	}
}

// envoyMember returns a member of an object of Envoy's bootstrap under either spelling of its key.
func (r *reader) envoyMember(n document.Node, key string) document.Node {
	first, second := n.Get(key), n.Get(lowerCamel(key))
	if first.Exists() && second.Exists() && first.Key() != second.Key() {
		r.report.Errorf(second, "%q and %q are two spellings of one key: use one of them", second.Key(), first.Key())
	}
	return first.Or(second)
}

// lowerCamel returns the JSON name of a protobuf field: flagsPath for flags_path.
func lowerCamel(key string) string {
	words := strings.Split(key, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// hasBootstrap reports whether the file has static_resources or dynamic_resources, as an Envoy
// bootstrap.
func (j *rootJSON) hasBootstrap() bool {
	return hasMembers(j.StaticResources) || hasMembers(j.DynamicResources)
}

// readBootstrapServer replaces readServer for an Envoy bootstrap: the server has default settings and the
// name of the node.
func (r *reader) readBootstrapServer(j *rootJSON) {
	var s serverJSON
	r.decoder.Decode(document.Node{}, &s)
	s.Name = j.EnvoyNode.Get("id").Text()
	if chain := slices.IndexFunc(j.StreamFilters, func(c chainJSON) bool { return !c.Node.IsDisabled() }); chain >= 0 {
		r.report.Warnf(j.StreamFilters[chain].Node, "stream_filters has no effect: it applies to listeners of a server, and the file has none")
	}
	r.readServer(&s, nil)
}
