package peer

import "fmt"

// HAProxy returns haproxy at the path, with one thread.
func HAProxy(path string) Program {
	return Program{Name: "haproxy", Path: path, configure: configureHAProxy, version: []string{"-v"}}
}

// strict-limits would refuse to start where fewer than 2*maxconn files may be
// open; idle connections need one each.
func configureHAProxy(c Config) ([]string, error) {
	path, err := write(c.Dir, "haproxy.cfg", fmt.Sprintf(`global
	nbthread 1
	maxconn %[1]d
	no strict-limits
defaults
	mode http
	timeout connect 5s
	timeout client 300s
	timeout server 300s
	timeout http-request 300s
	timeout http-keep-alive 300s
	http-reuse always
frontend f
	bind %[2]v backlog 4096
	default_backend b
backend b
	server origin %[3]v
`, c.Connections+256, c.Listen, c.Origin))
	return []string{"-db", "-f", path}, err
}
