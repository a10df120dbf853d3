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

// Config returns the configuration of a handshake with the host at address. name is the SNI and the
// name to verify, unless the context has a server name. alpn lists the protocols to offer, unless
// ALPNFor has an entry for the first one or the context has ALPN.
func (c *Client) Config(name, address string, alpn []string) *tls.Config {
	state := c.current.Load()
	out := state.config.Clone()
	out.ServerName = name
	if len(c.context.ServerNames) > 0 {
		out.ServerName = c.context.ServerNames[0]
	}
	if len(c.context.ALPN) == 0 {
		out.NextProtos = alpn
	}
	if len(alpn) > 0 && len(c.context.ALPNFor[alpn[0]]) > 0 {
		out.NextProtos = c.context.ALPNFor[alpn[0]]
	}
	out.ClientSessionCache = hostSessionCache{state.sessionCache, address}
	return out
}

// HostnameOverride is a name for one connection; SNI and Verify say how it is used.
type HostnameOverride struct {
	Name   string // DNS name or IP address
	SNI    bool   // Name, unless empty, replaces the server name, and is sent as SNI unless it is an address
	Verify bool   // the host's certificate must be valid for Name; an empty Name always fails
}

// ConfigForHostname is Config with a HostnameOverride.
func (c *Client) ConfigForHostname(override HostnameOverride, name, address string, alpn []string) *tls.Config {
	out := c.Config(name, address, alpn)
	if override.SNI && override.Name != "" {
		out.ServerName = override.Name
	}
	if !override.Verify {
		return out
	}
	if c.context.SkipVerify {
		// Not VerifyConnection, because the chain stays unverified (see network.Conn.ClientHandshake).
		// crypto/tls does not call VerifyPeerCertificate for resumed sessions.
		out.ClientSessionCache = nil
		out.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
			certs := make([]*x509.Certificate, len(raw))
			for i := range raw {
				var err error
				if certs[i], err = x509.ParseCertificate(raw[i]); err != nil {
					return err
				}
			}
			return verifyHostname(override.Name, certs)
		}
		return out
	}
	verify := out.VerifyConnection
	out.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verifyHostname(override.Name, state.PeerCertificates); err != nil || verify == nil {
			return err
		}
		return verify(state)
	}
	return out
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
