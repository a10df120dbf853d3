// Package unixaddr decides which addresses are unix sockets.
package unixaddr

import (
	"fmt"
	"strings"
)

// Is reports whether address is a unix socket: a path, which contains a slash, or "@" and a name in
// Linux's abstract namespace (unix(7)). Other addresses are host:port.
func Is(address string) bool { return strings.Contains(address, "/") || IsAbstract(address) }

// IsAbstract reports whether name belongs to Linux's abstract namespace (unix(7)). An abstract
// socket has no file, so every process in the network namespace can connect to it.
func IsAbstract(name string) bool { return strings.HasPrefix(name, "@") }

// FromPath returns the address of the unix socket at path: if path has no slash, "./" and path. An
// abstract name and "" are returned unchanged.
func FromPath(path string) string {
	if path == "" || Is(path) {
		return path
	}
	return "./" + path
}

// Parse returns the address that text stands for, and whether it is a unix socket. Text with the
// prefix "unix:" is always a unix socket: "unix:path", "unix:///path" or "unix:@name". Parse
// returns other text unchanged. It returns an error for ambiguous text: if the prefix is followed
// by no path, or by "//" and a relative path, whose first element a URL parser takes for a host;
// and, without the prefix, for a colon before the first slash, as in "http://host" and "host:80/".
func Parse(text string) (address string, isSocket bool, err error) {
	path, isURL := strings.CutPrefix(text, "unix:")
	if !isURL {
		if first, _, found := strings.Cut(text, "/"); found && strings.Contains(first, ":") && !IsAbstract(text) {
			return "", false, fmt.Errorf("found %q, expected host:port or a path (to use a path of this name, write \"./%s\")", text, text)
		}
		return text, Is(text), nil
	}
	if absolute, found := strings.CutPrefix(path, "//"); found {
		if !strings.HasPrefix(absolute, "/") {
			return "", false, fmt.Errorf("found %q, expected unix:///absolute/path or unix:relative/path", text)
		}
		path = absolute
	}
	if path == "" {
		return "", false, fmt.Errorf("found %q, expected a path after \"unix:\"", text)
	}
	return FromPath(path), true, nil
}
