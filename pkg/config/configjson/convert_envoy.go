package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// readEnvoy refuses what of Envoy's bootstrap asks for something else than what there is.
func (r *reader) readEnvoy(j *envoyJSON) {
	for _, one := range []struct {
		value document.Node
		only  string
	}{
		{j.SocketFactory, "envoy.extensions.network.socket_interface.default_socket_interface"},
		{j.HeaderPrefix, "x-envoy"},
	} {
		if text := one.value.Text(); text != "" && text != one.only {
			r.report.Errorf(one.value, "found %q, expected %q: there is no other", text, one.only)
		}
	}
	r.onlyExtension(j.RegexEngine, "envoy.regex_engines.google_re2", "envoy.extensions.regex_engines.v3.GoogleRE2")
	r.onlyExtension(j.ListenerManager, "envoy.listener_manager_impl.default", "envoy.config.listener.v3.ListenerManager")
	for _, servers := range []document.Node{r.envoyMember(j.DNS, "typed_config").Get("resolvers"), j.DNSOlder.Get("resolvers")} {
		if !servers.Off() {
			r.report.Unbuilt(servers, "a name server for all clusters")
		}
	}
}

// onlyExtension refuses an extension that is another than the one that there is. The
// message that it is configured by says which it is, and its name only if there is none.
func (r *reader) onlyExtension(n document.Node, name, message string) {
	at, only := n.Get("name"), name
	if url := r.envoyMember(n, "typed_config").Get("@type"); url.Text() != "" {
		at, only = url, message
	}
	text := at.Text()
	if text != "" && text[strings.LastIndexByte(text, '/')+1:] != only {
		r.report.Errorf(at, "found %q, expected %q: there is no other", text, only)
	}
}

// envoyMember is a member of an object that is as Envoy's bootstrap has it, in either of
// the spellings of its key.
func (r *reader) envoyMember(n document.Node, key string) document.Node {
	first, second := n.Get(key), n.Get(lowerCamel(key))
	if first.Exists() && second.Exists() && first.Key() != second.Key() {
		r.report.Errorf(second, "%q is another spelling of %q, which is there, too", second.Key(), first.Key())
	}
	return first.Or(second)
}

// lowerCamel is the other spelling of a key that JSON has for messages: flags_path is
// flagsPath.
func lowerCamel(key string) string {
	words := strings.Split(key, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// hasBootstrap reports whether the file is one of Envoy's kind, which has no server.
func (j *rootJSON) hasBootstrap() bool {
	return says(j.StaticResources) || says(j.DynamicResources)
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
