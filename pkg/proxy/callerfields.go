package proxy

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

// callerFields removes the fields of requests that their callers may not send; see
// config.CallerFields. The zero value removes overrides of timeouts. Immutable.
type callerFields struct {
	override bool
	envoy    *config.EnvoyFields // nil: its fields pass
	internal match.CIDRSet       // of envoy
	hops     int                 // of envoy: trusted proxies before the caller, if that is one itself
}

func newCallerFields(c config.CallerFields, o *config.HTTP1Options) callerFields {
	f := callerFields{override: c.OverrideTimeouts, envoy: c.Envoy, hops: o.ClientHop - 1}
	if c.Envoy != nil {
		f.internal = match.NewAddresses(c.Envoy.Internal)
	}
	return f
}

// trust is what a request's caller is believed to be.
type trust uint8

const (
	trustInternal trust = iota
	trustNetwork        // not internal, but the caller is a proxy that has removed what clients may not send
	trustEdge           // a client
)

// apply removes what the caller of x may not send, and states what the proxy knows
// itself. It is called before X-Forwarded-For is appended to: whether a request is
// internal depends on what was received.
func (f *callerFields) apply(x *protocol.Exchange) {
	h := &x.Request.Header
	if f.envoy == nil {
		f.removeOverrides(h)
		return
	}
	from := f.from(x)
	f.removeEnvoy(h, from)
	switch from {
	case trustInternal:
		h.Add(envoyInternal, "true")
	case trustNetwork:
	case trustEdge:
		if ip := x.Meta.ClientIP(); ip != "" {
			h.Set(envoyExternalAddress, ip)
		}
		if _, sent := h.Lookup(requestID); sent && f.envoy.ReplaceRequestID {
			h.Set(requestID, newRequestID())
		}
	}
}

// from says what the caller of x is believed to be. Without use_remote_address the only
// address that counts is a single one that X-Forwarded-For holds.
func (f *callerFields) from(x *protocol.Exchange) trust {
	fields, only := forwardedAddress(&x.Request.Header)
	if f.envoy.Edge {
		if fields == 0 && f.isInternal(x, match.Peer(x)) {
			return trustInternal
		}
		return trustEdge
	}
	if addr, err := netip.ParseAddr(only); err == nil && f.hops == 0 && f.internal.Has(addr) {
		return trustInternal
	}
	return trustNetwork
}

func (f *callerFields) isInternal(x *protocol.Exchange, peer netip.Addr) bool {
	if !peer.IsValid() {
		return f.envoy.InternalUnixSocket && x.Meta.Conn != nil
	}
	return f.internal.Has(peer)
}

// forwardedAddress returns how many fields X-Forwarded-For there are, and what the only
// one holds.
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

// The fields by which a proxy states what it knows of a request's origin.
const (
	envoyInternal        = "x-envoy-internal"
	envoyExternalAddress = "x-envoy-external-address"
	requestID            = "x-request-id"
)

// removeOverrides removes the fields that override timeouts, unless callers may send them.
func (f *callerFields) removeOverrides(h *protocol.Header) {
	if f.override {
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

// removeEnvoy removes what a caller of that kind may not send, and what Envoy's router
// does not pass on.
func (f *callerFields) removeEnvoy(h *protocol.Header, from trust) {
	for i := range h.Len() {
		if forbidden(h.At(i).Name, from) {
			h.DelFunc(func(name string) bool { return forbidden(name, from) })
			return
		}
	}
}

// forbidden reports whether a field is removed from requests of such callers: the lists of
// Envoy's ConnectionManagerUtility::cleanInternalHeaders and of its router, as version
// 1.40 has them, and Weft's own fields that mean the same.
func forbidden(name string, from trust) bool {
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
