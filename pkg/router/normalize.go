package router

import (
	"errors"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/urlpath"
)

// NormalizeTarget applies rules to the target of an HTTP request, except CONNECT, before Find. RPC
// requests do not change. If a rule redirects the request, NormalizeTarget makes the redirect its
// response and returns true. It returns an error if a rule rejects the request as malformed.
func NormalizeTarget(x *protocol.Exchange, rules *config.TargetNormalization) (redirected bool, err error) {
	if x.Request.Method == "" || x.Request.Method == "CONNECT" {
		return false, nil
	}
	if rules.StripTrailingDot {
		stripDot(x)
	}
	if rules.StripPort != config.KeepPort {
		stripPort(x, rules.StripPort)
	}
	if !strings.HasPrefix(x.Request.Path, "/") {
		return false, nil
	}
	return normalizePath(x, rules)
}

// normalizePath applies the rules for paths to x's path; see NormalizeTarget.
func normalizePath(x *protocol.Exchange, rules *config.TargetNormalization) (redirected bool, err error) {
	path, redirect := x.Request.Path, false
	if rules.EscapedSlashes != config.KeepEscapedSlashes {
		unescaped, found := urlpath.UnescapeSlashes(path)
		if found && rules.EscapedSlashes == config.RejectEscapedSlashes {
			return false, errors.New("the path has an encoded slash")
		}
		path, redirect = unescaped, found && rules.EscapedSlashes == config.RedirectEscapedSlashes
	}
	if rules.NormalizePath {
		if path, err = urlpath.Normalize(path); err != nil {
			return false, err
		}
	}
	if rules.MergeSlashes {
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

// stripPort removes the port from the host, as mode says.
func stripPort(x *protocol.Exchange, mode config.StripPort) {
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
	if mode == config.StripMatchingPort && (x.Meta.Conn == nil || x.Meta.Conn.Local.Port() != number) {
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
