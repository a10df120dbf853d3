package service

import (
	"context"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/urlpath"
)

// NormalizeTargets returns a service that applies rules to the targets of HTTP requests, except
// CONNECT, and then calls next, unless a rule rejects or redirects the request. RPC requests do not
// change.
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
	if x.Request.Method == "" || x.Request.Method == "CONNECT" {
		return t.next.Start(ctx, x)
	}
	if t.rules.StripTrailingDot {
		stripDot(x)
	}
	if t.rules.StripPort != config.KeepPort {
		t.stripPort(x)
	}
	if strings.HasPrefix(x.Request.Path, "/") {
		if done, err := t.rewritePath(x); done || err != nil {
			return err
		}
	}
	return t.next.Start(ctx, x)
}

// rewritePath rewrites the path and reports whether it has responded to x. An error is a Fault.
func (t *targetNormalizer) rewritePath(x *protocol.Exchange) (done bool, err error) {
	path, redirect := x.Request.Path, false
	if t.rules.EscapedSlashes != config.KeepEscapedSlashes {
		unescaped, found := urlpath.UnescapeSlashes(path)
		if found && t.rules.EscapedSlashes == config.RejectEscapedSlashes {
			return false, protocol.Faultf(protocol.MalformedRequest, "the path has an encoded slash")
		}
		path, redirect = unescaped, found && t.rules.EscapedSlashes == config.RedirectEscapedSlashes
	}
	if t.rules.NormalizePath {
		if path, err = urlpath.Normalize(path); err != nil {
			return false, protocol.NewFault(protocol.MalformedRequest, err)
		}
	}
	if t.rules.MergeSlashes {
		path = urlpath.MergeSlashes(path)
	}
	if redirect {
		// Two slashes at the beginning would name another host (RFC 3986 4.2).
		path = "/" + strings.TrimLeft(path, `/\`)
		x.LocalReply(307, "", "")
		x.Response.Header.Add("Location", path)
		return true, nil
	}
	x.Request.Path = path
	return false, nil
}

// stripDot removes one trailing dot from the host.
func stripDot(x *protocol.Exchange) {
	host, port := x.Request.Authority, ""
	if dot := strings.LastIndexByte(host, '.'); dot >= 0 && strings.HasPrefix(host[dot+1:], ":") {
		host, port = host[:dot+1], host[dot+1:]
	}
	if name, ok := strings.CutSuffix(host, "."); ok && name != "" {
		x.Request.Authority = name + port
	}
}

// stripPort removes the port from the host.
func (t *targetNormalizer) stripPort(x *protocol.Exchange) {
	host := x.Request.Authority
	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || strings.IndexByte(host[colon:], ']') >= 0 {
		return // no port; the colon may be part of an IPv6 address
	}
	port := host[colon+1:]
	number, ok := portNumber(port)
	if !ok {
		return
	}
	if t.rules.StripPort == config.StripMatchingPort && (x.Meta.Conn == nil || x.Meta.Conn.Local.Port() != number) {
		return
	}
	x.Request.Authority = host[:colon]
}

// portNumber parses a port; ok is false if text is not a port.
func portNumber(text string) (number uint16, ok bool) {
	n := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int(c-'0'); n > 1<<16-1 {
			return 0, false
		}
	}
	return uint16(n), text != ""
}
