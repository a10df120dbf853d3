package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/stream"
)

// WatchCertificates reloads certificates when their files change, and rotates the session ticket
// keys, until ctx ends.
func (s *Server) WatchCertificates(ctx context.Context) { s.reloader.Run(ctx) }

// Certificates returns the certificates of listeners and clusters, in the version that is in use.
func (s *Server) Certificates() []credential.Certificates { return s.reloader.Certificates() }

// newCredentials returns the reloader of all certificates, which counts its reloads.
func newCredentials(o *Options) *credential.Reloader {
	return credential.NewReloader(o.Log, func(err error) {
		result := metrics.ResultApplied
		if err != nil {
			result = metrics.ResultRejected
		}
		o.Metrics.Counter(metrics.CertificateReloads, result).Add(1)
	})
}

// chainTLS holds the TLS server of a filter chain.
type chainTLS struct {
	server         *credential.Server
	usableContexts []int // indexes of the usable TLS contexts in the chain
}

// covers reports whether every usable TLS context of other is usable in s. Both may be nil.
func (s *chainTLS) covers(other *chainTLS) bool {
	switch {
	case other == nil:
		return true
	case s == nil:
		return false
	}
	return !slices.ContainsFunc(other.usableContexts, func(i int) bool { return !slices.Contains(s.usableContexts, i) })
}

func (s *chainTLS) close() {
	if s != nil {
		s.server.Close()
	}
}

// addTLS puts TLS in front of the handlers of a filter chain of cl if the chain configures TLS:
// byALPN for protocols with an ALPN name and c.handler for all others.
func (b *builder) addTLS(cl *compiledListener, c *compiledChain, byALPN map[string]network.Handler) error {
	var contexts []*credential.Context
	var usable []int
	timeout := time.Duration(0)
	delete(byALPN, "") // protocols without an ALPN name
	for i, t := range c.config.TLS {
		var alpn []string
		for _, name := range []string{"h2", "http/1.1"} {
			if byALPN[name] != nil {
				alpn = append(alpn, name)
			}
		}
		context, err := stream.NewTLSContext(t, alpn)
		if err != nil {
			return err
		}
		if err := context.Check(true, nil); err != nil && t.PlaintextFallback {
			b.server.o.Log.Warn("unusable tls_context ignored because it sets fall_back; without another tls_context, the listener accepts plaintext",
				"listener", cl.config.Name, "error", err)
			continue
		}
		contexts, usable, timeout = append(contexts, context), append(usable, i), max(timeout, t.HandshakeTimeout)
	}
	if len(contexts) == 0 {
		return nil
	}
	server, err := b.server.reloader.NewServer(contexts)
	if err != nil {
		return err
	}
	c.tls = &chainTLS{server, usable}
	if cl.handshakes == nil {
		cl.handshakes = cl.previousHandshakes.acquire()
	}
	if cl.handshakes == nil {
		cl.handshakes = newHandshakeRecorder(b.server.o.Metrics, metrics.ListenerHandshakes, cl.config.Name)
	}
	o := stream.TLSOptions{
		Config: server.Config(), ByALPN: byALPN, Default: c.handler,
		Timeout: timeout, IdleTimeout: cl.config.IdleTimeout,
		Listener: cl.config.Name, Log: b.server.o.Log, OnHandshake: cl.handshakes.count,
	}
	if c.config.AllowPlaintext {
		o.Plaintext = c.handler
	}
	c.handler = stream.NewTLSHandler(o)
	return nil
}
