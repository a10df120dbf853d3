package resource

import (
	"regexp"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
)

func readTemplate(t *testing.T, text string) (expression string, err error) {
	t.Helper()
	r := &report{}
	policy := &corev3.TypedExtensionConfig{TypedConfig: packed(t, &templatev3.UriTemplateMatchConfig{PathTemplate: text})}
	return fieldReader{report: r}.readURITemplate(policy), r.rejection()
}

func TestURITemplates(t *testing.T) {
	for _, test := range []struct{ template, matching, other string }{
		{"/a", "/a", "/a/ /ab /A"},
		{"/a.b", "/a.b", "/axb"},
		{"/a/*", "/a/1 /a/x.y", "/a /a/ /a/1/2 /b/1"},
		{"/a/**", "/a/ /a/1 /a/1/2", "/a /b/1"},
		{"/a/*/b", "/a/1/b", "/a/b /a/1/2/b"},
		{"/a/{id}", "/a/1", "/a/ /a/1/2"},
		{"/a/{id}/b/{rest=**}", "/a/1/b/ /a/1/b/2/3", "/a/1/b /a/b/2"},
		{"/{file=docs/*}.html", "/docs/x.html", "/docs/x.txt /doc/x.html"},
		{"/**.m3u8", "/a/b.m3u8 /.m3u8", "/a/b.m3u"},
	} {
		expression, err := readTemplate(t, test.template)
		if err != nil {
			t.Errorf("%s: error %v, want none", test.template, err)
			continue
		}
		re := regexp.MustCompile(expression)
		for path := range strings.FieldsSeq(test.matching) {
			if !re.MatchString(path) {
				t.Errorf("%s does not match %s, want a match", test.template, path)
			}
		}
		for path := range strings.FieldsSeq(test.other) {
			if re.MatchString(path) {
				t.Errorf("%s matches %s, want no match", test.template, path)
			}
		}
	}
	for template, want := range map[string]string{
		"a":           "does not begin with a slash",
		"/{":          "malformed variable",
		"/{}":         "malformed variable",
		"/{a=}":       "malformed variable",
		"/a}":         "not a valid part of a path template",
		"/{a={b}}":    "not a valid part of a path template",
		"/***":        "not a valid part of a path template",
		"/**/{a}":     "only literal text may follow **",
		"/{a=**}/b/*": "only literal text may follow **",
	} {
		if _, err := readTemplate(t, template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
}
