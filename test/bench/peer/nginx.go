package peer

import (
	"fmt"
	"os"
)

// NGINX returns nginx at the path: a master and one worker. Debian's has no module
// for other protocols.
func NGINX(path string) Program {
	return Program{Name: "nginx", Path: path, HTTP: true, configure: configureNGINX, version: []string{"-v"}}
}

// The limits of requests per connection, 1,000 by default on both sides, are
// lifted for every program, and a body that a slow reader leaves behind stays in
// memory: neither belongs to what is compared.
func configureNGINX(c Config) ([]string, error) {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // else the worker may not enter the directory
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
	upstream origin {
		server %[4]v;
		keepalive 256;
		keepalive_requests 1000000000;
		keepalive_timeout 300s;
	}
	server {
		listen %[3]v backlog=4096;
		location / {
			proxy_pass http://origin;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_max_temp_file_size 0;
		}
	}
}
`, c.Dir, c.Connections+1024, c.Listen, c.Origin))
	return []string{"-p", c.Dir, "-e", "stderr", "-c", path}, err
}
