package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync/atomic"
)

// Client provides the configurations of handshakes with the hosts of one cluster. It caches
// sessions per host. Safe for concurrent use.
type Client struct {
	reloader *Reloader
	context  *Context
	current  atomic.Pointer[clientState]
}

// clientState is a TLS configuration and the sessions that were established with it. Its fields do
// not change.
type clientState struct {
	material     material
	config       *tls.Config
	sessionCache tls.ClientSessionCache
}

// maxCachedSessions is the maximum number of sessions that a Client caches, for all hosts together.
const maxCachedSessions = 256

// NewClient returns a client of the context. r watches the context's files until Close.
func (r *Reloader) NewClient(c *Context) (*Client, error) {
	client := &Client{reloader: r, context: c}
	stamps := stampsOf(c.files())
	if err := client.reload(); err != nil {
		return nil, err
	}
	r.watch(client, c.files(), stamps, client.reload)
	r.addClient(client)
	return client, nil
}

// Close stops watching the files.
func (c *Client) Close() { c.reloader.remove(c) }

func (c *Client) reload() error {
	m, err := c.context.load(PEM.Read)
	if err != nil {
		return err
	}
	c.reloader.warnIfInvalid(m)
	out := c.context.baseConfig(m)
	out.RootCAs = m.authorities
	out.InsecureSkipVerify = c.context.SkipVerify
	if peers := c.context.PeerSANs; (len(peers) > 0 || c.context.SkipNameVerify) && !c.context.SkipVerify {
		out.InsecureSkipVerify = true // skips only the name: VerifyConnection verifies the chain
		out.VerifyConnection = func(state tls.ConnectionState) error {
			if err := verifyChain(m.authorities, &state); err != nil || len(peers) == 0 {
				return err
			}
			return verifySAN(peers, &state)
		}
	}
	c.current.Store(&clientState{material: m, config: out, sessionCache: tls.NewLRUClientSessionCache(maxCachedSessions)})
	return nil
}

// verifyChain verifies a server's certificate chain, but not its names.
func verifyChain(roots *x509.CertPool, state *tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

// HostnameOverride is a name for one connection; SNI and Verify say how it is used.
type HostnameOverride struct {
	Name   string // DNS name or IP address
	SNI    bool   // Name, unless empty, replaces the server name, and is sent as SNI unless it is an address
	Verify bool   // the host's certificate must be valid for Name; an empty Name always fails
}

// Peer describes the host of a connection.
type Peer struct {
	Hostname string // configured name; "" for none
	Name     string // Hostname or, without one, the address without the port
	Address  string
	Override HostnameOverride
}

// Config returns the configuration of a handshake with a host. alpn lists the protocols to offer,
// unless the context has ALPN or, for a single protocol, an entry in ALPNFor.
func (c *Client) Config(peer Peer, alpn []string) *tls.Config {
	state, context := c.current.Load(), c.context
	out := state.config.Clone()
	out.ServerName = context.serverName(&peer)
	if len(context.ALPN) == 0 {
		out.NextProtos = alpn
	}
	if len(alpn) == 1 && len(context.ALPNFor[alpn[0]]) > 0 {
		out.NextProtos = context.ALPNFor[alpn[0]]
	}
	if !context.NoSessionResumption {
		out.ClientSessionCache = hostSessionCache{state.sessionCache, peer.Address}
	}
	if context.hasPins() {
		context.addCheck(out, context.verifyPins)
	}
	switch {
	case peer.Override.Verify:
		context.addCheck(out, func(certs []*x509.Certificate) error { return verifyHostname(peer.Override.Name, certs) })
	case context.VerifySNI:
		name := out.ServerName
		context.addCheck(out, func(certs []*x509.Certificate) error { return verifyHostname(name, certs) })
	}
	return out
}

// serverName returns the name to send to a host, or "" for none.
func (c *Context) serverName(peer *Peer) string {
	if peer.Override.SNI && peer.Override.Name != "" {
		return peer.Override.Name
	}
	if c.SNI == SNIHostname && peer.Hostname != "" {
		return peer.Hostname
	}
	if len(c.ServerNames) > 0 {
		return c.ServerNames[0]
	}
	if c.SNI == SNIDefault {
		return peer.Name
	}
	return ""
}

// addCheck makes a handshake of a client fail if check returns an error for the certificates of the
// server, in addition to the checks in out.
func (c *Context) addCheck(out *tls.Config, check func(certs []*x509.Certificate) error) {
	if c.SkipVerify {
		// Not VerifyConnection, because the chain stays unverified (see network.Conn.ClientHandshake).
		// crypto/tls does not call VerifyPeerCertificate for resumed sessions.
		out.ClientSessionCache = nil
		previous := out.VerifyPeerCertificate
		out.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
			certs := make([]*x509.Certificate, len(raw))
			for i := range raw {
				var err error
				if certs[i], err = x509.ParseCertificate(raw[i]); err != nil {
					return err
				}
			}
			if err := check(certs); err != nil || previous == nil {
				return err
			}
			return previous(raw, chains)
		}
		return
	}
	previous := out.VerifyConnection
	out.VerifyConnection = func(state tls.ConnectionState) error {
		if err := check(state.PeerCertificates); err != nil || previous == nil {
			return err
		}
		return previous(state)
	}
}

// verifyHostname verifies that the first of a server's certificates is valid for name.
func verifyHostname(name string, certs []*x509.Certificate) error {
	if len(certs) == 0 {
		return errors.New("the server sent no certificate")
	}
	if err := certs[0].VerifyHostname(name); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: certs, Err: err}
	}
	return nil
}

// hostSessionCache is the part of a session cache for one host. crypto/tls looks up sessions by
// server name, but another host with this name may not be able to resume them.
type hostSessionCache struct {
	cache   tls.ClientSessionCache
	address string
}

// Get implements tls.ClientSessionCache.
func (s hostSessionCache) Get(key string) (*tls.ClientSessionState, bool) {
	return s.cache.Get(s.address + " " + key)
}

// Put implements tls.ClientSessionCache.
func (s hostSessionCache) Put(key string, state *tls.ClientSessionState) {
	s.cache.Put(s.address+" "+key, state)
}
