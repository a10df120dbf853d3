package configjson

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// referencePage is a page of docs/reference. Each section of the configuration is on one page: the
// one whose paths contain the longest prefix of the section's path.
type referencePage struct {
	name  string // file name
	title string
	about string   // first paragraph
	paths []string // prefixes of section paths
}

func referencePages() []referencePage {
	const chains = "servers[].listeners[].filter_chains[]"
	return []referencePage{
		{"file.md", "top of the file", "This page lists the keys at the top of `config.json`, and those of `servers[]`.", []string{"", "servers[]", "stream_filters[]"}},
		{
			"listeners.md", "listeners", "This page lists the keys of `servers[].listeners[]`: addresses, limits, access logs, listener filters, and the matches of filter chains. [listeners.md](../listeners.md) explains how Weft chooses a filter chain.",
			[]string{"servers[].listeners[]"},
		},
		{
			"network-filters.md", "network filters", "This page lists the keys of the network filters `proxy`, `tcp_proxy` and `udp_proxy`, the elements of `filters` in a filter chain. `proxy` reads requests; its `extend_config` sets the limits and timeouts of protocols. [The list of filters](../filters/README.md) has all filters.",
			[]string{chains + ".filters[]"},
		},
		{
			"tls.md", "TLS", "This page lists the keys of `tls_context`, which are the same in filter chains and in clusters. [tls.md](../tls.md) explains them.",
			[]string{chains + ".tls_context"},
		},
		{
			"routes.md", "routes", "This page lists the keys of route tables: `servers[].routers[]`, their virtual hosts and their routes. [routing.md](../routing.md) explains them.",
			[]string{"servers[].routers[]"},
		},
		{
			"clusters.md", "clusters", "This page lists the keys of `cluster_manager`: clusters, their hosts, load balancing, connection pools and limits. [balancing.md](../balancing.md) and [dns.md](../dns.md) explain them.",
			[]string{"cluster_manager"},
		},
		{
			"health.md", "health of hosts", "This page lists the keys of active health checks and of outlier detection. [observability.md](../observability.md#health-of-hosts) explains the states of a host.",
			[]string{"cluster_manager.clusters[].health_check", "cluster_manager.clusters[].outlier_detection"},
		},
		{
			"overload.md", "overload manager", "This page lists the keys of `overload_manager`, which are the same at the top of the file and in `servers[]`. [overload.md](../overload.md) explains them.",
			[]string{"servers[].overload_manager"},
		},
		{
			"admin.md", "admin port, metrics, profiles", "This page lists the keys of `admin`, `metrics`, `tracing` and `pprof`. [observability.md](../observability.md) explains them.",
			[]string{"admin", "metrics", "tracing", "pprof"},
		},
		{
			"xds.md", "control plane", "This page lists the keys of `xds_cache`, `xds_lazy` and `xds_status`. [xds.md](../xds.md) explains them and the keys of an Envoy bootstrap.",
			[]string{"xds_"},
		},
		{
			"dubbo.md", "Dubbo services", "This page lists the keys of the extension `dubbo_registry`. [dubbo.md](../dubbo.md) explains them.",
			[]string{"extends[]"},
		},
	}
}

// ReferenceDocs returns the pages of docs/reference by file name: every key of config.json with its
// meaning, unit, default and an example. Pages of stream filters are in docs/filters.
func ReferenceDocs() map[string]string {
	v := variants(Capabilities{})
	sections := slices.DeleteFunc(document.Sections("", rootJSON{}, v), func(s document.Section) bool { return len(s.Keys) == 0 })
	pageOf, anchors := map[reflect.Type]string{}, map[reflect.Type]string{}
	for _, s := range sections {
		pageOf[s.Type], anchors[s.Type] = pageOfSection(s.Path).name, anchor(sectionTitle(s.Path))
	}
	docs := map[string]string{}
	var index strings.Builder
	index.WriteString(referenceIndex)
	for _, page := range referencePages() {
		target := func(t reflect.Type) string {
			switch pageOf[t] {
			case "":
				return ""
			case page.name:
				return "#" + anchors[t]
			}
			return pageOf[t] + "#" + anchors[t]
		}
		var b strings.Builder
		fmt.Fprintf(&b, "<!-- %s -->\n\n# Reference: %s\n\n%s [The index](README.md) explains the columns.\n", generatedNote, page.title, page.about)
		fmt.Fprintf(&index, "\n## [%s](%s)\n\n", strings.ToUpper(page.title[:1])+page.title[1:], page.name)
		for _, s := range sections {
			if pageOf[s.Type] != page.name {
				continue
			}
			title := sectionTitle(s.Path)
			fmt.Fprintf(&b, "\n## %s\n\n%s", title, s.Table(v, target))
			fmt.Fprintf(&index, "- [%s](%s#%s)\n", title, page.name, anchor(title))
		}
		docs[page.name] = linkPages(b.String())
	}
	docs["README.md"] = index.String()
	return docs
}

// FilterKeys returns the tables of the keys of a network filter or a listener filter, for its
// README. It returns "" if the filter has no keys or is not part of this package.
func FilterKeys(name string) string {
	v := variants(Capabilities{})
	for _, f := range slices.Concat(v["network_filter"], v["listener_filter"]) {
		if f.Name == name {
			return document.Markdown(3, "`config`", f.Prototype, v)
		}
	}
	return ""
}

// generatedNote is the first line of a generated page.
const generatedNote = "Generated by go test ./pkg/config/configjson -run Reference -update: change the tags of the structs."

const referenceIndex = "<!-- " + generatedNote + ` -->

# Reference of config.json

These pages list every key of the configuration file. [configuration.md](../configuration.md)
explains how the file is put together. ` + "`weft schema`" + ` prints the same as a JSON Schema for editors.
The settings of stream filters are on [their own pages](../filters/README.md).

A heading such as ` + "`servers[].listeners[]`" + ` is the path of the keys: ` + "`[]`" + ` stands for every element of a
list. A name in parentheses is the ` + "`type`" + ` of the object that contains ` + "`config`" + `. Objects that can
occur in several places, such as ` + "`tls_context`" + `, have one table; the column "value" links to it.

- **Required.** Weft rejects an object without the key.
- **Accepted, no effect.** The key is known and does nothing. Weft warns.
- *Not supported yet.* Weft rejects the key unless its value disables the feature.
- Two names in one row are two spellings of the same key.
- If the cell "default" is empty, the key has no default value. For an optional key, "meaning" says
  what its absence does, unless it is obvious.
`

// pageOfSection returns the page of the section at a path.
func pageOfSection(path string) referencePage {
	var best referencePage
	length := -1
	for _, page := range referencePages() {
		for _, prefix := range page.paths {
			if strings.HasPrefix(path, prefix) && len(prefix) > length {
				best, length = page, len(prefix)
			}
		}
	}
	return best
}

func sectionTitle(path string) string {
	if path == "" {
		return "The file"
	}
	return "`" + path + "`"
}

// anchor returns the name by which links refer to a heading, as GitHub forms it.
func anchor(title string) string {
	title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(title), "")
	return strings.ReplaceAll(title, " ", "-")
}

// linkPages replaces the names of documentation pages in text with links. text is a page of
// docs/reference.
func linkPages(text string) string {
	return regexp.MustCompile(`\bdocs/([a-z]+(?:/README)?\.md)`).ReplaceAllString(text, "[$1](../$1)")
}
