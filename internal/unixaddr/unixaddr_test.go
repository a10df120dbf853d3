package unixaddr

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		text, address string
		isSocket      bool
		err           string // part of the error; "": none
	}{
		{"/run/web.sock", "/run/web.sock", true, ""},
		{"./web.sock", "./web.sock", true, ""},
		{"../web.sock", "../web.sock", true, ""},
		{"run/web.sock", "run/web.sock", true, ""},
		{"run/web:80", "run/web:80", true, ""},
		{"@web", "@web", true, ""},
		{"@web:80", "@web:80", true, ""},

		{"", "", false, ""},
		{"10.0.0.1:80", "10.0.0.1:80", false, ""},
		{":80", ":80", false, ""},
		{"[::1]:80", "[::1]:80", false, ""},
		{"[fe80::1%eth0]:80", "[fe80::1%eth0]:80", false, ""},
		{"localhost:80", "localhost:80", false, ""},
		{"web.example:80", "web.example:80", false, ""},
		{"web.sock", "web.sock", false, ""},
		{".web.example:80", ".web.example:80", false, ""},
		{"unix", "unix", false, ""},
		{"web@example:80", "web@example:80", false, ""},

		{"unix:/run/web.sock", "/run/web.sock", true, ""},
		{"unix:///run/web.sock", "/run/web.sock", true, ""},
		{"unix:run/web.sock", "run/web.sock", true, ""},
		{"unix:./web.sock", "./web.sock", true, ""},
		{"unix:web.sock", "./web.sock", true, ""},
		{"unix:localhost:80", "./localhost:80", true, ""},
		{"unix:80", "./80", true, ""},
		{"unix:@web", "@web", true, ""},

		{"./a:1/web.sock", "./a:1/web.sock", true, ""},
		{"@a:1/web", "@a:1/web", true, ""},
		{"http://10.0.0.1:80", "", false, "expected host:port or a path"},
		{"10.0.0.1:80/", "", false, "expected host:port or a path"},
		{"[::1]:80/path", "", false, "expected host:port or a path"},
		{"a:1/web.sock", "", false, `write "./a:1/web.sock"`},

		{"unix:", "", false, "expected a path"},
		{"unix://", "", false, "expected unix:///absolute/path"},
		{"unix://run/web.sock", "", false, "expected unix:///absolute/path"},
		{"unix://localhost:80", "", false, "expected unix:///absolute/path"},
		{"unix://@web", "", false, "expected unix:///absolute/path"},
	}
	for _, test := range tests {
		address, isSocket, err := Parse(test.text)
		if address != test.address || isSocket != test.isSocket {
			t.Errorf("Parse(%q) = %q, %v, want %q, %v", test.text, address, isSocket, test.address, test.isSocket)
		}
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("Parse(%q): error %v, want %q", test.text, err, test.err)
		}
		if err == nil && Is(address) != isSocket {
			t.Errorf("Is(%q) = %v after Parse(%q) returned %v", address, !isSocket, test.text, isSocket)
		}
	}
}

func TestFromPath(t *testing.T) {
	for path, want := range map[string]string{
		"/run/web.sock": "/run/web.sock",
		"run/web.sock":  "run/web.sock",
		"../web.sock":   "../web.sock",
		"web.sock":      "./web.sock",
		"localhost:80":  "./localhost:80",
		"@web":          "@web",
		"":              "",
	} {
		if got := FromPath(path); got != want {
			t.Errorf("FromPath(%q) = %q, want %q", path, got, want)
		}
		if path != "" && !Is(FromPath(path)) {
			t.Errorf("Is(FromPath(%q)) = false, want true", path)
		}
	}
}
