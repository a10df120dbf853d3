package basicauth

import (
	"context"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// Lines of users.
const (
	alice = `alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=` // password
	bob   = `bob:{SHA}3OptnM09ILoVSfbZtd3mB0IViII=`   // a:b
)

// send sends a request with header fields, and returns the exchange, and the value of X-User that
// the application received: "none" if it received no request.
func send(t *testing.T, s filtertest.Settings, fields ...string) (x *protocol.Exchange, user string, probe *filtertest.Probe) {
	t.Helper()
	f, probe := filtertest.Build(t, Factory(), s)
	x, user = newGET(fields...), "none"
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		user = ""
		for name, value := range x.Request.Header.All() {
			if protocol.EqualFoldUnderscore(name, "x-user") {
				user += value
			}
		}
		x.LocalReply(200, "", "")
		return nil
	})
	if err := x.Serve(t.Context(), f(app)); err != nil {
		t.Fatal(err)
	}
	return x, user, probe
}

func newGET(fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "GET", "https", "a.test", "/p?q"
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		x.Request.Header.Add(name, value)
	}
	return x
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for _, test := range []struct {
		settings filtertest.Settings
		password string // of alice
		want     int
	}{
		{examples[0], "password", 200},
		{examples[0], "other", 401},
		{examples[1], "admin", 200},
		{examples[1], "password", 401},
	} {
		if x, _, _ := send(t, test.settings, "Authorization: Basic "+credentials("alice", test.password)); x.Response.Status != test.want {
			t.Errorf("%s: status %d, want %d", test.password, x.Response.Status, test.want)
		}
	}
}

func TestAuthentication(t *testing.T) {
	const settings = `{"users": {"inline_string": "` + alice + `\n` + bob + `"}, "forward_username_header": "X-User"`
	valid := "Authorization: Basic " + credentials("alice", "password")
	for _, test := range []struct {
		name, settings string
		fields         []string
		user           string // "none": rejected
		detail         error
	}{
		{name: "valid", fields: []string{valid}, user: "alice"},
		{name: "password with a colon", fields: []string{"authorization: Basic " + credentials("bob", "a:b")}, user: "bob"},
		{name: "forged name of a user", fields: []string{"x-user: root", "X_User: root", valid}, user: "alice"},
		{name: "wrong password", fields: []string{"Authorization: Basic " + credentials("alice", "passwor")}, user: "none", detail: errWrong},
		{name: "password of another user", fields: []string{"Authorization: Basic " + credentials("alice", "a:b")}, user: "none", detail: errWrong},
		{name: "unknown user", fields: []string{"Authorization: Basic " + credentials("carol", "password")}, user: "none", detail: errWrong},
		{name: "empty password", fields: []string{"Authorization: Basic " + credentials("carol", "")}, user: "none", detail: errWrong},
		{name: "missing", user: "none", detail: errMissing},
		{name: "other scheme", fields: []string{"Authorization: Bearer x"}, user: "none", detail: errScheme},
		{name: "scheme in lower case", fields: []string{"Authorization: basic " + credentials("alice", "password")}, user: "none", detail: errScheme},
		{name: "no base64", fields: []string{"Authorization: Basic ???"}, user: "none", detail: errMalformed},
		{name: "no colon", fields: []string{"Authorization: Basic dQ=="}, user: "none", detail: errMalformed},
		{name: "twice", fields: []string{valid, "Authorization: x"}, user: "none", detail: errMalformed},
		{name: "missing is allowed", settings: `, "allow_missing": true`, fields: []string{"X-User: root"}, user: ""},
		{name: "other scheme is allowed", settings: `, "allow_missing": true`, fields: []string{"Authorization: Bearer x"}, user: ""},
		{name: "wrong is not allowed", settings: `, "allow_missing": true`, fields: []string{"Authorization: Basic dQ=="}, user: "none", detail: errMalformed},
		{name: "other header", settings: `, "authentication_header": "X-Auth"`, fields: []string{"x-auth: Basic " + credentials("alice", "password")}, user: "alice"},
		{name: "usual header with another one configured", settings: `, "authentication_header": "X-Auth"`, fields: []string{valid}, user: "none", detail: errMissing},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, user, probe := send(t, filtertest.Settings(settings+test.settings+"}"), test.fields...)
			if user != test.user {
				t.Errorf("the application received the user %q, want %q", user, test.user)
			}
			if test.detail == nil {
				if got := probe.Value(allowedMetric()); got != 1 {
					t.Errorf("%v requests allowed, want 1", got)
				}
				return
			}
			if x.Response.Status != 401 || x.Record.Detail != protocol.NewFault(protocol.Unauthenticated, test.detail).Error() || probe.Value(deniedMetric()) != 1 {
				t.Errorf("status %d, detail %q, %v denied; want 401 for %v", x.Response.Status, x.Record.Detail, probe.Value(deniedMetric()), test.detail)
			}
			if got := x.Response.Header.Get("WWW-Authenticate"); got != `Basic realm="https://a.test/p?q"` {
				t.Errorf("challenge %s, want the URL as realm", got)
			}
		})
	}
}

func TestRealm(t *testing.T) {
	x, _, _ := send(t, filtertest.Settings(`{"users": {"inline_string": "`+alice+`"}, "realm": "shop"}`))
	if got := x.Response.Header.Get("WWW-Authenticate"); got != `Basic realm="shop"` {
		t.Errorf("challenge %s, want the configured realm", got)
	}
}

func TestRouteInheritsSettings(t *testing.T) {
	f := Factory()
	listener := filtertest.Decode(t, f, filtertest.Settings(`{"users": {"inline_string": "`+alice+`"}, "forward_username_header": "x-user"}`))
	route := filtertest.Decode(t, f, filtertest.Settings(`{"users": {"inline_string": "`+bob+`"}, "inherit": true}`))
	if merged := f.Inherit(listener, route).(*Config); merged.ForwardUser != "x-user" || merged.Users.Inline != bob {
		t.Errorf("merged settings %+v, want the header of the listener and the users of the route", merged)
	}
	route = filtertest.Decode(t, f, filtertest.Settings(`{"users": {"inline_string": "`+bob+`"}}`))
	if merged := f.Inherit(listener, route); merged != route {
		t.Errorf("without inherit: %+v, want the settings of the route", merged)
	}
}

func TestUsersInFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte("# comment\r\n\r\n"+alice+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := filtertest.Settings(`{"users": {"filename": "` + path + `"}}`)
	if x, _, _ := send(t, settings, "Authorization: Basic "+credentials("alice", "password")); x.Response.Status != 200 {
		t.Errorf("status %d, want 200", x.Response.Status)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	inline := func(text string) string { return `{"users": {"inline_string": "` + text + `"}}` }
	for name, test := range map[string]struct{ settings, want string }{
		"no users":        {`{}`, "users"},
		"no source":       {`{"users": {}}`, "expected one of inline_string and filename"},
		"two sources":     {`{"users": {"inline_string": "a", "filename": "b"}}`, "expected one of inline_string and filename"},
		"missing file":    {`{"users": {"filename": "/nonexistent/users"}}`, "no such file"},
		"only a comment":  {inline("# x"), "there is no user"},
		"no colon":        {inline("alice"), "line 1: expected a name, a colon and a hash"},
		"no name":         {inline(":{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="), "line 1: expected a name"},
		"other hash":      {inline(alice + `\ncarol:$apr1$x`), "line 2: only hashes of the form {SHA}HASH"},
		"short hash":      {inline("alice:{SHA}W6ph"), "line 1: the text after {SHA} is not a SHA-1 hash"},
		"hash not base64": {inline("alice:{SHA}?"), "line 1: the text after {SHA} is not a SHA-1 hash"},
		"duplicate user":  {inline(alice + `\n` + alice), "line 2: the user has an earlier line"},
	} {
		t.Run(name, func(t *testing.T) {
			got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings))
			if !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
			if strings.Contains(got, "W6ph") || strings.Contains(got, "alice") {
				t.Errorf("the error %q contains a name or a hash", got)
			}
		})
	}
}

// FuzzParseUsers verifies that every line of an accepted text is a user with a password of 20
// bytes.
func FuzzParseUsers(f *testing.F) {
	for _, text := range []string{alice + "\n" + bob, "# x\r\n\r\n" + alice, "a:{SHA}", ":", "a:$apr1$b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseUsers(text)
		if (err == nil) != (len(u) > 0) {
			t.Errorf("parseUsers = %d users, %v; want users or an error", len(u), err)
		}
		for name := range u {
			if name == "" || !strings.Contains(text, name+":{SHA}") {
				t.Errorf("the user %q is not in the text", name)
			}
		}
	})
}

// credentials returns a name and a password in base64.
func credentials(name, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(name + ":" + password))
}
