package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/filter"
)

var update = flag.Bool("update", false, "write docs/filters, and the keys in the READMEs of network and listener filters")

const filterPagesDir = "docs/filters"

// filterPage is a page of docs/filters, made from the README of the filter's package.
type filterPage struct {
	name  string // of the filter, as spelled in config.json
	dir   string // of the package, relative to the root of the repository
	kinds []string
}

// file returns the name of the page.
func (p *filterPage) file() string { return p.name + ".md" }

// filterPages returns the pages of all filters: first those of builtinFilters, then the registered
// ones in the order of the registry.
func filterPages() []*filterPage {
	pages := builtinFilters()
	for _, f := range streamFilters() {
		kind := "stream filter, after the route"
		if f.Stage == filter.BeforeRoute {
			kind = "stream filter, before the route"
		}
		pages = append(pages, &filterPage{f.Name, packageDir(f.Config()), []string{kind}})
	}
	for _, f := range connectionFilters() {
		i := slices.IndexFunc(pages, func(p *filterPage) bool { return p.name == f.Name })
		if i < 0 {
			pages = append(pages, &filterPage{f.Name, packageDir(f.Config()), nil})
			i = len(pages) - 1
		}
		pages[i].kinds = append(pages[i].kinds, "network filter")
	}
	return pages
}

// builtinFilters returns the pages of the filters that are not in a registry of filters.
func builtinFilters() []*filterPage {
	return []*filterPage{
		{"proxy", "pkg/filter/network/proxy", []string{"network filter"}},
		{"tcp_proxy", "pkg/filter/network/tcpproxy", []string{"network filter"}},
		{"udp_proxy", "pkg/filter/network/udpproxy", []string{"network filter"}},
		{"proxy_protocol", "pkg/filter/listener/proxyprotocol", []string{"listener filter"}},
		{"original_dst", "pkg/filter/listener/originaldst", []string{"listener filter"}},
		{"tls_inspector", "pkg/filter/listener/tlsinspector", []string{"listener filter"}},
		{"http_inspector", "pkg/filter/listener/httpinspector", []string{"listener filter"}},
	}
}

// packageDir returns the directory of the package of a filter's configuration.
func packageDir(cfg any) string {
	return strings.TrimPrefix(reflect.TypeOf(cfg).Elem().PkgPath(), "github.com/weft-proxy/weft/")
}

// TestBuiltinFilterKeys compares the tables of keys in the READMEs of builtinFilters with the
// struct tags, and the metrics that these READMEs name with those that exist.
func TestBuiltinFilterKeys(t *testing.T) {
	defined := map[string]bool{}
	for _, m := range metrics.Metrics() {
		defined[m.Name] = true
	}
	for _, p := range builtinFilters() {
		readme := filepath.Join(repositoryRoot, p.dir, "README.md")
		text := readText(t, readme)
		for _, name := range regexp.MustCompile(`weft_[a-z_]+`).FindAllString(text, -1) {
			if !defined[name] {
				t.Errorf("%s names the metric %s, which does not exist", readme, name)
			}
		}
		keys := configjson.FilterKeys(p.name)
		const begin, end = "<!-- begin keys -->\n", "<!-- end keys -->"
		before, rest, ok := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		switch {
		case keys == "" && !ok && strings.Contains(text, "\nThe filter has no keys."):
		case keys == "" || !ok || !closed:
			t.Errorf("%s has no %s … %s, or has it without keys", readme, begin, end)
		default:
			compareFile(t, readme, before+begin+"\n"+keys+end+after)
		}
	}
}

// TestFilterExamples verifies that the first example of each page is a whole file with the name of
// the filter, and that the file is accepted with each other example of the page inserted.
// TestConfigurationsOfDocPages loads the whole files.
func TestFilterExamples(t *testing.T) {
	pages := filterPages()
	for _, p := range pages {
		page := p.page(t, pages)
		_, section, _ := strings.Cut(page, "\n## Example\n")
		whole := regexp.MustCompile("(?ms)^```json(.*?)\n(.*?)^```$").FindStringSubmatch(section)
		if whole == nil || whole[1] != " config="+p.name+".json" {
			t.Errorf("%s: the first example is not a whole file (config=%s.json)", p.file(), p.name)
			continue
		}
		for _, fragment := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
			checkConfiguration(t, p.file(), "fragment.json", insertExample(t, whole[2], fragment[1]))
		}
	}
}

// exampleFile is the part of a configuration that insertExample changes.
type exampleFile struct {
	Servers []struct {
		Listeners []map[string]any `json:"listeners"`
		Routers   []struct {
			Name         string `json:"router_config_name"`
			VirtualHosts []struct {
				Domains []string         `json:"domains"`
				Routes  []map[string]any `json:"routers"`
			} `json:"virtual_hosts"`
		} `json:"routers"`
	} `json:"servers"`
	Clusters struct {
		Clusters []map[string]any `json:"clusters"`
	} `json:"cluster_manager"`
}

// insertExample returns the file whole with the members of fragment: filters and stream_filters
// replace the filters of the listener, routers precede the routes of the virtual host, and
// per_filter_config belongs to its last route. insertExample adds the clusters that the fragments
// name.
func insertExample(t *testing.T, whole, fragment string) string {
	t.Helper()
	var file exampleFile
	var members struct {
		Filters        []any            `json:"filters"`
		StreamFilters  []any            `json:"stream_filters"`
		Routes         []map[string]any `json:"routers"`
		FiltersOfRoute map[string]any   `json:"per_filter_config"`
	}
	decoder := json.NewDecoder(strings.NewReader(fragment))
	decoder.DisallowUnknownFields()
	if err := errors.Join(json.Unmarshal([]byte(whole), &file), decoder.Decode(&members)); err != nil {
		t.Fatalf("%v in\n%s", err, fragment)
	}
	listener, virtualHost := file.Servers[0].Listeners[0], &file.Servers[0].Routers[0].VirtualHosts[0]
	if members.Filters != nil {
		listener["filter_chains"] = []any{map[string]any{"filters": members.Filters}}
		delete(listener, "stream_filters") // the filters may have no proxy
	}
	if members.StreamFilters != nil {
		listener["stream_filters"] = members.StreamFilters
	}
	if members.FiltersOfRoute != nil {
		virtualHost.Routes[len(virtualHost.Routes)-1]["per_filter_config"] = members.FiltersOfRoute
	}
	virtualHost.Routes = append(members.Routes, virtualHost.Routes...)
	for i, name := range []string{"canary", "reviews", "shop"} {
		file.Clusters.Clusters = append(file.Clusters.Clusters, map[string]any{
			"name": name, "hosts": []any{map[string]any{"address": fmt.Sprint("127.0.0.1:", 8090+i)}},
		})
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFilterPages compares docs/filters with the READMEs of the filters and the registry; -update
// writes it.
func TestFilterPages(t *testing.T) {
	pages := filterPages()
	want := map[string]string{}
	var index strings.Builder
	index.WriteString(filterIndexHead)
	for _, p := range pages {
		index.WriteString(p.indexRow(t, "stream filter"))
	}
	index.WriteString(filterIndexNetwork)
	for _, p := range pages {
		index.WriteString(p.indexRow(t, "network filter"))
	}
	index.WriteString(filterIndexListener)
	for _, p := range pages {
		index.WriteString(p.indexRow(t, "listener filter"))
	}
	want["README.md"] = index.String()
	for _, p := range pages {
		want[p.file()] = p.page(t, pages)
	}
	dir := filepath.Join(repositoryRoot, filterPagesDir)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if want[filepath.Base(name)] == "" {
			t.Errorf("%s does not belong to a filter: remove it", name)
		}
	}
	for name, text := range want {
		compareFile(t, filepath.Join(dir, name), text)
	}
}

// TestEveryFilterHasPage verifies that docs/filters has a page for each README of a filter.
func TestEveryFilterHasPage(t *testing.T) {
	readmes, err := filepath.Glob(filepath.Join(repositoryRoot, "pkg/filter/*/*/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(filterPages()), len(readmes); got != want {
		t.Errorf("%d pages from %d READMEs: list the filter in registry.go or filterPages", got, want)
	}
}

const repositoryRoot = "../.."

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// compareFile compares a file with want, or writes it with -update.
func compareFile(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, readText(t, name)); diff != "" {
		t.Errorf("%s is stale; update it with: go test ./cmd/weft -run Filter -update (-want +got):\n%s", name, diff)
	}
}

// readme returns the sections of the filter's README by heading.
func (p *filterPage) readme(t *testing.T) map[string]string {
	t.Helper()
	sections := map[string]string{}
	parts := strings.Split(readText(t, filepath.Join(repositoryRoot, p.dir, "README.md")), "\n## ")
	if want := "# " + p.name + "\n"; parts[0] != want {
		t.Errorf("%s begins with %q, want %q", p.dir, parts[0], want)
	}
	for _, part := range parts[1:] {
		heading, text, _ := strings.Cut(part, "\n")
		sections[heading] = strings.TrimSpace(text)
	}
	return sections
}

// protocols returns the protocols of the filter, from a line of its README.
func (p *filterPage) protocols(t *testing.T) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^Protocols: (.*)\.$`).FindStringSubmatch(p.readme(t)["What it does"])
	if match == nil {
		t.Fatalf("%s/README.md has no line \"Protocols: ….\" in its section What it does", p.dir)
	}
	return match[1]
}

// purpose returns the first sentence of a text of the README, in one line.
func purpose(text string) string {
	paragraph, _, _ := strings.Cut(text, "\n\n")
	sentence, _, _ := strings.Cut(strings.Join(strings.Fields(paragraph), " "), ". ")
	return strings.TrimRight(sentence, ".:") + "."
}

// indexRow returns the row of the filter in the table of a kind, or "" if the filter is of another
// kind.
func (p *filterPage) indexRow(t *testing.T, kind string) string {
	t.Helper()
	i := slices.IndexFunc(p.kinds, func(k string) bool { return strings.HasPrefix(k, kind) })
	if i < 0 {
		return ""
	}
	text := p.readme(t)["What it does"]
	requests, connections, _ := strings.Cut(p.protocols(t), "; ")
	_, runs, isStream := strings.Cut(p.kinds[i], ", ")
	_, ofConnections, _ := strings.Cut(text, "### Connections\n\n")
	switch {
	case isStream:
		return fmt.Sprintf("| [`%s`](%s) | %s | %s | %s |\n", p.name, p.file(), purpose(text), runs, requests)
	case ofConnections != "":
		return fmt.Sprintf("| [`%s`](%s#connections) | %s | %s |\n", p.name, p.file(), purpose(ofConnections), connections)
	}
	return fmt.Sprintf("| [`%s`](%s) | %s | %s |\n", p.name, p.file(), purpose(text), requests)
}

// page returns the text of the page: the README with the example before the keys, and with links
// that work from docs/filters.
func (p *filterPage) page(t *testing.T, pages []*filterPage) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Generated from %s/README.md by go test ./cmd/weft -run Filter -update: change that file. -->\n\n# %s\n\n%s [All filters](README.md)\n",
		p.dir, p.name, p.kindText())
	sections := p.readme(t)
	for _, heading := range []string{"What it does", "Example", "Configuration", "Metrics", "Errors"} {
		if sections[heading] == "" {
			t.Errorf("%s/README.md has no section %s", p.dir, heading)
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", heading, sections[heading])
	}
	text := regexp.MustCompile(`<!-- (begin|end) \w+ -->\n+`).ReplaceAllString(b.String(), "")
	text = regexp.MustCompile(`\n<!-- end \w+ -->`).ReplaceAllString(text, "")
	return regexp.MustCompile(`\]\(([^)#:\s]+)`).ReplaceAllStringFunc(text, func(link string) string {
		if link == "](README.md" {
			return link // the index
		}
		return "](" + filterPageLink(path.Join(p.dir, strings.TrimPrefix(link, "](")), pages)
	})
}

// kindText returns the sentences that say which kinds of filter p is.
func (p *filterPage) kindText() string {
	var text string
	switch kind, runs, isStream := strings.Cut(p.kinds[0], ", "); {
	case !isStream:
		text = "This is a " + kind + "."
	case runs == "before the route":
		text = "This stream filter runs before Weft chooses the route."
	default:
		text = "This stream filter runs after Weft has chosen the route."
	}
	for _, kind := range p.kinds[1:] {
		text += " It is also a " + kind + "."
	}
	return text
}

// filterPageLink returns the link from docs/filters to a file, by its path from the root.
func filterPageLink(target string, pages []*filterPage) string {
	for _, p := range pages {
		if target == p.dir+"/README.md" {
			return p.file()
		}
	}
	if page, ok := strings.CutPrefix(target, "docs/"); ok {
		return "../" + page
	}
	return "../../" + target
}

const filterIndexHead = `<!-- Generated by go test ./cmd/weft -run Filter -update: the text is in cmd/weft/filter_pages_test.go, the rows are from the READMEs of the filters. -->

# Filters

This page lists every filter of Weft, with a page for each. A connection passes through three kinds
of filters:

1. **listener filters** find properties of a connection, such as its addresses, before TLS: ` + "`listener_filters`" + ` of a listener;
2. **network filters** allow, count or serve the connection: ` + "`filters`" + ` of a filter chain. The last one is
   ` + "`proxy`" + `, which reads requests, or ` + "`tcp_proxy`" + ` or ` + "`udp_proxy`" + `, which relay bytes or datagrams;
3. **stream filters** process each request that ` + "`proxy`" + ` reads: ` + "`stream_filters`" + ` of the listener, in
   their order. ` + "`per_filter_config`" + ` of a route has other settings for the requests of that route.

One filter of each kind, in a whole file:

` + "```json config=filters.json" + `
{
  "servers": [{
    "listeners": [{
      "name": "in", "address": "127.0.0.1:2045",
      "listener_filters": [{"type": "proxy_protocol"}],
      "filter_chains": [{"filters": [
        {"type": "rbac", "config": {"rules": {"policies": {"network": {
          "permissions": [{"any": true}],
          "principals": [{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}]}}}}},
        {"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "routes"}}
      ]}],
      "stream_filters": [{"type": "payload_limit", "config": {"max_entity_size": "1MB"}}]
    }],
    "routers": [{
      "router_config_name": "routes",
      "virtual_hosts": [{"domains": ["*"], "routers": [
        {"match": {"prefix": "/pictures"}, "route": {"cluster_name": "app"},
         "per_filter_config": {"payload_limit": {"max_entity_size": "10MB"}}},
        {"match": {"prefix": "/"}, "route": {"cluster_name": "app"}}]}]
    }]
  }],
  "cluster_manager": {"clusters": [{"name": "app", "hosts": [{"address": "127.0.0.1:8080"}]}]}
}
` + "```" + `

"Before the route" means that the filter runs before Weft chooses a route, and can change what
matches. "After the route" means that it runs after Weft has chosen the route. It then has the settings
of the route, or those of the listener if the route has none or no route matches. HTTP is HTTP/1.1 and
HTTP/2; RPC is Dubbo and Bolt.

The first example of each page is a whole file: copy it, and run ` + "`weft start -c FILE`" + `. Most of these
files listen on 127.0.0.1:2045, for an application on 127.0.0.1:8080. The other examples are changes of
the whole file of their page. They replace
` + "`filters`" + ` or ` + "`stream_filters`" + ` of its listener, precede its ` + "`routers`" + `, or are the ` + "`per_filter_config`" + ` of
a route. Add the clusters that only they name.

` + "`weft explain URL`" + ` lists the filters that would process a request. To write a filter, see
[add-a-filter.md](../add-a-filter.md).

## Stream filters

| filter | purpose | runs | protocols |
|---|---|---|---|
`

const filterIndexNetwork = `
## Network filters

| filter | purpose | protocols |
|---|---|---|
`

const filterIndexListener = `
## Listener filters

| filter | purpose | protocols |
|---|---|---|
`
