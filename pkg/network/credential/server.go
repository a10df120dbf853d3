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
// contexts by its SNI; an exact name takes precedence over a wildcard, and a longer wildcard over a
// shorter one. If several contexts match, or none, the first one with a common ALPN protocol is
// used, or otherwise the first one. Safe for concurrent use.
type Server struct {
	reloader *Reloader
	contexts []*serverContext // in the order of NewServer
	selector atomic.Pointer[contextSelector]
	config   *tls.Config // selects the context of each handshake
}

// serverContext is a context with its loaded files. After NewServer, the mu of the Reloader guards
// it.
type serverContext struct {
	context      *Context
	stamps       []fileStamp // of its files, before the first load
	material     material
	config       *tls.Config
	configNoALPN *tls.Config // config without ALPN, for clients whose list has none of its protocols; nil: they are rejected
	ticketKeys   [][32]byte  // newest first, at most two
}

// contextSelector selects the configuration for a ClientHello. It is immutable.
type contextSelector struct {
	all       []*tls.Config
	exact     map[string][]*tls.Config    // by server name
	wildcards map[string][]*tls.Config    // by the suffix after the star: ".example.com"
	noALPN    map[*tls.Config]*tls.Config // config to configNoALPN
}

// NewServer returns a Server for contexts, which must not be empty. r watches their files until
// Close.
func (r *Reloader) NewServer(contexts []*Context) (*Server, error) {
	server := &Server{reloader: r}
	for i, c := range contexts {
		sc := &serverContext{context: c, stamps: stampsOf(c.files())}
		if err := sc.reload(); err != nil {
			return nil, fmt.Errorf("tls_context %d: %w", i, err)
		}
		server.contexts = append(server.contexts, sc)
		r.warnIfInvalid(sc.material)
	}
	server.rebuildSelector()
	server.config = &tls.Config{ //nolint:gosec // GetConfigForClient returns the effective configuration
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			selected := server.selector.Load().find(hello)
			if conn, ok := hello.Conn.(interface{ SetLocalCertificate(cert *x509.Certificate) }); ok && len(selected.Certificates) > 0 {
				conn.SetLocalCertificate(selected.Certificates[0].Leaf)
			}
			return selected, nil
		},
	}
	for _, sc := range server.contexts {
		r.watch(server, sc.context.files(), sc.stamps, func() error {
			if err := sc.reload(); err != nil {
				return err
			}
			server.rebuildSelector()
			r.warnIfInvalid(sc.material)
			return nil
		})
	}
	r.addServer(server)
	return server, nil
}

// Config returns the configuration for handshakes. It stays the same when contexts are reloaded.
func (s *Server) Config() *tls.Config { return s.config }

// Close stops watching the files. Handshakes continue to work.
func (s *Server) Close() { s.reloader.remove(s) }

// reload loads the files. Existing session tickets stay valid unless the trusted CAs have changed.
func (sc *serverContext) reload() error {
	m, err := sc.context.load(PEM.Read)
	if err != nil {
		return err
	}
	if err = sc.context.checkServer(m); err != nil {
		return err
	}
	if sc.ticketKeys == nil || !bytes.Equal(m.authoritiesPEM, sc.material.authoritiesPEM) {
		sc.ticketKeys = [][32]byte{newTicketKey()}
	}
	config := sc.context.baseConfig(m)
	config.ClientAuth, config.ClientCAs = sc.context.ClientAuth, m.authorities
	if peers := sc.context.PeerSANs; len(peers) > 0 {
		// This also verifies resumed sessions.
		config.VerifyConnection = func(state tls.ConnectionState) error { return verifySAN(peers, &state) }
	}
	if sc.context.hasPins() {
		verifyOthers := config.VerifyConnection
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if err := sc.context.verifyPins(state.PeerCertificates); err != nil || verifyOthers == nil {
				return err
			}
			return verifyOthers(state)
		}
	}
	config.SetSessionTicketKeys(sc.ticketKeys)
	sc.material, sc.config, sc.configNoALPN = m, config, nil
	if sc.context.AllowALPNMismatch {
		sc.configNoALPN = config.Clone()
		sc.configNoALPN.NextProtos = nil
		sc.configNoALPN.SetSessionTicketKeys(sc.ticketKeys)
	}
	return nil
}

// rotateTicketKey adds a session ticket key. Tickets of the previous key are still accepted.
func (sc *serverContext) rotateTicketKey() {
	sc.ticketKeys = append([][32]byte{newTicketKey()}, sc.ticketKeys[0])
	sc.config.SetSessionTicketKeys(sc.ticketKeys)
	if sc.configNoALPN != nil {
		sc.configNoALPN.SetSessionTicketKeys(sc.ticketKeys)
	}
}

func newTicketKey() (key [32]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

// rebuildSelector replaces the selector after a context has changed.
func (s *Server) rebuildSelector() {
	selector := &contextSelector{exact: map[string][]*tls.Config{}, wildcards: map[string][]*tls.Config{}, noALPN: map[*tls.Config]*tls.Config{}}
	for _, sc := range s.contexts {
		selector.all = append(selector.all, sc.config)
		if sc.configNoALPN != nil {
			selector.noALPN[sc.config] = sc.configNoALPN
		}
		for _, name := range sc.names() {
			if suffix, isWildcard := strings.CutPrefix(name, "*."); isWildcard {
				selector.wildcards["."+suffix] = append(selector.wildcards["."+suffix], sc.config)
			} else {
				selector.exact[name] = append(selector.exact[name], sc.config)
			}
		}
	}
	s.selector.Store(selector)
}

// names returns the server names of sc in lowercase, sorted and without duplicates.
func (sc *serverContext) names() []string {
	leaf := sc.material.certificate.Leaf
	names := append(slices.Clone(sc.context.ServerNames), leaf.DNSNames...)
	if len(leaf.DNSNames) == 0 && leaf.Subject.CommonName != "" {
		names = append(names, leaf.Subject.CommonName)
	}
	for i := range names {
		names[i] = strings.ToLower(strings.TrimSuffix(names[i], "."))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *contextSelector) find(hello *tls.ClientHelloInfo) *tls.Config {
	candidates := s.configsForName(strings.ToLower(strings.TrimSuffix(hello.ServerName, ".")))
	if len(candidates) == 0 {
		candidates = s.all
	}
	for _, config := range candidates {
		if slices.ContainsFunc(hello.SupportedProtos, func(p string) bool { return slices.Contains(config.NextProtos, p) }) {
			return config
		}
	}
	if noALPN := s.noALPN[candidates[0]]; noALPN != nil {
		return noALPN
	}
	return candidates[0]
}

// configsForName returns the configurations for a server name; nil if no context matches.
func (s *contextSelector) configsForName(name string) []*tls.Config {
	if name == "" {
		return nil
	}
	if configs := s.exact[name]; configs != nil {
		return configs
	}
	for {
		dot := strings.IndexByte(name, '.')
		if dot < 0 {
			return nil
		}
		if configs := s.wildcards[name[dot:]]; configs != nil {
			return configs
		}
		name = name[dot+1:]
	}
}
