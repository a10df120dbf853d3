package conformance

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

func requestSyntaxCases() []ruleCase {
	var cases []ruleCase
	reject := func(rfc string, list func(yield func(name, text string) bool)) {
		for name, text := range list {
			cases = append(cases, ruleCase{name: "rejected: " + name, rfc: rfc, script: script{clientSends(text + smuggled), rejected(400)}})
		}
	}
	reject("9112 2.2", pairs(
		"a bare LF after the request line", "GET / HTTP/1.1\nHost: h\r\n\r\n",
		"a bare LF after a field", "GET / HTTP/1.1\r\nHost: h\n\r\n",
		"a bare LF as the empty line", "GET / HTTP/1.1\r\nHost: h\r\n\n",
		"a head of bare LF", "GET / HTTP/1.1\nHost: h\n\n",
		"a bare LF before the request line", "\n"+get,
		"a bare CR after the request line", "GET / HTTP/1.1\rHost: h\r\n\r\n",
		"a bare CR as the empty line", "GET / HTTP/1.1\r\nHost: h\r\n\rX",
		"two CR after a field", "GET / HTTP/1.1\r\nHost: h\r\r\n\r\n",
		"a bare CR in a value", "GET / HTTP/1.1\r\nHost: h\r\nX-A: a\rb\r\n\r\n",
		"a bare CR in the target", "GET /\r HTTP/1.1\r\nHost: h\r\n\r\n",
		"whitespace before the first field", "GET / HTTP/1.1\r\n Host: h\r\n\r\n",
		"17 empty lines before the request line", strings.Repeat("\r\n", 17)+get,
	))
	reject("9112 5.1", pairs(
		"a space before a colon", "GET / HTTP/1.1\r\nHost: h\r\nX-A : 1\r\n\r\n",
		"a tab before a colon", "GET / HTTP/1.1\r\nHost: h\r\nX-A\t: 1\r\n\r\n",
		"a space in a name", "GET / HTTP/1.1\r\nHost: h\r\nX A: 1\r\n\r\n",
		"a field without a name", "GET / HTTP/1.1\r\nHost: h\r\n: 1\r\n\r\n",
		"a field without a colon", "GET / HTTP/1.1\r\nHost: h\r\nX-A\r\n\r\n",
		"a name with a byte that is not a token character", "GET / HTTP/1.1\r\nHost: h\r\nX(A: 1\r\n\r\n",
		"a name with a byte above ASCII", "GET / HTTP/1.1\r\nHost: h\r\nX-\xe9: 1\r\n\r\n",
		"a name with NUL", "GET / HTTP/1.1\r\nHost: h\r\nX-\x00A: 1\r\n\r\n",
		"a name in quotes", "GET / HTTP/1.1\r\nHost: h\r\n\"X\": 1\r\n\r\n",
	))
	reject("9112 5.2", pairs(
		"a folded line with a space", "GET / HTTP/1.1\r\nHost: h\r\nX-A: a\r\n b\r\n\r\n",
		"a folded line with a tab", "GET / HTTP/1.1\r\nHost: h\r\nX-A: a\r\n\tb\r\n\r\n",
		"a folded Host", "GET / HTTP/1.1\r\nHost:\r\n h\r\n\r\n",
		"an empty folded line", "GET / HTTP/1.1\r\nHost: h\r\nX-A: a\r\n \r\n\r\n",
	))
	reject("9110 5.5", pairs(
		"NUL in a value", "GET / HTTP/1.1\r\nHost: h\r\nX-A: a\x00b\r\n\r\n",
		"a control character in a value", "GET / HTTP/1.1\r\nHost: h\r\nX-A: a\x01b\r\n\r\n",
		"DEL in a value", "GET / HTTP/1.1\r\nHost: h\r\nX-A: a\x7fb\r\n\r\n",
		"ESC in a value", "GET / HTTP/1.1\r\nHost: h\r\nX-A: \x1b[31m\r\n\r\n",
	))
	reject("9112 3", pairs(
		"two spaces before the target", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
		"two spaces after the target", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
		"a tab before the target", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"a tab after the target", "GET /\tHTTP/1.1\r\nHost: h\r\n\r\n",
		"a space before the method", " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a space after the version", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
		"a word after the version", "GET / HTTP/1.1 HTTP/1.1\r\nHost: h\r\n\r\n",
		"a space in the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a request line without a version", "GET /\r\nHost: h\r\n\r\n",
		"a request line without a target", "GET HTTP/1.1\r\nHost: h\r\n\r\n",
		"a request line with only a method", "GET\r\nHost: h\r\n\r\n",
		"a method that is not a token", "G{T / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a method with NUL", "G\x00T / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a method with a colon", "GET: / HTTP/1.1\r\nHost: h\r\n\r\n",
		"bytes of another protocol", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a status line", "HTTP/1.1 200 OK\r\nHost: h\r\n\r\n",
	))
	reject("9112 2.3", pairs(
		"a version in lower case", "GET / http/1.1\r\nHost: h\r\n\r\n",
		"a version with more digits", "GET / HTTP/1.10\r\nHost: h\r\n\r\n",
		"a version with fewer digits", "GET / HTTP/1\r\nHost: h\r\n\r\n",
		"a version with a sign", "GET / HTTP/+1.1\r\nHost: h\r\n\r\n",
		"a version of letters", "GET / HTTP/x.y\r\nHost: h\r\n\r\n",
		"a version of another protocol", "GET / HTCPCP/1.0\r\nHost: h\r\n\r\n",
	))
	for _, version := range []string{"0.9", "2.0", "3.0", "9.9"} {
		cases = append(cases, ruleCase{
			name: "not supported: version " + version, rfc: "9110 15.6.6",
			script: script{clientSends("GET / HTTP/" + version + "\r\nHost: h\r\n\r\n"), rejected(505)},
		})
	}
	cases = append(cases, ruleCase{
		name: "two empty lines before the request line are skipped", rfc: "9112 2.2",
		script: requestBecomes("\r\n\r\n"+get, get),
	}, ruleCase{
		name: "a higher minor version is read as the highest known version", rfc: "9110 2.5",
		script: requestBecomes("GET / HTTP/1.2\r\nHost: h\r\n\r\n", get),
	})
	return append(cases, ruleCase{
		name: "the HTTP/2 preface is not supported", rfc: "9113 3.4",
		script: script{clientSends("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), rejected(505)},
	})
}

func responseSyntaxCases() []ruleCase {
	var cases []ruleCase
	malformed := func(rfc string, list func(yield func(name, text string) bool)) {
		for name, text := range list {
			cases = append(cases, ruleCase{
				name: "malformed response: " + name, rfc: rfc,
				script: script{clientSends(get), originReceives(get), originSends(text), localReplyKeepAlive(502), originClosed, carriesNextExchange},
			})
		}
	}
	const end = "Content-Length: 2\r\n\r\nok"
	malformed("9112 4", pairs(
		"a status of two digits", "HTTP/1.1 20 OK\r\n"+end,
		"a status of four digits", "HTTP/1.1 2000 OK\r\n"+end,
		"a status below 100", "HTTP/1.1 099 OK\r\n"+end,
		"a status of letters", "HTTP/1.1 abc OK\r\n"+end,
		"a status with a sign", "HTTP/1.1 +20 OK\r\n"+end,
		"two spaces before a status", "HTTP/1.1  200 OK\r\n"+end,
		"a tab before a status", "HTTP/1.1\t200 OK\r\n"+end,
		"a phrase with NUL", "HTTP/1.1 200 O\x00K\r\n"+end,
		"a status line without a status", "HTTP/1.1\r\n"+end,
		"an empty line before the status line", "\r\n"+okResponse,
		"another version", "HTTP/2.0 200 OK\r\n"+end,
		"no version", "200 OK\r\n"+end,
		"a version in lower case", "http/1.1 200 OK\r\n"+end,
		"a version of another protocol", "ICY 200 OK\r\n"+end,
		"an HTTP/0.9 response", "<html>hello</html>\r\n\r\n",
		"an echoed request", get,
	))
	malformed("9112 2.2", pairs(
		"a bare LF after the status line", "HTTP/1.1 200 OK\n"+end,
		"a bare LF after a field", "HTTP/1.1 200 OK\r\nX-A: 1\n"+end,
		"a bare LF as the empty line", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok",
		"a bare CR after the status line", "HTTP/1.1 200 OK\r"+end,
		"a bare CR in a value", "HTTP/1.1 200 OK\r\nX-A: a\rb\r\n"+end,
		"whitespace before the first field", "HTTP/1.1 200 OK\r\n X-A: 1\r\n"+end,
	))
	malformed("9112 5.1, 5.2", pairs(
		"a folded line", "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\n"+end,
		"a space in a name", "HTTP/1.1 200 OK\r\nX A: 1\r\n"+end,
		"a field without a name", "HTTP/1.1 200 OK\r\n: 1\r\n"+end,
		"a field without a colon", "HTTP/1.1 200 OK\r\nX-A\r\n"+end,
		"a name with NUL", "HTTP/1.1 200 OK\r\nX\x00A: 1\r\n"+end,
		"NUL in a value", "HTTP/1.1 200 OK\r\nX-A: a\x00b\r\n"+end,
		"a control character in a value", "HTTP/1.1 200 OK\r\nX-A: a\x02b\r\n"+end,
	))
	malformed("9110 2.3", pairs(
		"a head above the limit", "HTTP/1.1 200 OK\r\nX-A: "+strings.Repeat("a", 20_000)+"\r\n"+end,
		"more fields than the limit", "HTTP/1.1 200 OK\r\n"+strings.Repeat("A: 1\r\n", 101)+end,
		"a status line above the limit", "HTTP/1.1 200 "+strings.Repeat("a", 20_000)+"\r\n"+end,
	))
	return append(cases, ruleCase{
		name: "a status above 599 is forwarded", rfc: "9110 15",
		script: responseBecomes("HTTP/1.1 600 Odd\r\nDate: d\r\n"+end, "HTTP/1.1 600 \r\nDate: d\r\n"+end),
	}, ruleCase{
		name: "a space before a colon of a response is removed", rfc: "9112 5.1",
		script: responseBecomes("HTTP/1.1 200 OK\r\nDate: d\r\nX-A : 1\r\n"+end, "HTTP/1.1 200 OK\r\nDate: d\r\nX-A: 1\r\n"+end),
	})
}

func targetCases() []ruleCase {
	cases := []ruleCase{
		{
			name: "the authority of an absolute target becomes Host", rfc: "9112 3.2.2",
			script: requestBecomes("GET http://real.test:81/a?b HTTP/1.1\r\nHost: other.test\r\n\r\n", "GET /a?b HTTP/1.1\r\nHost: real.test:81\r\n\r\n"),
		},
		{
			name: "an absolute target without a path gets one", rfc: "9112 3.2.1",
			script: concat(
				requestBecomes("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", get),
				requestBecomes("GET http://h?a=b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?a=b HTTP/1.1\r\nHost: h\r\n\r\n")),
		},
		{
			name: "OPTIONS with an absolute target without a path becomes OPTIONS *", rfc: "9112 3.2.4",
			script: concat(
				requestBecomes("OPTIONS http://h:8001 HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: h:8001\r\n\r\n"),
				requestBecomes("OPTIONS http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n")),
		},
		{
			name: "a scheme is case-insensitive", rfc: "9110 4.2.3",
			script: requestBecomes("GET HtTp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", get),
		},
		{
			name: "an absolute target keeps the case and encoding of its path", rfc: "9112 3.2.2",
			script: requestBecomes("GET http://h/A%2fb//../ HTTP/1.1\r\nHost: h\r\n\r\n", "GET /A%2fb//../ HTTP/1.1\r\nHost: h\r\n\r\n"),
		},
		{
			name: "an absolute target in HTTP/1.0 needs no Host", rfc: "9112 3.2.2",
			script: script{clientSends("GET http://h/ HTTP/1.0\r\n\r\n"), originReceives(get), originSends(okResponse), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed, carriesNextExchange},
		},
		{
			name: "OPTIONS * passes", rfc: "9112 3.2.4",
			script: requestPasses("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"),
		},
		{
			name: "Host keeps its port and its case", rfc: "9112 3.2",
			script: requestPasses("GET / HTTP/1.1\r\nHost: Shop.Test:8080\r\n\r\n"),
		},
		{
			name: "Host may be an address", rfc: "9110 7.2",
			script: concat(requestPasses("GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n"), requestPasses("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n")),
		},
	}
	for name, text := range pairs(
		"no Host", "GET / HTTP/1.1\r\nX-A: 1\r\n\r\n",
		"no Host after an absolute target", "GET http://h/ HTTP/1.1\r\nX-A: 1\r\n\r\n",
		"two Hosts", "GET / HTTP/1.1\r\nHost: h\r\nHost: g\r\n\r\n",
		"two equal Hosts", "GET / HTTP/1.1\r\nHost: h\r\nhost: h\r\n\r\n",
		"two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: h\r\nHost: g\r\n\r\n",
		"an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"a Host with a path", "GET / HTTP/1.1\r\nHost: h/admin\r\n\r\n",
		"a Host with user information", "GET / HTTP/1.1\r\nHost: user@h\r\n\r\n",
		"a Host with a space", "GET / HTTP/1.1\r\nHost: h g\r\n\r\n",
		"a Host with a query", "GET / HTTP/1.1\r\nHost: h?a\r\n\r\n",
		"a Host with a fragment", "GET / HTTP/1.1\r\nHost: h#a\r\n\r\n",
		"a Host with a backslash", "GET / HTTP/1.1\r\nHost: h\\g\r\n\r\n",
		"a Host with a bad port", "GET / HTTP/1.1\r\nHost: h:8a\r\n\r\n",
		"a Host with a port too large", "GET / HTTP/1.1\r\nHost: h:65536\r\n\r\n",
		"a Host with only a port", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n",
		"a Host with two ports", "GET / HTTP/1.1\r\nHost: h:80:80\r\n\r\n",
		"a Host with a scheme", "GET / HTTP/1.1\r\nHost: http://h\r\n\r\n",
		"a Host with a broken address", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
		"a Host with a byte above ASCII", "GET / HTTP/1.1\r\nHost: h\xe9\r\n\r\n",
		"a Host with a broken encoding", "GET / HTTP/1.1\r\nHost: h%2\r\n\r\n",
		"a bad Host after an absolute target", "GET http://h/ HTTP/1.1\r\nHost: user@h\r\n\r\n",
		"a target with a fragment", "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a target of unknown form", "GET a/b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a target with only a query", "GET ?a HTTP/1.1\r\nHost: h\r\n\r\n",
		"a target with a byte above ASCII", "GET /\xe9 HTTP/1.1\r\nHost: h\r\n\r\n",
		"a target with a control character", "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n",
		"a target with NUL", "GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n",
		"an absolute target without an authority", "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n",
		"an absolute target with user information", "GET http://user:pass@h/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"an absolute target with a bad port", "GET http://h:x/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"an absolute target with one slash", "GET http:/h/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"an absolute target of another scheme", "GET file:///etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n",
		"an authority as the target of GET", "GET h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
		"* as the target of GET", "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
		"an encoded * as the target of OPTIONS", "OPTIONS %2A HTTP/1.1\r\nHost: h\r\n\r\n",
	) {
		cases = append(cases, ruleCase{name: "rejected: " + name, rfc: "9112 3.2", script: script{clientSends(text + smuggled), rejected(400)}})
	}
	return cases
}

func methodCases() []ruleCase {
	var cases []ruleCase
	for _, method := range []string{"PURGE", "M-SEARCH", "get", "DELETE", "PATCHWORK", "X!#$%&'*+-.^_`|~"} {
		cases = append(cases, ruleCase{
			name: "the method " + method + " is forwarded unchanged", rfc: "9110 9.1",
			script: requestPasses(method + " / HTTP/1.1\r\nHost: h\r\n\r\n"),
		})
	}
	allowConnect := func(s *setup) { s.AllowConnect = true }
	for name, text := range pairs(
		"CONNECT to a path", "CONNECT / HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT without a port", "CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT with an empty port", "CONNECT h: HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT to a URI", "CONNECT http://h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT with user information", "CONNECT u@h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT with a length", "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\nContent-Length: 2\r\n\r\nhi",
		"CONNECT with a chunked body", "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	) {
		cases = append(cases,
			ruleCase{name: "rejected: " + name, rfc: "9112 3.2.3", script: script{clientSends(text + smuggled), rejected(400)}},
			ruleCase{name: "rejected if CONNECT is allowed: " + name, rfc: "9112 3.2.3", setup: allowConnect, script: script{clientSends(text + smuggled), rejected(400)}})
	}
	return append(cases, connectAndMaxForwardsCases()...)
}

// connectAndMaxForwardsCases returns exchanges about CONNECT and Max-Forwards.
func connectAndMaxForwardsCases() []ruleCase {
	return []ruleCase{
		{
			name: "CONNECT is not allowed by default", rfc: "9110 9.3.6",
			script: script{clientSends("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n"), localReplyKeepAlive(405), originUntouched, carriesNextExchange},
		},
		{
			name: "Max-Forwards of OPTIONS is decremented", rfc: "9110 7.6.2",
			script: requestBecomes("OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 10\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 9\r\n\r\n"),
		},
		{
			name: "Max-Forwards of TRACE is decremented", rfc: "9110 7.6.2",
			script: requestBecomes("TRACE / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 1\r\n\r\n", "TRACE / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n"),
		},
		{
			name: "OPTIONS is not forwarded at 0", rfc: "9110 7.6.2",
			script: script{clientSends("OPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n"), localReplyKeepAlive(204), originUntouched, carriesNextExchange},
		},
		{
			name: "TRACE is not forwarded at 0", rfc: "9110 7.6.2",
			script: script{clientSends("TRACE / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\nCookie: a=b\r\n\r\n"), localReplyKeepAlive(405), originUntouched, carriesNextExchange},
		},
		{
			name: "Max-Forwards of other methods is kept", rfc: "9110 7.6.2",
			script: requestPasses("GET / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n"),
		},
		{
			name: "OPTIONS without Max-Forwards gets none", rfc: "9110 7.6.2",
			script: requestPasses("OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n"),
		},
	}
}

func forwardingCases() []ruleCase {
	via := func(s *setup) { s.Via = "weft" }
	mode := func(m config.ForwardedMode) func(s *setup) {
		return func(s *setup) { s.XForwarded, s.XForwardedHost = m, true }
	}
	const clientFields = "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer.test\r\n"
	const weftFields = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\n"
	return []ruleCase{
		{
			name: "no Via is added by default", rfc: "9110 7.6.3",
			script: concat(requestPasses(requestStart+"Via: 1.1 first\r\n\r\n"), responsePasses(responseStart+"Via: 1.1 last\r\nContent-Length: 0\r\n\r\n")),
		},
		{
			name: "Via is added in both directions", rfc: "9110 7.6.3", setup: via,
			script: script{clientSends(get), originReceives(requestStart + "Via: 1.1 weft\r\n\r\n"), originSends(emptyResponse), clientReceives(responseStart + "Via: 1.1 weft\r\nContent-Length: 0\r\n\r\n")},
		},
		{
			name: "Via is appended to existing values", rfc: "9110 7.6.3", setup: via,
			script: script{clientSends(requestStart + "Via: 1.0 first, 1.1 second\r\n\r\n"), originReceives(requestStart + "Via: 1.0 first, 1.1 second\r\nVia: 1.1 weft\r\n\r\n"),
				originSends(responseStart + "Via: 1.1 last\r\nContent-Length: 0\r\n\r\n"), clientReceives(responseStart + "Via: 1.1 last\r\nVia: 1.1 weft\r\nContent-Length: 0\r\n\r\n")},
		},
		{
			name: "Via has the received version", rfc: "9110 7.6.3", setup: via,
			script: script{clientSends("GET / HTTP/1.0\r\nHost: h\r\n\r\n"), originReceives(requestStart + "Via: 1.0 weft\r\n\r\n"),
				originSends("HTTP/1.0 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n"), clientReceives(responseStart + "Via: 1.0 weft\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), clientClosed},
		},
		{
			name: "a local reply has no Via", rfc: "9110 7.6.3",
			setup:  func(s *setup) { s.Via = "weft"; s.extra = append(s.extra, direct("/local", 200, "own")) },
			script: script{clientSends("GET /local HTTP/1.1\r\nHost: h\r\n\r\n"), localReplyKeepAlive(200), originUntouched},
		},
		{
			name: "X-Forwarded fields are kept", rfc: "configuration",
			script: concat(requestPasses(requestStart+clientFields+"\r\n"), requestPasses(get)),
		},
		{
			name: "X-Forwarded fields are appended to", rfc: "configuration", setup: mode(config.ForwardedAppend),
			script: concat(script{clientSends(get), originReceives(requestStart + weftFields + "\r\n"), originSends(okResponse), clientReceives(okResponse)},
				script{clientSends(requestStart + clientFields + "\r\n"), originReceives(requestStart + "X-Forwarded-For: 10.0.0.1, 127.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer.test\r\n\r\n"), originSends(okResponse), clientReceives(okResponse)}),
		},
		{
			name: "X-Forwarded fields are replaced", rfc: "configuration", setup: mode(config.ForwardedSet),
			script: concat(script{clientSends(requestStart + clientFields + "x-forwarded-FOR: 10.0.0.2\r\n\r\n"), originReceives(requestStart + weftFields + "\r\n"), originSends(okResponse), clientReceives(okResponse)},
				script{clientSends(get), originReceives(requestStart + weftFields + "\r\n"), originSends(okResponse), clientReceives(okResponse)}),
		},
		{
			name: "X-Forwarded fields are stripped", rfc: "configuration", setup: mode(config.ForwardedStrip),
			script: requestBecomes(requestStart+clientFields+"x-forwarded-FOR: 10.0.0.2\r\n\r\n", get),
		},
	}
}
