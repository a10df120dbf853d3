package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync/atomic"
)

// Client begins handshakes with the hosts of one cluster. Sessions are resumed, for
// each host by itself. Safe for concurrent use.
type Client struct {
	reloader *Reloader
	context  *Context
	current  atomic.Pointer[clientState]
}

// clientState is immutable; sessions are of those that were verified by its
// configuration.
type clientState struct {
	config       *tls.Config
	sessionCache tls.ClientSessionCache
}

// maxSessionHosts is how many hosts' sessions a Client remembers.
const maxSessionHosts = 256

// NewClient returns a client of the context, whose files s watches until Close.
func (s *Reloader) NewClient(c *Context) (*Client, error) {
	client := &Client{reloader: s, context: c}
	stamps := stampsOf(c.files())
	if err := client.reload(); err != nil {
		return nil, err
	}
	s.watch(client, c.files(), stamps, client.reload)
	return client, nil
}

// Close ends the watch over the files.
func (c *Client) Close() { c.reloader.remove(c) }

func (c *Client) reload() error {
	m, err := c.context.load(PEM.Read)
	if err != nil {
		return err
	}
	c.reloader.warn(m)
	out := c.context.baseConfig(m)
	out.RootCAs = m.authorities
	out.InsecureSkipVerify = c.context.SkipVerify
	if peers := c.context.PeerSANs; (len(peers) > 0 || c.context.SkipNameVerify) && !c.context.SkipVerify {
		out.InsecureSkipVerify = true // of the name only: the chain is verified here
		out.VerifyConnection = func(state tls.ConnectionState) error {
			if err := verifyChain(m.authorities, &state); err != nil || len(peers) == 0 {
				return err
			}
			return verifySAN(peers, &state)
		}
	}
	c.current.Store(&clientState{config: out, sessionCache: tls.NewLRUClientSessionCache(maxSessionHosts)})
	return nil
}

// verifyChain checks a server's certificate but for its names.
func verifyChain(roots *x509.CertPool, state *tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

// Config returns what a handshake with the host at an address is begun with. name is
// what the host must prove to be unless the context says another; alpn is offered
// unless the context has a list of its own, for what alpn begins with or for anything.
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

// HostnameOverride is the name that one connection is for, in the place of what its context says or
// beside it.
type HostnameOverride struct {
	Name   string // of DNS, or an address
	SNI    bool   // it is asked for, unless it is an address, in the place of what else would be
	Verify bool   // the host's certificate must be for it; "" is no certificate's name
}

// ConfigForHostname is Config for a connection that is for a name.
func (c *Client) ConfigForHostname(a HostnameOverride, name, address string, alpn []string) *tls.Config {
	out := c.Config(name, address, alpn)
	if a.SNI && a.Name != "" {
		out.ServerName = a.Name
	}
	if !a.Verify {
		return out
	}
	further := out.VerifyConnection
	out.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the server sent no certificate")
		}
		if err := state.PeerCertificates[0].VerifyHostname(a.Name); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		if further == nil {
			return nil
		}
		return further(state)
	}
	return out
}

// hostSessionCache are the sessions of one host: others of its name may not know them.
type hostSessionCache struct {
	cache   tls.ClientSessionCache
	address string
}

// Get is tls.ClientSessionCache's.
func (s hostSessionCache) Get(key string) (*tls.ClientSessionState, bool) {
	return s.cache.Get(s.address + " " + key)
}

// Put is tls.ClientSessionCache's.
func (s hostSessionCache) Put(key string, state *tls.ClientSessionState) {
	s.cache.Put(s.address+" "+key, state)
}
