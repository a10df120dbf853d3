package load

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/certs"
)

// TestHandshakeCount verifies that HTTPS does one handshake per connection and HTTPSFresh one per
// request, without resumption and with the client's certificate.
func TestHandshakeCount(t *testing.T) {
	dir := certs.Dir(t.TempDir())
	if err := dir.Write(); err != nil {
		t.Fatal(err)
	}
	certificates, err := tls.LoadX509KeyPair(dir.Certificate(), dir.Key())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(dir.CA())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	for _, test := range []struct {
		protocol, request string
		perRequest        bool // one handshake per request
	}{
		{HTTPS, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{HTTPSFresh, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", true},
	} {
		t.Run(test.protocol, func(t *testing.T) {
			var requests, handshakes, resumed atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				_, _ = w.Write(make([]byte, 1000))
			}))
			server.TLS = &tls.Config{
				Certificates: []tls.Certificate{certificates}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
				VerifyConnection: func(state tls.ConnectionState) error {
					handshakes.Add(1)
					if state.DidResume {
						resumed.Add(1)
					}
					return nil
				},
			}
			server.StartTLS()
			defer server.Close()
			result, err := Run(Job{
				Address: netip.MustParseAddrPort(server.Listener.Addr().String()), Protocol: test.protocol, Request: []byte(test.request),
				Body: 1000, Connections: 3, Depth: 1, Measure: 50 * time.Millisecond, Certificates: dir,
			})
			if err != nil {
				t.Fatal(err)
			}
			want := int64(3)
			if test.perRequest {
				want = requests.Load()
			}
			if n := int64(result.Requests); n < 3 || n != requests.Load() || handshakes.Load() != want || resumed.Load() != 0 {
				t.Errorf("%d requests, %d arrived, with %d handshakes, want %d; %d resumed",
					n, requests.Load(), handshakes.Load(), want, resumed.Load())
			}
		})
	}
}

func TestWrongResponseOverTLS(t *testing.T) {
	dir := certs.Dir(t.TempDir())
	if err := dir.Write(); err != nil {
		t.Fatal(err)
	}
	certificates, err := tls.LoadX509KeyPair(dir.Certificate(), dir.Key())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 999))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificates}}
	server.StartTLS()
	defer server.Close()
	for name, job := range map[string]Job{
		"wrong length":                 {Protocol: HTTPS, Body: 1000, Request: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")},
		"missing Connection: close":    {Protocol: HTTPSFresh, Body: 999, Request: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")},
		"unexpected Connection: close": {Protocol: HTTPS, Body: 999, Request: []byte("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")},
		"open loop":                    {Protocol: HTTPS, Body: 999, Request: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Rate: 1},
	} {
		job.Address, job.Certificates = netip.MustParseAddrPort(server.Listener.Addr().String()), dir
		job.Connections, job.Depth, job.Measure = 1, 1, time.Second
		if _, err := Run(job); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
