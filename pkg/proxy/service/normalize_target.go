package service

import (
	"context"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// NormalizeTargets returns a service that applies rules to the targets of HTTP requests and then
// calls next, unless a rule rejects or redirects the request; see router.NormalizeTarget.
func NormalizeTargets(next protocol.Service, rules config.TargetNormalization) protocol.Service {
	return &targetNormalizer{next, rules}
}

// targetNormalizer is immutable.
type targetNormalizer struct {
	next  protocol.Service
	rules config.TargetNormalization
}

// Start implements protocol.Service.
func (t *targetNormalizer) Start(ctx context.Context, x *protocol.Exchange) error {
	redirected, err := router.NormalizeTarget(x, &t.rules)
	switch {
	case err != nil:
		return protocol.NewFault(protocol.MalformedRequest, err).WithEnvoyReply(normalizationFailed)
	case redirected:
		x.Record.EnvoyReply = &normalizationFailed
		return nil
	}
	return t.next.Start(ctx, x)
}

// normalizationFailed is the reply to a request whose path a rule rejects or redirects.
//
//nolint:gochecknoglobals // a constant
var normalizationFailed = protocol.EnvoyReply{Status: 400, Details: "path_normalization_failed", Flag: protocol.NoEnvoyFlag}
