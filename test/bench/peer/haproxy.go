package peer

import "fmt"

// HAProxy returns the haproxy at the path, with one thread. It forwards RPC as bytes and opens an
// origin connection for each client connection.
func HAProxy(path string) Program {
	return Program{Name: "haproxy", Path: path, configure: configureHAProxy, version: []string{"-v"}}
}

// configureHAProxy writes haproxy.cfg. Without no-strict-limits haproxy does not start if fewer
// than 2*maxconn descriptors may be open, but an idle connection needs only one.
func configureHAProxy(c Config) ([]string, error) {
	mode, keepAlive := "http", "\ttimeout http-request 300s\n\ttimeout http-keep-alive 300s\n\thttp-reuse always\n"
	if c.Protocol != nil {
		mode, keepAlive = "tcp", ""
	}
	version := func(http2 bool) string {
		if http2 {
			return " proto h2"
		}
		return ""
	}
	bind := version(c.HTTP.ClientHTTP2)
	if c.HTTP.MutualTLS {
		bind = fmt.Sprintf(" ssl crt %s ca-file %s verify required ssl-min-ver TLSv1.3", c.Certificates.CertificateAndKey(), c.Certificates.CA())
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
`, c.Connections+256, c.Listen, c.Origin, mode, keepAlive, bind, version(c.HTTP.OriginHTTP2)))
	return []string{"-db", "-f", path}, err
}
