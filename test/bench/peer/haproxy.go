package peer

import "fmt"

// HAProxy returns haproxy at the path, with one thread. RPC it carries as bytes:
// each connection has one of its own to the origin.
func HAProxy(path string) Program {
	return Program{Name: "haproxy", Path: path, configure: configureHAProxy, version: []string{"-v"}}
}

// strict-limits would refuse to start where fewer than 2*maxconn files may be
// open; idle connections need one each.
func configureHAProxy(c Config) ([]string, error) {
	mode, keep := "http", "\ttimeout http-request 300s\n\ttimeout http-keep-alive 300s\n\thttp-reuse always\n"
	if c.Protocol != nil {
		mode, keep = "tcp", ""
	}
	version := func(second bool) string {
		if second {
			return " proto h2"
		}
		return ""
	}
	bind := version(c.HTTP.Callers2)
	if c.HTTP.MutualTLS {
		bind = fmt.Sprintf(" ssl crt %s ca-file %s verify required ssl-min-ver TLSv1.3", c.Certificates.Both(), c.Certificates.CA())
	}
	path, err := write(c.Dir, "haproxy.cfg", fmt.Sprintf(`global
	nbthread 1
	maxconn %[1]d
	no strict-limits
defaults
	mode %[4]s
	timeout connect 5s
	timeout client 300s
	timeout server 300s
%[5]sfrontend f
	bind %[2]v backlog 4096%[6]s
	default_backend b
backend b
	server origin %[3]v%[7]s
`, c.Connections+256, c.Listen, c.Origin, mode, keep, bind, version(c.HTTP.Origin2)))
	return []string{"-db", "-f", path}, err
}
