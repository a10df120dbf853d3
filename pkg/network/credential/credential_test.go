package credential

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
)

// connPair returns both ends of a connection.
func connPair() (local, peer net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	if peer, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		panic(err)
	}
	if local, err = ln.Accept(); err != nil {
		panic(err)
	}
	return local, peer
}

// handshake performs a handshake and returns the state and the error of each side.
func handshake(server, client *tls.Config) (clientState, serverState tls.ConnectionState, clientErr, serverErr error) {
	local, peer := connPair()
	defer local.Close()
	defer peer.Close()
	deadline := time.Now().Add(5 * time.Second)
	_, _ = local.SetDeadline(deadline), peer.SetDeadline(deadline)
	done := make(chan error, 1)
	serverConn := tls.Server(local, server)
	go func() {
		err := serverConn.Handshake()
		if err == nil {
			_, err = serverConn.Write([]byte("x")) // after the tickets
		}
		if err != nil {
			local.Close()
		}
		done <- err
	}()
	clientConn := tls.Client(peer, client)
	if clientErr = clientConn.Handshake(); clientErr == nil {
		_, clientErr = io.ReadFull(clientConn, make([]byte, 1))
	}
	if clientErr != nil {
		peer.Close()
	}
	serverErr = <-done
	return clientConn.ConnectionState(), serverConn.ConnectionState(), clientErr, serverErr
}

// inlinePEM returns the certificate and the key of l as inline PEM text.
func inlinePEM(l testpki.Leaf) (cert, key PEM) {
	return PEM{Text: string(l.Cert)}, PEM{Text: string(l.Key)}
}

func TestServerSelectsByNameThenALPN(t *testing.T) {
	ca := testpki.New(t)
	var contexts []*Context
	add := func(cn string, dns, names, alpn []string) {
		c := &Context{ServerNames: names, ALPN: alpn}
		c.Certificate, c.Key = inlinePEM(ca.Issue(testpki.Spec{CommonName: cn, DNS: dns}))
		contexts = append(contexts, c)
	}
	add("first", []string{"one.example"}, nil, []string{"http/1.1"})
	add("wild", []string{"*.example"}, nil, []string{"http/1.1"})
	add("deeper", []string{"*.deep.example"}, nil, []string{"http/1.1"})
	add("h2", []string{"two.example"}, nil, []string{"h2"})
	add("h1", []string{"two.example"}, nil, []string{"http/1.1"})
	add("named", []string{"other.example"}, []string{"Alias.Example"}, nil)
	add("common.test", nil, nil, nil)
	server, err := NewReloader(nil, nil).NewServer(contexts)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, sni string
		alpn      []string
		want      string
	}{
		{"exact name", "one.example", nil, "first"},
		{"exact before wildcard", "two.example", nil, "h2"},
		{"same name, by ALPN", "two.example", []string{"http/1.1"}, "h1"},
		{"wildcard", "any.example", nil, "wild"},
		{"longer wildcard", "a.deep.example", nil, "deeper"},
		{"wildcard for two labels", "a.b.example", nil, "wild"},
		{"other case and trailing dot", "ANY.example.", nil, "wild"},
		{"configured name", "alias.example", nil, "named"},
		{"common name without SANs", "common.test", nil, "common.test"},
		{"unknown name, by ALPN", "unknown.test", []string{"h2"}, "h2"},
		{"no name, by ALPN", "", []string{"h2"}, "h2"},
		{"no match: first context", "unknown.test", nil, "first"},
	} {
		t.Run(test.name, func(t *testing.T) {
			hello := &tls.ClientHelloInfo{ServerName: test.sni, SupportedProtos: test.alpn}
			config, err := server.Config().GetConfigForClient(hello)
			if err != nil {
				t.Fatal(err)
			}
			if got := config.Certificates[0].Leaf.Subject.CommonName; got != test.want {
				t.Errorf("%q, %v: chose %q, want %q", test.sni, test.alpn, got, test.want)
			}
		})
	}
}

func TestSafeVersionsAndCiphersByDefault(t *testing.T) {
	ca := testpki.New(t)
	c := &Context{}
	c.Certificate, c.Key = inlinePEM(ca.Issue(testpki.Spec{RSA: true}))
	legacyContext := *c
	legacyContext.MinVersion = tls.VersionTLS10
	for _, test := range []struct {
		name    string
		context *Context
		client  *tls.Config
		want    bool
	}{
		{"TLS 1.3", c, &tls.Config{MinVersion: tls.VersionTLS13}, true},
		{"TLS 1.2", c, &tls.Config{MaxVersion: tls.VersionTLS12}, true},
		{"TLS 1.1", c, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		{"CBC", c, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}, false},
		{"no forward secrecy", c, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}}, false},
		{"TLS 1.0, configured", &legacyContext, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, err := NewReloader(nil, nil).NewServer([]*Context{test.context})
			if err != nil {
				t.Fatal(err)
			}
			test.client.RootCAs, test.client.ServerName = ca.Pool(), "127.0.0.1"
			if _, _, err, _ := handshake(server.Config(), test.client); (err == nil) != test.want {
				t.Errorf("handshake: %v, want success: %v", err, test.want)
			}
		})
	}
}

func TestCipherNames(t *testing.T) {
	for _, test := range []struct {
		name     string
		id       uint16
		safe, ok bool
	}{
		{"ECDHE-RSA-AES256-GCM-SHA384", tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, true, true},
		{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, true, true},
		{"ECDHE-RSA-CHACHA20-POLY1305", tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, true, true},
		{"ecdhe-rsa-aes128-sha", tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, false, true},
		{"AES128-GCM-SHA256", tls.TLS_RSA_WITH_AES_128_GCM_SHA256, false, true},
		{"AES256-SHA", tls.TLS_RSA_WITH_AES_256_CBC_SHA, false, true},
		{"EXP-RC4-MD5", 0, false, false},
		{"TLS_AES_128_GCM_SHA256", 0, false, false}, // TLS 1.3: not configurable
	} {
		if id, safe, ok := Cipher(test.name); id != test.id || safe != test.safe || ok != test.ok {
			t.Errorf("Cipher(%q) = %#x, %v, %v; want %#x, %v, %v", test.name, id, safe, ok, test.id, test.safe, test.ok)
		}
	}
}

// exactName is a NameMatcher that matches only itself.
type exactName string

func (n exactName) MatchValue(name string) bool { return name == string(n) }

func TestPeerSANs(t *testing.T) {
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{CommonName: "orders", DNS: []string{"Orders.shop.example", "*.api.shop.example"}, URIs: []string{"spiffe://shop/ns/a/sa/orders"}, IPs: []string{"10.0.0.1"}})
	for _, test := range []struct {
		name    string
		matcher SANMatcher
		want    bool
	}{
		{"DNS name in another case", SANMatcher{Type: DNS, DNSName: "orders.shop.example"}, true},
		{"DNS name of a wildcard", SANMatcher{Type: DNS, DNSName: "v1.api.shop.example"}, true},
		{"wildcard covers only one label", SANMatcher{Type: DNS, DNSName: "a.v1.api.shop.example"}, false},
		{"the wildcard itself", SANMatcher{Type: DNS, DNSName: "*.api.shop.example"}, true},
		{"IP address as DNS name", SANMatcher{Type: DNS, DNSName: "10.0.0.1"}, false},
		{"common name", SANMatcher{Type: DNS, DNSName: "orders"}, false},
		{"condition on DNS names", SANMatcher{Type: DNS, Name: exactName("*.api.shop.example")}, true},
		{"URI", SANMatcher{Type: URI, Name: exactName("spiffe://shop/ns/a/sa/orders")}, true},
		{"another trust domain", SANMatcher{Type: URI, Name: exactName("spiffe://bank/ns/a/sa/orders")}, false},
		{"IP", SANMatcher{Type: IP, Name: exactName("10.0.0.1")}, true},
		{"a DNS name is not a URI", SANMatcher{Type: URI, Name: exactName("Orders.shop.example")}, false},
		{"a URI is not an email address", SANMatcher{Type: Email, Name: exactName("spiffe://shop/ns/a/sa/orders")}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Context{TrustedCA: PEM{Text: string(ca.PEM)}, ClientAuth: tls.RequireAndVerifyClientCert, PeerSANs: []SANMatcher{test.matcher}}
			c.Certificate, c.Key = inlinePEM(ca.Issue(testpki.Spec{}))
			server, err := NewReloader(nil, nil).NewServer([]*Context{c})
			if err != nil {
				t.Fatal(err)
			}
			client := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{leaf.TLS}}
			_, _, err, serverErr := handshake(server.Config(), client)
			if (err == nil) != test.want {
				t.Fatalf("handshake: %v, want success: %v", err, test.want)
			}
			if serverErr != nil && HandshakeFailureOf(serverErr) != SANMismatch {
				t.Errorf("HandshakeFailureOf(%v) = %v, want %v", serverErr, HandshakeFailureOf(serverErr), SANMismatch)
			}
		})
	}
}

func TestClientVerifiesByDefault(t *testing.T) {
	ca, otherCA := testpki.New(t), testpki.New(t)
	trustedCA := PEM{Text: string(ca.PEM)}
	spiffe := []SANMatcher{{Type: URI, Name: exactName("spiffe://shop/b")}}
	validLeaf := ca.Issue(testpki.Spec{DNS: []string{"b.example"}, URIs: []string{"spiffe://shop/b"}})
	for _, test := range []struct {
		name    string
		leaf    testpki.Leaf
		context Context
		host    string
		want    HandshakeFailure // OtherFailure: the handshake succeeds
	}{
		{"host name", validLeaf, Context{TrustedCA: trustedCA}, "b.example", OtherFailure},
		{"wrong name", validLeaf, Context{TrustedCA: trustedCA}, "c.example", SANMismatch},
		{"configured name", validLeaf, Context{TrustedCA: trustedCA, ServerNames: []string{"b.example"}}, "c.example", OtherFailure},
		{"IP address", ca.Issue(testpki.Spec{}), Context{TrustedCA: trustedCA}, "127.0.0.1", OtherFailure},
		{"untrusted CA", otherCA.Issue(testpki.Spec{DNS: []string{"b.example"}}), Context{TrustedCA: trustedCA}, "b.example", Untrusted},
		{"CA not trusted by the system", validLeaf, Context{}, "b.example", Untrusted},
		{"expired", ca.Issue(testpki.Spec{DNS: []string{"b.example"}, NotAfter: time.Now().Add(-time.Hour)}), Context{TrustedCA: trustedCA}, "b.example", Expired},
		{"peer SAN instead of name", validLeaf, Context{TrustedCA: trustedCA, PeerSANs: spiffe}, "c.example", OtherFailure},
		{"any name, trusted CA", validLeaf, Context{TrustedCA: trustedCA, SkipNameVerify: true}, "c.example", OtherFailure},
		{"any name, untrusted CA", otherCA.Issue(testpki.Spec{DNS: []string{"b.example"}}), Context{TrustedCA: trustedCA, SkipNameVerify: true}, "b.example", Untrusted},
		{"wrong peer SAN", ca.Issue(testpki.Spec{DNS: []string{"b.example"}}), Context{TrustedCA: trustedCA, PeerSANs: spiffe}, "b.example", SANMismatch},
		{"peer SAN, untrusted CA", otherCA.Issue(testpki.Spec{URIs: []string{"spiffe://shop/b"}}), Context{TrustedCA: trustedCA, PeerSANs: spiffe}, "b.example", Untrusted},
		{"insecure_skip", otherCA.Issue(testpki.Spec{}), Context{SkipVerify: true}, "b.example", OtherFailure},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, err := NewReloader(nil, nil).NewClient(&test.context)
			if err != nil {
				t.Fatal(err)
			}
			server := &tls.Config{Certificates: []tls.Certificate{test.leaf.TLS}, NextProtos: []string{"h2"}}
			for range 2 { // the second handshake may resume the session
				state, _, err, _ := handshake(server, client.Config(Peer{Name: test.host, Address: "10.0.0.1:1"}, []string{"h2"}))
				if (err == nil) != (test.want == OtherFailure) || err != nil && HandshakeFailureOf(err) != test.want {
					t.Fatalf("handshake: %v, want %v", err, test.want)
				}
				if err == nil && state.NegotiatedProtocol != "h2" {
					t.Errorf("ALPN chose %q, want h2", state.NegotiatedProtocol)
				}
			}
		})
	}
}

func TestSessionsAreResumedByHost(t *testing.T) {
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{DNS: []string{"b.example"}})
	c := &Context{Certificate: PEM{Text: string(leaf.Cert)}, Key: PEM{Text: string(leaf.Key)}}
	reloader := NewReloader(nil, nil)
	server, err := reloader.NewServer([]*Context{c})
	if err != nil {
		t.Fatal(err)
	}
	client, err := reloader.NewClient(&Context{TrustedCA: PEM{Text: string(ca.PEM)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, address string
		rotations     int
		want          bool
	}{
		{"first handshake", "a:1", 0, false},
		{"same host", "a:1", 0, true},
		{"another host", "b:1", 0, false},
		{"after one key rotation", "a:1", 1, true},
		{"after two key rotations", "b:1", 2, false},
	} {
		for range step.rotations {
			reloader.Rotate()
		}
		state, _, err, _ := handshake(server.Config(), client.Config(Peer{Name: "b.example", Address: step.address}, nil))
		if err != nil || state.DidResume != step.want {
			t.Errorf("%s: resumed %v (%v), want %v", step.name, state.DidResume, err, step.want)
		}
	}
}

// mountedServer is a server whose files are in a directory that is laid out like a Kubernetes
// volume: its files are symbolic links into ..data, which links to the current version.
type mountedServer struct {
	dir          string
	ca           *testpki.Authority
	reloader     *Reloader
	server       *Server
	reloadErrors []error
}

func newMountedServer(t *testing.T) *mountedServer {
	t.Helper()
	s := &mountedServer{dir: t.TempDir(), ca: testpki.New(t)}
	s.reloader = NewReloader(nil, func(err error) { s.reloadErrors = append(s.reloadErrors, err) })
	s.swap(t, "v1", "one")
	for _, name := range []string{"tls.pem", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	s.server, err = s.reloader.NewServer([]*Context{{
		Certificate: PEM{Path: filepath.Join(s.dir, "tls.pem")}, Key: PEM{Path: filepath.Join(s.dir, "tls.key")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// swap links ..data to a new version atomically.
func (s *mountedServer) swap(t *testing.T, version, cn string) {
	t.Helper()
	dir := filepath.Join(s.dir, version)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	leaf := s.ca.Issue(testpki.Spec{CommonName: cn})
	leaf.Write(t, dir, "tls")
	next := filepath.Join(s.dir, "..next")
	if err := errors.Join(os.Symlink(version, next), os.Rename(next, filepath.Join(s.dir, "..data"))); err != nil {
		t.Fatal(err)
	}
}

// servedName returns the common name of the server's certificate.
func (s *mountedServer) servedName(t *testing.T) string {
	t.Helper()
	state, _, err, _ := handshake(s.server.Config(), &tls.Config{RootCAs: s.ca.Pool(), ServerName: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return state.PeerCertificates[0].Subject.CommonName
}

func TestChangedFilesAreReloaded(t *testing.T) {
	t.Run("replaced symbolic link", func(t *testing.T) {
		s := newMountedServer(t)
		s.reloader.ReloadChanged()
		if len(s.reloadErrors) > 0 {
			t.Fatalf("reload without a change: errors %v, want none", s.reloadErrors)
		}
		s.swap(t, "v2", "two")
		s.reloader.ReloadChanged()
		if got := s.servedName(t); got != "two" || len(s.reloadErrors) != 1 || s.reloadErrors[0] != nil {
			t.Errorf("certificate %q, reloads %v; want two and one success", got, s.reloadErrors)
		}
	})
	t.Run("one file at a time", func(t *testing.T) {
		s := newMountedServer(t)
		leaf := s.ca.Issue(testpki.Spec{CommonName: "two"})
		if err := os.WriteFile(filepath.Join(s.dir, "v1", "tls.pem"), leaf.Cert, 0o600); err != nil {
			t.Fatal(err)
		}
		s.reloader.ReloadChanged()
		s.reloader.ReloadChanged()
		if got := s.servedName(t); got != "one" || len(s.reloadErrors) != 1 || s.reloadErrors[0] == nil {
			t.Errorf("after the first file: certificate %q, reloads %v; want one and one failure", got, s.reloadErrors)
		}
		if err := os.WriteFile(filepath.Join(s.dir, "v1", "tls.key"), leaf.Key, 0o600); err != nil {
			t.Fatal(err)
		}
		s.reloader.ReloadChanged()
		if got := s.servedName(t); got != "two" {
			t.Errorf("certificate %q, want two", got)
		}
	})
	t.Run("deleted files", func(t *testing.T) {
		s := newMountedServer(t)
		if err := os.RemoveAll(filepath.Join(s.dir, "v1")); err != nil {
			t.Fatal(err)
		}
		s.reloader.ReloadChanged()
		if got := s.servedName(t); got != "one" {
			t.Errorf("certificate %q, want one", got)
		}
	})
	t.Run("after Close", func(t *testing.T) {
		s := newMountedServer(t)
		s.server.Close()
		s.swap(t, "v2", "two")
		s.reloader.ReloadChanged()
		if got := s.servedName(t); got != "one" || len(s.reloadErrors) > 0 {
			t.Errorf("certificate %q, reloads %v; want one and none", got, s.reloadErrors)
		}
	})
}

func TestTrustedCAChangeInvalidatesTickets(t *testing.T) {
	ca, nextCA := testpki.New(t), testpki.New(t)
	dir := t.TempDir()
	path := ca.Write(dir)
	c := &Context{TrustedCA: PEM{Path: path}, ClientAuth: tls.RequireAndVerifyClientCert}
	c.Certificate, c.Key = inlinePEM(ca.Issue(testpki.Spec{}))
	reloader := NewReloader(nil, nil)
	server, err := reloader.NewServer([]*Context{c})
	if err != nil {
		t.Fatal(err)
	}
	leaf := ca.Issue(testpki.Spec{})
	client := &tls.Config{
		RootCAs: ca.Pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{leaf.TLS},
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	for _, want := range []bool{false, true} {
		if state, _, err, _ := handshake(server.Config(), client); err != nil || state.DidResume != want {
			t.Fatalf("resumed %v, %v; want %v", state.DidResume, err, want)
		}
	}
	nextCA.Write(dir)
	reloader.ReloadChanged()
	if _, _, _, err := handshake(server.Config(), client); err == nil || HandshakeFailureOf(err) != Untrusted {
		t.Errorf("client certificate of the previous CA: %v, want Untrusted", err)
	}
}

func TestHandshakeFailureOf(t *testing.T) {
	ca := testpki.New(t)
	c := &Context{ALPN: []string{"h2"}, TrustedCA: PEM{Text: string(ca.PEM)}, ClientAuth: tls.RequireAndVerifyClientCert}
	c.Certificate, c.Key = inlinePEM(ca.Issue(testpki.Spec{}))
	server, err := NewReloader(nil, nil).NewServer([]*Context{c})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		client *tls.Config
		want   HandshakeFailure
	}{
		{&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, NoVersion},
		{&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}}, NoCipher},
		{&tls.Config{NextProtos: []string{"foo"}}, NoProtocol},
		{&tls.Config{}, NoCertificate},
		{&tls.Config{Certificates: []tls.Certificate{testpki.New(t).Issue(testpki.Spec{}).TLS}}, Untrusted},
		{&tls.Config{Certificates: []tls.Certificate{ca.Issue(testpki.Spec{NotAfter: time.Now().Add(-time.Hour)}).TLS}}, Expired},
	} {
		t.Run(test.want.String(), func(t *testing.T) {
			test.client.RootCAs, test.client.ServerName = ca.Pool(), "127.0.0.1"
			if test.want == Untrusted { // by default, a client sends only certificates of the CAs that the server lists
				leaf := test.client.Certificates[0]
				test.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
			}
			_, _, _, err := handshake(server.Config(), test.client)
			if err == nil || HandshakeFailureOf(err) != test.want {
				t.Errorf("handshake: %v, want the failure %v", err, test.want)
			}
		})
	}
	t.Run(PeerAlert.String(), func(t *testing.T) {
		_, _, _, err := handshake(server.Config(), &tls.Config{ServerName: "127.0.0.1"})
		if err == nil || HandshakeFailureOf(err) != PeerAlert {
			t.Errorf("handshake: %v, want the failure %v", err, PeerAlert)
		}
	})
	for sent, want := range map[string]HandshakeFailure{"GET / HTTP/1.1\r\nHost: a\r\n\r\n": NotTLS, "": PeerClosed} {
		t.Run(want.String(), func(t *testing.T) {
			local, peer := connPair()
			io.WriteString(peer, sent)
			if sent == "" {
				peer.Close()
			}
			err := tls.Server(local, server.Config()).Handshake()
			if err == nil || HandshakeFailureOf(err) != want {
				t.Errorf("handshake: %v, want the failure %v", err, want)
			}
			peer.Close()
		})
	}
}

func TestIncompleteContextIsRejected(t *testing.T) {
	ca := testpki.New(t)
	leaf, otherLeaf := ca.Issue(testpki.Spec{}), ca.Issue(testpki.Spec{})
	cert, key := inlinePEM(leaf)
	_, otherKey := inlinePEM(otherLeaf)
	for _, test := range []struct {
		name, want string
		c          Context
	}{
		{"no certificate", "needs cert_chain", Context{}},
		{"key of another certificate", "does not match", Context{Certificate: cert, Key: otherKey}},
		{"missing certificate file", "cert_chain: open /nowhere", Context{Certificate: PEM{Path: "/nowhere"}, Key: key}},
		{"missing key file", "private_key: no such file", Context{Certificate: cert, Key: PEM{Path: "MHcCAQEEIsecret"}}},
		{"invalid CA certificates", "ca_cert: it contains no certificate", Context{Certificate: cert, Key: key, TrustedCA: PEM{Text: "x"}}},
		{"client certificates without a CA", "without ca_cert", Context{Certificate: cert, Key: key, ClientAuth: tls.RequireAndVerifyClientCert}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.c.Check(true, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check = %v, want an error with %q", err, test.want)
			}
			if strings.Contains(fmt.Sprint(test.c.Check(true, nil)), "secret") {
				t.Error("the error contains the text configured as the key")
			}
			if _, err := NewReloader(nil, nil).NewServer([]*Context{&test.c}); err == nil {
				t.Error("NewServer accepted the context")
			}
		})
	}
}
