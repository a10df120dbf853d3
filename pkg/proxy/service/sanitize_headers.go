package service

import (
	"encoding/hex"
	"math/rand/v2"
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
	trustedHops    int                  // trusted proxies in front of the direct peer, if the peer is itself a proxy
}

func newHeaderSanitizer(c config.ClientHeaders, o *config.HTTP1Options) headerSanitizer {
	f := headerSanitizer{allowOverrides: c.OverrideTimeouts, envoy: c.Envoy, trustedHops: o.XFFClientIndex - 1}
	if c.Envoy != nil {
		f.internal = match.NewCIDRSet(c.Envoy.InternalRanges)
	}
	return f
}

// trustLevel is how far a request's direct peer is trusted.
type trustLevel uint8

const (
	trustInternal trustLevel = iota
	trustProxy               // not internal, but the peer is a proxy that has sanitized the headers
	trustEdge                // the peer is an untrusted client
)

// sanitize removes the headers that x's client may not send and adds those that the proxy sets.
// Call it before appending to X-Forwarded-For, because the received value determines whether a
// request is internal.
func (f *headerSanitizer) sanitize(x *protocol.Exchange) {
	h := &x.Request.Header
	if f.envoy == nil {
		f.removeTimeoutOverrides(h)
		return
	}
	from := f.trustOf(x)
	f.removeEnvoyHeaders(h, from)
	switch from {
	case trustInternal:
		h.Add(envoyInternal, "true")
	case trustProxy:
	case trustEdge:
		if ip := x.Meta.ClientIP(); ip != "" {
			h.Set(envoyExternalAddress, ip)
		}
		if _, sent := h.Lookup(requestID); sent && f.envoy.ReplaceRequestID {
			h.Set(requestID, newRequestID())
		}
	}
}

// trustOf returns the trust in x's direct peer. Without use_remote_address it considers only a
// single address in a single X-Forwarded-For header.
func (f *headerSanitizer) trustOf(x *protocol.Exchange) trustLevel {
	fields, only := forwardedAddress(&x.Request.Header)
	if f.envoy.UseRemoteAddress {
		if fields == 0 && f.isInternal(x, match.RemoteAddr(x)) {
			return trustInternal
		}
		return trustEdge
	}
	if addr, err := netip.ParseAddr(only); err == nil && f.trustedHops == 0 && f.internal.Contains(addr) {
		return trustInternal
	}
	return trustProxy
}

func (f *headerSanitizer) isInternal(x *protocol.Exchange, peer netip.Addr) bool {
	if !peer.IsValid() {
		return f.envoy.InternalUnixSocket && x.Meta.Conn != nil
	}
	return f.internal.Contains(peer)
}

// forwardedAddress returns the number of X-Forwarded-For headers and, if there is exactly one, its
// value.
func forwardedAddress(h *protocol.Header) (fields int, only string) {
	for i := range h.Len() {
		if f := h.At(i); protocol.EqualFold(f.Name, forwardedFor) {
			fields++
			only = f.Value
		}
	}
	if fields != 1 {
		return fields, ""
	}
	return fields, strings.Trim(only, " \t")
}

// Headers in which a proxy states the origin of a request.
const (
	envoyInternal        = "x-envoy-internal"
	envoyExternalAddress = "x-envoy-external-address"
	requestID            = "x-request-id"
)

// removeTimeoutOverrides removes the fields that override timeouts, unless clients may send them.
func (f *headerSanitizer) removeTimeoutOverrides(h *protocol.Header) {
	if f.allowOverrides {
		return
	}
	for i := range h.Len() {
		switch name := h.At(i).Name; len(name) {
		case len(router.GlobalTimeoutField), len(router.TryTimeoutField):
			if overridesTimeout(name) {
				h.DelFunc(overridesTimeout)
				return
			}
		}
	}
}

func overridesTimeout(name string) bool {
	return protocol.EqualFold(name, router.GlobalTimeoutField) || protocol.EqualFold(name, router.TryTimeoutField)
}

// removeEnvoyHeaders removes the fields that a peer with that trust may not send, and those that
// Envoy's router does not forward.
func (f *headerSanitizer) removeEnvoyHeaders(h *protocol.Header, from trustLevel) {
	for i := range h.Len() {
		if isForbidden(h.At(i).Name, from) {
			h.DelFunc(func(name string) bool { return isForbidden(name, from) })
			return
		}
	}
}

// isForbidden reports whether the field is removed from requests of peers with that trust. It
// follows Envoy 1.40 (ConnectionManagerUtility::cleanInternalHeaders and the router) and adds
// Weft's fields with the same meaning.
func isForbidden(name string, from trustLevel) bool {
	const shortest, longest = len("x-envoy-ip-tags"), len("x-envoy-upstream-rq-timeout-alt-response")
	if len(name) < shortest || len(name) > longest || name[0]|0x20 != 'x' || name[1] != '-' {
		return false
	}
	var buf [longest]byte
	lower := buf[:len(name)]
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	switch string(lower) {
	case envoyInternal, router.GlobalTimeoutField, router.TryTimeoutField,
		"x-envoy-hedge-on-per-try-timeout", "x-envoy-max-retries", "x-envoy-retriable-header-names",
		"x-envoy-retriable-status-codes", "x-envoy-retry-grpc-on", "x-envoy-retry-on", "x-envoy-upstream-alt-stat-name",
		"x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-upstream-rq-timeout-alt-response", "x-envoy-upstream-rq-timeout-ms",
		"x-envoy-upstream-stream-duration-ms":
		return true
	case "x-envoy-expected-rq-timeout-ms", "x-envoy-force-trace", "x-envoy-ip-tags", "x-envoy-original-url":
		return from != trustInternal
	case "x-envoy-decorator-operation", "x-envoy-downstream-service-cluster", "x-envoy-downstream-service-node",
		"x-envoy-original-host", "x-envoy-original-path", router.OriginalPathField:
		return from == trustEdge
	}
	return false
}

// newRequestID returns a random UUID (RFC 9562 5.4).
func newRequestID() string {
	var id [16]byte
	high, low := rand.Uint64(), rand.Uint64()
	for i := range 8 {
		id[i], id[8+i] = byte(high>>(8*i)), byte(low>>(8*i)) //nolint:gosec // the lowest byte of each shift
	}
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // variant 10
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
