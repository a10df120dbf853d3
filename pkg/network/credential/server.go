package credential

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Server provides the configuration of server handshakes. Each ClientHello selects one of several
// contexts by its SNI; an exact name precedes a wildcard, and a longer wildcard a shorter one. If
// several contexts or none match, ALPN decides, else the order of the contexts. Safe for concurrent
// use.
type Server struct {
	reloader *Reloader
	contexts []*serverContext // in order
	selector atomic.Pointer[contextSelector]
	config   *tls.Config // selects the context of each handshake
}

// serverContext is a context with its loaded files. The mu of the Reloader guards it.
type serverContext struct {
	context      *Context
	stamps       []fileStamp // of its files, before the first load
	material     material
	config       *tls.Config
	configNoALPN *tls.Config // config without ALPN, for clients that offer no matching protocol; nil: they are rejected
	ticketKeys   [][32]byte  // newest first
}

// contextSelector selects the configuration for a ClientHello. It is immutable.
type contextSelector struct {
	all       []*tls.Config
	exact     map[string][]*tls.Config    // by server name
	wildcards map[string][]*tls.Config    // by the suffix after the star: ".example.com"
	noALPN    map[*tls.Config]*tls.Config // config to configNoALPN
}

// NewServer returns a server of the contexts, of which there is at least one. s watches their files
// until Close.
func (s *Reloader) NewServer(contexts []*Context) (*Server, error) {
	server := &Server{reloader: s}
	for i, c := range contexts {
		o := &serverContext{context: c, stamps: stampsOf(c.files())}
		if err := o.reload(); err != nil {
			return nil, fmt.Errorf("tls_context %d: %w", i, err)
		}
		server.contexts = append(server.contexts, o)
		s.warn(o.material)
	}
	server.rebuildSelector()
	server.config = &tls.Config{ //nolint:gosec // GetConfigForClient returns the effective configuration
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			found := server.selector.Load().find(hello)
			if conn, ok := hello.Conn.(interface{ SetLocalCertificate(own *x509.Certificate) }); ok && len(found.Certificates) > 0 {
				conn.SetLocalCertificate(found.Certificates[0].Leaf)
			}
			return found, nil
		},
	}
	for _, o := range server.contexts {
		s.watch(server, o.context.files(), o.stamps, func() error {
			if err := o.reload(); err != nil {
				return err
			}
			server.rebuildSelector()
			s.warn(o.material)
			return nil
		})
	}
	s.addServer(server)
	return server, nil
}

// Config returns the configuration for handshakes. It is always the same.
func (s *Server) Config() *tls.Config { return s.config }

// Close stops watching the files. Handshakes continue to work.
func (s *Server) Close() { s.reloader.remove(s) }

// reload loads the files. Existing session tickets stay valid unless the trusted CAs have changed.
func (o *serverContext) reload() error {
	m, err := o.context.load(PEM.Read)
	if err != nil {
		return err
	}
	if err = o.context.checkServer(m); err != nil {
		return err
	}
	if o.ticketKeys == nil || !bytes.Equal(m.authoritiesPEM, o.material.authoritiesPEM) {
		o.ticketKeys = [][32]byte{newTicketKey()}
	}
	c := o.context.baseConfig(m)
	c.ClientAuth, c.ClientCAs = o.context.ClientAuth, m.authorities
	if peers := o.context.PeerSANs; len(peers) > 0 {
		// This also verifies resumed sessions.
		c.VerifyConnection = func(state tls.ConnectionState) error { return verifySAN(peers, &state) }
	}
	c.SetSessionTicketKeys(o.ticketKeys)
	o.material, o.config, o.configNoALPN = m, c, nil
	if o.context.AllowNoALPN {
		o.configNoALPN = c.Clone()
		o.configNoALPN.NextProtos = nil
		o.configNoALPN.SetSessionTicketKeys(o.ticketKeys)
	}
	return nil
}

// rotateTicketKey adds a session ticket key. Tickets of the previous key are still accepted.
func (o *serverContext) rotateTicketKey() {
	o.ticketKeys = append([][32]byte{newTicketKey()}, o.ticketKeys[0])
	o.config.SetSessionTicketKeys(o.ticketKeys)
	if o.configNoALPN != nil {
		o.configNoALPN.SetSessionTicketKeys(o.ticketKeys)
	}
}

func newTicketKey() (key [32]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

// rebuildSelector replaces the selector after a context has changed.
func (s *Server) rebuildSelector() {
	c := &contextSelector{exact: map[string][]*tls.Config{}, wildcards: map[string][]*tls.Config{}, noALPN: map[*tls.Config]*tls.Config{}}
	for _, o := range s.contexts {
		c.all = append(c.all, o.config)
		if o.configNoALPN != nil {
			c.noALPN[o.config] = o.configNoALPN
		}
		for _, name := range o.names() {
			if rest, wild := strings.CutPrefix(name, "*."); wild {
				c.wildcards["."+rest] = append(c.wildcards["."+rest], o.config)
			} else {
				c.exact[name] = append(c.exact[name], o.config)
			}
		}
	}
	s.selector.Store(c)
}

// names returns the server names of o, in lowercase.
func (o *serverContext) names() []string {
	leaf := o.material.certificate.Leaf
	names := append(slices.Clone(o.context.ServerNames), leaf.DNSNames...)
	if len(leaf.DNSNames) == 0 && leaf.Subject.CommonName != "" {
		names = append(names, leaf.Subject.CommonName)
	}
	for i := range names {
		names[i] = strings.ToLower(strings.TrimSuffix(names[i], "."))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *contextSelector) find(hello *tls.ClientHelloInfo) *tls.Config {
	named := c.named(strings.ToLower(strings.TrimSuffix(hello.ServerName, ".")))
	if len(named) == 0 {
		named = c.all
	}
	for _, config := range named {
		if slices.ContainsFunc(hello.SupportedProtos, func(p string) bool { return slices.Contains(config.NextProtos, p) }) {
			return config
		}
	}
	if open := c.noALPN[named[0]]; open != nil {
		return open
	}
	return named[0]
}

// named returns the configurations for a server name.
func (c *contextSelector) named(name string) []*tls.Config {
	if name == "" {
		return nil
	}
	if found := c.exact[name]; found != nil {
		return found
	}
	for {
		dot := strings.IndexByte(name, '.')
		if dot < 0 {
			return nil
		}
		if found := c.wildcards[name[dot:]]; found != nil {
			return found
		}
		name = name[dot+1:]
	}
}
