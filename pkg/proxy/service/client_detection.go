package service

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// clientDetector is a compiled config.ClientDetection. Immutable.
type clientDetector struct {
	config.ClientDetection
	trusted match.CIDRSet
}

func newClientDetectors(list []config.ClientDetection) []clientDetector {
	detectors := make([]clientDetector, len(list))
	for i, c := range list {
		detectors[i] = clientDetector{c, match.NewCIDRSet(c.TrustedRanges)}
	}
	return detectors
}

// detectedClient is the address that a detector found; the zero value: none.
type detectedClient struct {
	addr          netip.Addr
	mayBeInternal bool // the request is internal if addr is an internal address
}

// detectClient sets the client address that the detectors find. A status other than 0 rejects the
// request.
func (f *forwarded) detectClient(x *protocol.Exchange) (found detectedClient, status int) {
	for i := range f.detectors {
		d := &f.detectors[i]
		if d.Header != "" {
			found.addr = parseClientAddr(x.Request.Header.Get(d.Header))
			found.mayBeInternal = d.Internal
		} else {
			found = d.detectForwarded(x)
		}
		if d.Append || d.isUntrustedPeer(x) {
			f.appendForwardedFor(&x.Request.Header, x)
		}
		switch {
		case found.addr.IsValid():
			if found.addr != match.RemoteAddr(x).Unmap() {
				x.Meta.Client = found.addr
			}
			return found, 0
		case d.RejectStatus != 0:
			return detectedClient{}, d.RejectStatus
		}
	}
	return detectedClient{}, 0
}

// isUntrustedPeer reports whether only proxies in TrustedRanges are trusted, and the direct peer is
// not one of them.
func (d *clientDetector) isUntrustedPeer(x *protocol.Exchange) bool {
	return len(d.TrustedRanges) > 0 && !d.trusted.Contains(match.RemoteAddr(x).Unmap())
}

// detectForwarded finds the client in X-Forwarded-For.
func (d *clientDetector) detectForwarded(x *protocol.Exchange) detectedClient {
	if d.isUntrustedPeer(x) {
		return detectedClient{}
	}
	h, byRange := &x.Request.Header, len(d.TrustedRanges) > 0
	count, single := forwardedAddress(h)
	found := detectedClient{mayBeInternal: count == 1 && d.TrustedHops == 0 && strings.IndexByte(single, ',') < 0}
	hops := d.TrustedHops
	for i := h.Len() - 1; i >= 0; i-- {
		field := h.At(i)
		if !protocol.EqualFold(field.Name, forwardedFor) {
			continue
		}
		for rest, more := field.Value, true; more; hops-- {
			comma := strings.LastIndexByte(rest, ',')
			entry := rest[comma+1:]
			if more = comma >= 0; more {
				rest = rest[:comma]
			}
			if hops > 0 {
				continue
			}
			found.addr = parseClientAddr(entry)
			if !byRange || !d.trusted.Contains(found.addr) {
				return found
			}
		}
	}
	return found // too few entries, or all are addresses of trusted proxies
}

// parseClientAddr returns the address in text, without a port or brackets; the zero Addr if there is
// none.
func parseClientAddr(text string) netip.Addr {
	addr, err := netip.ParseAddr(strings.Trim(text, " \t"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// EarlyMutations changes the headers of HTTP requests before next reads them.
func EarlyMutations(next protocol.Service, list []config.HeaderMutation) (protocol.Service, error) {
	if len(list) == 0 {
		return next, nil
	}
	e := &earlyMutations{next: next}
	for i, c := range list {
		m, err := router.CompileMutation(c)
		if err != nil {
			return nil, fmt.Errorf("early header mutation %d: %w", i, err)
		}
		e.mutations = append(e.mutations, m)
	}
	return e, nil
}

// earlyMutations is immutable.
type earlyMutations struct {
	next      protocol.Service
	mutations []*router.Mutation
}

// Start implements protocol.Service.
func (e *earlyMutations) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Method != "" {
		for _, m := range e.mutations {
			m.Apply(x, &x.Request.Header)
		}
	}
	return e.next.Start(ctx, x)
}
