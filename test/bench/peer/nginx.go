package peer

import (
	"fmt"
	"os"
)

// NGINX returns the nginx at the path: a master and one worker. It supports only HTTP, because
// Debian's build has no stream module.
func NGINX(path string) Program {
	return Program{Name: "nginx", Path: path, HTTPOnly: true, configure: configureNGINX, version: []string{"-v"}}
}

// configureNGINX writes nginx.conf. nginx forwards HTTP/2 requests to the origin over HTTP/1.1;
// only its gRPC module uses HTTP/2 to the origin.
//
// The configuration removes the limit of 1,000 requests per connection, and buffers response bodies
// for slow readers in memory instead of on disk: neither is part of the comparison.
func configureNGINX(c Config) ([]string, error) {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // otherwise the worker may not enter the directory
	}
	listen := ""
	if c.HTTP.ClientHTTP2 {
		listen = " http2"
	}
	if c.HTTP.MutualTLS {
		listen = fmt.Sprintf(` ssl;
		ssl_protocols TLSv1.3;
		ssl_certificate %s;
		ssl_certificate_key %s;
		ssl_client_certificate %s;
		ssl_verify_client on`, c.Certificates.Certificate(), c.Certificates.Key(), c.Certificates.CA())
	}
	pass := `proxy_pass http://origin;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_max_temp_file_size 0;`
	if c.HTTP.GRPC || c.HTTP.OriginHTTP2 && !c.HTTP.ClientHTTP2 {
		pass = `grpc_pass grpc://origin;
			grpc_read_timeout 300s;
			grpc_send_timeout 300s;`
	}
	path, err := write(c.Dir, "nginx.conf", user+fmt.Sprintf(`worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log stderr error;
events { worker_connections %[2]d; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	keepalive_requests 1000000000;
	keepalive_timeout 300s;
	client_header_timeout 300s;
	tcp_nodelay on;
	client_max_body_size 0;
	http2_max_concurrent_streams 1000;
	http2_idle_timeout 300s;
	upstream origin {
		server %[4]v;
		keepalive 256;
		keepalive_requests 1000000000;
		keepalive_timeout 300s;
	}
	server {
		listen %[3]v backlog=4096%[5]s;
		location / {
			%[6]s
		}
	}
}
`, c.Dir, c.Connections+1024, c.Listen, c.Origin, listen, pass))
	return []string{"-p", c.Dir, "-e", "stderr", "-c", path}, err
}
