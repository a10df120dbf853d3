package resource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestCookieMatchers(t *testing.T) {
	read := func(cookie string) (*RouteTable, error) {
		return readTableText(t, `virtual_hosts: {name: "v" domains: "*" routes: {match: {prefix: "/" cookies: {`+cookie+`}} direct_response: {status: 200}}}`)
	}
	for text, want := range map[string]config.CookieMatch{
		`name: "s" string_match: {exact: ""}`:                                    {Name: "s"},
		`name: "s" string_match: {prefix: "v" ignore_case: true}`:                {Name: "s", Matcher: config.ValueMatch{Kind: config.ValuePrefix, Text: "v", IgnoreCase: true}},
		`name: "s" string_match: {safe_regex: {regex: "v+"}} invert_match: true`: {Name: "s", Matcher: config.ValueMatch{Kind: config.ValueRegex, Text: "v+"}, Invert: true},
	} {
		table, err := read(text)
		if err != nil {
			t.Errorf("%s: error %v, want none", text, err)
			continue
		}
		if diff := cmp.Diff([]config.CookieMatch{want}, table.Config.VirtualHosts[0].Routes[0].Match.Cookies); diff != "" {
			t.Errorf("%s is read as - want + got:\n%s", text, diff)
		}
	}
	const at = "virtual_hosts[0].routes[0].match.cookies[0]."
	for text, want := range map[string]string{
		`string_match: {exact: "v"}`: at + "name: is required",
		`name: "` + strings.Repeat("s", 1025) + `" string_match: {exact: "v"}`: at + "name: has 1025 bytes, expected at most 1024",
		`name: "s"`:                  at + "string_match: is required",
		`name: "s" string_match: {}`: at + "string_match: expected exact, prefix, suffix, contains or safe_regex",
		`name: "s" string_match: {safe_regex: {regex: "("}}`: at + "string_match.safe_regex: error parsing regexp",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: error %v, want %s", text, err, want)
		}
	}
}

func TestPrefixRewriteWithPathKinds(t *testing.T) {
	const template = `path_match_policy: {name: "t" typed_config: {[type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig]: {path_template: "/t/{x}"}}}`
	for _, test := range []struct{ match, action, err string }{
		{`safe_regex: {regex: "/a/[0-9]+"}`, `route: {cluster: "c" prefix_rewrite: "/new"}`, ""},
		{`safe_regex: {regex: "/a/[0-9]+"}`, `redirect: {prefix_rewrite: "/new"}`, ""},
		{template, `route: {cluster: "c"}`, ""},
		{template, `redirect: {host_redirect: "h"}`, ""},
		{template, `route: {cluster: "c" prefix_rewrite: "/new"}`, "routes[0].route.prefix_rewrite: cannot be used with path_match_policy"},
		{template, `redirect: {prefix_rewrite: "/new"}`, "routes[0].redirect.prefix_rewrite: cannot be used with path_match_policy"},
	} {
		_, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*" routes: {match: {`+test.match+`} `+test.action+`}}`)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%.20s with %s: error %v, want %q", test.match, test.action, err, test.err)
		}
	}
}

func TestHashRewrite(t *testing.T) {
	read := func(rewrite string) (*RouteTable, error) {
		return readTableText(t, `virtual_hosts: {name: "v" domains: "*" routes: {match: {prefix: "/"} route: {cluster: "c" hash_policy: {header: {header_name: "x" `+rewrite+`}}}}}`)
	}
	for text, want := range map[string]*config.RegexRewrite{
		``: nil,
		`regex_rewrite: {pattern: {regex: "^(a).*"} substitution: "\\1"}`: {Pattern: "^(a).*", Substitution: `\1`},
	} {
		table, err := read(text)
		if err != nil {
			t.Errorf("%q: error %v, want none", text, err)
			continue
		}
		if diff := cmp.Diff(want, table.Config.VirtualHosts[0].Routes[0].Forward.HashPolicies[0].HeaderRewrite); diff != "" {
			t.Errorf("%q is read as - want + got:\n%s", text, diff)
		}
	}
	const at = "routes[0].route.hash_policy[0].header.regex_rewrite."
	for text, want := range map[string]string{
		`regex_rewrite: {}`:                                           at + "pattern: is required",
		`regex_rewrite: {pattern: {}}`:                                at + "pattern: is required",
		`regex_rewrite: {pattern: {regex: "("}}`:                      at + "pattern: error parsing regexp",
		`regex_rewrite: {pattern: {regex: "a"} substitution: "a\nb"}`: at + "substitution: contains a null character or a line break",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}
