package proxy

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"
)

func TestHostsOnUnixSockets(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, address := range []string{t.TempDir() + "/web.sock", "./web.sock", "@" + t.TempDir()} {
		ln, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		serveAt(t, ln, &http.Server{Handler: respondText("app"), ReadHeaderTimeout: time.Minute})
		_, front := setup{routes: routeTo("app"), clusters: cluster("app", address)}.run(t)
		if got := dialClient(t, front).roundTrip("GET / HTTP/1.1\r\nHost: h\r\n\r\n"); got.body != "app" {
			t.Errorf("host %s: response %d %q, want 200 app", address, got.StatusCode, got.body)
		}
	}
}

func TestUnixSocketsReceiveNoDatagrams(t *testing.T) {
	for _, address := range []string{"/run/web.sock", "./web.sock", "@web"} {
		r, _ := setup{routes: routeTo("app"), clusters: cluster("app", address)}.run(t)
		if _, err := (datagramHosts{r.server.clusters}).Lease("app", 0, nil); !errors.Is(err, errUnixSocket) {
			t.Errorf("Lease of host %s: %v, want %v", address, err, errUnixSocket)
		}
	}
}
