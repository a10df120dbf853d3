package service

import (
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// headerSanitizer removes the headers that clients may not send; see config.ClientHeaders. The
// zero value removes timeout overrides. Immutable.
type headerSanitizer struct {
	allowOverrides bool
	envoy          *config.EnvoyHeaders // nil: the x-envoy headers pass
	internal       match.CIDRSet        // internal addresses of envoy
	trustedHops    int                  // number of trusted proxies in front of the direct peer; only trustOf uses it
}

func newHeaderSanitizer(c config.ClientHeaders, o *config.HTTP1Options) headerSanitizer {
	s := headerSanitizer{allowOverrides: c.OverrideTimeouts, envoy: c.Envoy, trustedHops: o.XFFClientIndex - 1}
	if c.Envoy != nil {
		s.internal = match.NewCIDRSet(c.Envoy.InternalRanges)
	}
	return s
}

// trustLevel is how far a request's direct peer is trusted.
type trustLevel uint8

const (
	trustInternal trustLevel = iota
	trustProxy               // not internal, but the peer is a proxy that has sanitized the headers
	trustEdge                // the peer is an untrusted client
)

// sanitize removes the headers that x's client may not send and adds the headers of the proxy. The
// caller calls it before it appends to X-Forwarded-For, because the received value determines
// whether a request is internal. detected is the client that a detector found; nil: there are no
// detectors.
func (s *headerSanitizer) sanitize(x *protocol.Exchange, detected *detectedClient) {
	h := &x.Request.Header
	if s.envoy == nil {
		s.removeTimeoutOverrides(h)
		return
	}
	trust := s.trustOf(x, detected)
	s.removeEnvoyHeaders(h, trust)
	switch trust {
	case trustInternal:
		h.Add(envoyInternal, "true")
	case trustProxy:
	case trustEdge:
		if ip := x.Meta.ClientIP(); ip != "" {
			h.Set(envoyExternalAddress, ip)
		}
	}
	if s.envoy.UserAgent != "" {
		setUserAgent(h, s.envoy)
	}
	if s.envoy.RequestID.Generate {
		setRequestID(h, &s.envoy.RequestID, trust == trustEdge)
	}
}

// setUserAgent sets the headers that name the proxy's own service, as add_user_agent in Envoy.
func setUserAgent(h *protocol.Header, e *config.EnvoyHeaders) {
	h.Set("x-envoy-downstream-service-cluster", e.UserAgent)
	if h.Get("user-agent") == "" {
		h.Set("user-agent", e.UserAgent)
	}
	if e.NodeID != "" {
		h.Set("x-envoy-downstream-service-node", e.NodeID)
	}
}

// trustOf returns the trust level of x's direct peer. Without use_remote_address, the peer is
// internal only if a single X-Forwarded-For header has a single internal address and trustedHops is
// 0.
func (s *headerSanitizer) trustOf(x *protocol.Exchange, detected *detectedClient) trustLevel {
	if detected != nil {
		if detected.mayBeInternal && s.internal.Contains(detected.addr) {
			return trustInternal
		}
		return trustProxy
	}
	count, single := forwardedAddress(&x.Request.Header)
	if s.envoy.UseRemoteAddress {
		if count == 0 && s.isInternal(x, match.RemoteAddr(x)) {
			return trustInternal
		}
		return trustEdge
	}
	if addr, err := netip.ParseAddr(single); err == nil && s.trustedHops == 0 && s.internal.Contains(addr) {
		return trustInternal
	}
	return trustProxy
}

func (s *headerSanitizer) isInternal(x *protocol.Exchange, peer netip.Addr) bool {
	if !peer.IsValid() {
		return s.envoy.InternalUnixSocket && x.Meta.Conn != nil
	}
	return s.internal.Contains(peer)
}

// forwardedAddress returns the number of X-Forwarded-For headers and, if there is exactly one, its
// value.
func forwardedAddress(h *protocol.Header) (count int, single string) {
	for i := range h.Len() {
		if f := h.At(i); protocol.EqualFold(f.Name, forwardedFor) {
			count++
			single = f.Value
		}
	}
	if count != 1 {
		return count, ""
	}
	return count, strings.Trim(single, " \t")
}

// Headers that describe the origin of a request.
const (
	envoyInternal        = "x-envoy-internal"
	envoyExternalAddress = "x-envoy-external-address"
)

// removeTimeoutOverrides removes the headers that override timeouts, unless clients may send them.
func (s *headerSanitizer) removeTimeoutOverrides(h *protocol.Header) {
	if s.allowOverrides {
		return
	}
	for i := range h.Len() {
		switch name := h.At(i).Name; len(name) {
		case len(router.GlobalTimeoutHeader), len(router.TryTimeoutHeader):
			if overridesTimeout(name) {
				h.DelFunc(overridesTimeout)
				return
			}
		}
	}
}

func overridesTimeout(name string) bool {
	return protocol.EqualFold(name, router.GlobalTimeoutHeader) || protocol.EqualFold(name, router.TryTimeoutHeader)
}

// removeEnvoyHeaders removes the headers that a peer with that trust may not send.
func (s *headerSanitizer) removeEnvoyHeaders(h *protocol.Header, trust trustLevel) {
	for i := range h.Len() {
		if isForbidden(h.At(i).Name, trust) {
			h.DelFunc(func(name string) bool { return isForbidden(name, trust) })
			return
		}
	}
}

// isForbidden reports whether the header is removed from requests of peers with that trust. It
// follows Envoy 1.40 (ConnectionManagerUtility::cleanInternalHeaders) and adds Weft's headers with
// the same meaning. The router removes the control headers of internal clients; see ControlHeaders.
func isForbidden(name string, trust trustLevel) bool {
	const minLen, maxLen = len("x-envoy-ip-tags"), len("x-envoy-upstream-rq-timeout-alt-response")
	if len(name) < minLen || len(name) > maxLen || name[0]|0x20 != 'x' || name[1] != '-' {
		return false
	}
	var buf [maxLen]byte
	lower := buf[:len(name)]
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	switch string(lower) {
	case envoyInternal, router.GlobalTimeoutHeader, router.TryTimeoutHeader:
		return true
	case hedgeHeader, maxRetriesHeader, retriableHeadersHeader, retriableStatusesHeader, retryOnGRPCHeader, retryOnHeader,
		altStatNameHeader, perTryTimeoutHeader, altResponseHeader, timeoutHeader, streamDurationHeader,
		expectedTimeoutHeader, forceTrace, "x-envoy-ip-tags", "x-envoy-original-url":
		return trust != trustInternal
	case "x-envoy-decorator-operation", "x-envoy-downstream-service-cluster", "x-envoy-downstream-service-node",
		router.EnvoyOriginalHostHeader, router.EnvoyOriginalPathHeader, router.OriginalPathHeader:
		return trust == trustEdge
	}
	return false
}
