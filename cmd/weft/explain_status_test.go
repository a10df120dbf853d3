package main

import (
	"strings"
	"testing"
)

func TestExplainExitStatusWithoutRoute(t *testing.T) {
	path := writeConfig(t, configText(listenerText("front", "127.0.0.1:1801", "")+","+listenerText("admin", "127.0.0.1:1802", ""), "", ""))
	for name, c := range map[string]struct {
		args   []string
		status int
		out    string
	}{
		"a route with a direct response":             {[]string{"http://127.0.0.1:1801/"}, 0, `listener "front"`},
		"an unknown listener":                        {[]string{"http://127.0.0.1:1801/", "--listener", "fornt"}, 1, `result: listener "fornt" is not defined; did you mean "front"?`},
		"an unknown listener without a similar name": {[]string{"http://127.0.0.1:1801/", "--listener", "zzz"}, 1, "result: listener \"zzz\" is not defined\n"},
		"a port without a listener":                  {[]string{"http://127.0.0.1:9999/"}, 1, "result: "},
		"a port without a listener, as JSON":         {[]string{"http://127.0.0.1:9999/", "-o", "json"}, 1, `"end_reason": "`},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := runWeft(t, append([]string{"explain", "-c", path}, c.args...)...)
			if status != c.status || !strings.Contains(out, c.out) || errs != "" {
				t.Errorf("status %d, %s%s; want %d and %q", status, out, errs, c.status, c.out)
			}
		})
	}
}
