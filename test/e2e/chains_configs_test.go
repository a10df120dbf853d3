package e2e

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
)

func filterChainsExample(t *testing.T) {
	certs := exampleCertDir(t)
	bank := certs.ca.Issue(testpki.Spec{CommonName: "bank", DNS: []string{"bank.example"}})
	e := loadExample(t, "filter_chains.json")
	e.run("filter_chains.json", "CERTS="+certs.dir,
		"BANK_ADDRESS="+serveTLS(t, bank.TLS, "the bank\n"), "OTHER_ADDRESS="+startTCPEcho(t))
	address := e.address("2445")
	for name, want := range map[string]string{
		"shop.example": "shop the shop\n", "v1.api.example": "api the API\n", "bank.example": "bank the bank\n", "other.example": "EOF", "": "EOF",
	} {
		if got := requestWithSNI(t, certs, address, name); got != want {
			t.Errorf("SNI %q: %q, want %q", name, got, want)
		}
	}
	if got := sendRequest(t, newClient(t), "GET", "http://"+address+"/a", ""); got.status != 301 || !strings.HasPrefix(got.header.Get("Location"), "https://") {
		t.Errorf("plaintext: %d, Location %q; want a redirect to https", got.status, got.header.Get("Location"))
	}
	const rawBytes = "\x00\x01hello\n" // neither TLS nor HTTP
	if got := sendAndReceive(t, address, rawBytes); got != rawBytes {
		t.Errorf("echo of bytes that are neither TLS nor HTTP: %q, want %q", got, rawBytes)
	}
}

// serveTLS starts a server that responds to every request over TLS with text.
func serveTLS(t *testing.T, cert tls.Certificate, text string) (address string) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return ln.Addr().String()
}

// startTCPEcho starts a TCP server that echoes what it receives.
func startTCPEcho(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// requestWithSNI connects over TLS with name as SNI, sends a GET over HTTP/1.1, and returns the
// common name of the certificate and the body, or the text of the error.
func requestWithSNI(t *testing.T, certs *certDir, address, name string) string {
	t.Helper()
	nc, err := net.DialTimeout("tcp", address, waitTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitTimeout))
	c := tls.Client(nc, &tls.Config{RootCAs: certs.ca.Pool(), ServerName: name, InsecureSkipVerify: name == ""})
	if err := c.Handshake(); err != nil {
		return err.Error()
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		return err.Error()
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName + " " + string(body)
}

// sendAndReceive sends text and reads as many bytes back. It returns these bytes, followed by the
// error if there is one.
func sendAndReceive(t *testing.T, address, text string) string {
	t.Helper()
	nc, err := net.DialTimeout("tcp", address, waitTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(text))
	n, err := io.ReadFull(nc, b)
	if err != nil {
		return string(b[:n]) + err.Error()
	}
	return string(b)
}
