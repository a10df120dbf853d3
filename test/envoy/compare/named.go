package compare

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/client"
)

// Named is a difference with a name. docs/envoy.md lists all of them.
type Named struct {
	Name string
	// Text says what Weft does, and what Envoy does.
	Text string
	// Reason says why Weft differs by design. It is empty if the difference should go away.
	Reason string
	// matches reports whether a difference of a case is this one.
	matches func(r *Result, d Difference) bool
}

// AllNamed returns the named differences. The first one that matches applies.
func AllNamed() []Named { return slices.Concat(byDesign(), notYet()) }

// byDesign returns the differences that stay.
func byDesign() []Named {
	return slices.Concat(inErrors(), inLocalReplies(), inFields(), inFilters(), inRoutes())
}

// inErrors returns the differences that stay, and that concern errors.
func inErrors() []Named {
	return []Named{
		{
			Name:   "connection closed after an error",
			Text:   "After a local reply with `connection: close`, Weft closes its side of the connection immediately. Envoy first waits for the client, for up to `delayed_close_timeout`.",
			Reason: "The client need not wait for a timeout to learn that the connection is closed. Weft still reads what the client sends for some time, so that a TCP reset does not destroy the response.",
			matches: func(r *Result, d Difference) bool {
				closes := func(v View) bool { return slices.Equal(v["resp.headers.connection"], []string{"close"}) }
				return d.Aspect == "closed" && slices.Equal(d.Weft, []string{"true"}) &&
					closes(r.envoy) && closes(r.weft) && isLocalReply(r, "resp")
			},
		},
		{
			Name:   "malformed HTTP/2 requests",
			Text:   "After a malformed request over HTTP/2, Weft resets the stream. Envoy closes the connection, unless `override_stream_error_on_invalid_http_message` is set.",
			Reason: "RFC 9113, section 8.1.1, calls it an error of the stream. The other requests of the connection continue.",
			matches: func(r *Result, _ Difference) bool {
				reset := false
				for aspect, frames := range r.weft {
					reset = reset || strings.HasPrefix(aspect, streamPrefix) && slices.Equal(frames, []string{"RST_STREAM 1"}) && r.envoy[aspect] == nil
				}
				return r.c.Kind == client.Frames && reset && !hasStreams(r.envoy)
			},
		},
		{
			Name:   "GOAWAY before the end of a connection",
			Text:   "Weft sends GOAWAY with the error before it closes a connection of HTTP/2. Envoy closes some connections without it.",
			Reason: "RFC 9113, section 5.4.1, asks for GOAWAY, so that the client learns the reason.",
			matches: func(r *Result, d Difference) bool {
				return r.c.Kind == client.Frames && d.Aspect == "frames.connection" && len(d.Weft) == len(d.Envoy)+1 &&
					slices.Equal(d.Weft[:len(d.Envoy)], d.Envoy) && strings.HasPrefix(d.Weft[len(d.Envoy)], "GOAWAY ") &&
					slices.Equal(r.envoy["closed"], []string{"true"}) && slices.Equal(r.weft["closed"], []string{"true"})
			},
		},
		{
			Name:   "stricter HTTP/1.1 syntax",
			Text:   "Weft rejects HTTP/1.1 requests that Envoy forwards: " + strictSyntaxText() + ".",
			Reason: "RFC 9110 and 9112 require or allow it. If two programs read such a request differently, a client can hide another request in it, or evade a rule about the host.",
			matches: func(r *Result, d Difference) bool {
				// All aspects of a response that is not forwarded differ, but not how the case ended.
				return isMalformed(r.c) && !slices.Contains([]string{"error", "goaway", timeAspect}, d.Aspect) &&
					wasForwarded(r.envoy) && slices.Equal(r.weft[originCount], []string{"0"}) &&
					(isCodecError(r.weft, "resp") || isCodecError(r.weft, "resp0"))
			},
		},
		{
			Name:   "access log of malformed requests",
			Text:   "In the access log line of a malformed request, `%REQ(...)%` has the fields that the proxy read before it found the error. Envoy and Weft find errors at different times.",
			Reason: "A malformed head has no reliable fields. Weft stops at the first error, and logs only what it has validated.",
			matches: func(r *Result, d Difference) bool {
				if !strings.HasPrefix(d.Aspect, logPrefix) || d.Envoy != nil && d.Weft != nil {
					return false
				}
				isReset := r.envoy["resp.reset"] != nil && slices.Equal(r.envoy["resp.reset"], r.weft["resp.reset"])
				return isReset && slices.Equal(r.weft[logPrefix+"flags"], []string{"DPE"}) ||
					isLocalReply(r, "resp") && (isCodecError(r.weft, "resp") || isRejectedPath(r.envoy))
			},
		},
	}
}

// inLocalReplies returns the differences that stay, and that concern local replies.
func inLocalReplies() []Named {
	return []Named{
		{
			Name:   "connection kept after an early reply",
			Text:   "If Weft responds before it has read the rest of a small request, it reads the rest and keeps the connection. Envoy closes the connection, also if it rejects the path, and after every 400 and 413.",
			Reason: "The client need not open another connection.",
			matches: func(r *Result, d Difference) bool {
				return strings.HasPrefix(d.Aspect, "resp") && strings.HasSuffix(d.Aspect, ".headers.connection") &&
					slices.Equal(d.Envoy, []string{"close"}) && d.Weft == nil && isLocalReply(r, responseOf(d.Aspect))
			},
		},
		{
			Name:   "text of TLS errors",
			Text:   "In `%RESPONSE_CODE_DETAILS%`, the text after `TLS_error:` is the one of Weft.",
			Reason: "Envoy has the texts of its TLS library, which Weft does not use.",
			matches: func(_ *Result, d Difference) bool {
				return d.Aspect == logPrefix+"details" && everyPair(d, func(e, w string) bool {
					e, _, inEnvoy := strings.Cut(e, "|TLS_error:")
					w, _, inWeft := strings.Cut(w, "|TLS_error:")
					return inEnvoy && inWeft && e == w
				})
			},
		},
		{
			Name:   "header lists in HTTP/2 that are too large",
			Text:   "If the header list of an HTTP/2 request is too large, Weft responds with 431. Envoy resets the stream.",
			Reason: "The status tells the client what is wrong (RFC 6585, section 5).",
			matches: func(r *Result, d Difference) bool {
				return r.c.Kind == client.HTTP2 && strings.HasPrefix(d.Aspect, "resp") &&
					slices.Equal(r.weft["resp.status"], []string{"431"}) && r.envoy["resp.reset"] != nil
			},
		},
		{
			Name:   "transfer-encoding in responses to HEAD",
			Text:   "In a response to HEAD without `content-length`, Envoy sends `transfer-encoding: chunked`. Weft does not.",
			Reason: "The response has no body (RFC 9110, section 9.3.2), and the proxy does not know how a response to GET would be sent.",
			matches: func(r *Result, d Difference) bool {
				return (r.c.Method == "HEAD" || strings.HasPrefix(r.c.Label, "HEAD ")) && strings.HasSuffix(d.Aspect, ".headers.transfer-encoding") &&
					slices.Equal(d.Envoy, []string{"chunked"}) && d.Weft == nil
			},
		},
	}
}

// inFields returns the differences that stay, and that concern fields of messages or filters.
func inFields() []Named {
	return []Named{
		{
			Name:   "client address on loopback",
			Text:   "If the client connects over loopback, Weft appends `127.0.0.1` to `x-forwarded-for`. Envoy appends an address of the machine.",
			Reason: "The address is the one from which the client connected.",
			matches: func(_ *Result, d Difference) bool {
				return strings.HasSuffix(d.Aspect, ".headers.x-forwarded-for") && isLoopbackClient(d)
			},
		},
		{
			Name:   "trailers over HTTP/1.1",
			Text:   "Weft forwards trailers of HTTP/1.1. Envoy drops them unless `enable_trailers` is set. For gRPC requests to HTTP/1.1 hosts, Weft adds `te: trailers`.",
			Reason: "gRPC over HTTP/1.1 needs trailers, and hosts may send them only to a client that asks for them (RFC 9110, section 6.5.1).",
			matches: func(r *Result, d Difference) bool {
				message := responseOf(d.Aspect)
				isNew := func(field, value string) bool {
					return strings.HasPrefix(d.Aspect, "o") && strings.HasSuffix(d.Aspect, ".headers."+field) && slices.Equal(d.Weft, []string{value}) &&
						len(r.weft[message+".headers.content-type"]) == 1 && strings.HasPrefix(r.weft[message+".headers.content-type"][0], "application/grpc")
				}
				return d.Envoy == nil && usesHTTP1(r) && (strings.HasSuffix(d.Aspect, ".trailers") || isNew("te", "trailers") || isNew("connection", "TE"))
			},
		},
		{
			Name:   "ambiguous paths in rbac",
			Text:   "If a condition of `rbac` uses the path, the filter denies requests whose path an application may read differently, such as `/b/../a`. Envoy matches the path as it is.",
			Reason: "A client could evade a rule ([rbac](filters/rbac.md)).",
			matches: func(r *Result, d Difference) bool {
				isDenied := slices.Equal(r.weft[originCount], []string{"0"}) && slices.Equal(r.weft["resp.status"], []string{"403"}) &&
					slices.Equal(r.weft["resp.body"], []string{"RBAC: access denied"})
				return r.Feature == "rbac" && isAmbiguous(r.c.Path) && isDenied &&
					(wasForwarded(r.envoy) && slices.Equal(r.envoy["resp.status"], []string{"200"}) || d.Aspect == logPrefix+"details")
			},
		},
		fieldDifference("protocol version in via", "Weft adds the name in `via` with the version of HTTP, in a field of its own. Envoy adds only the name.",
			"RFC 9110, section 7.6.3, requires the version.",
			"via", func(_ *Result, d Difference) bool {
				last := len(d.Weft) - 1
				return len(d.Envoy) == 1 && last >= 0 && d.Weft[last] == "1.1 me" &&
					slices.Equal(splitList(d.Envoy[0]), append(splitList(strings.Join(d.Weft[:last], ",")), "me"))
			}),
		{
			Name:   "TLS 1.3 to hosts",
			Text:   "Weft offers TLS 1.3 to hosts. Envoy offers at most TLS 1.2 unless `tls_maximum_protocol_version` is set.",
			Reason: "TLS 1.3 needs one round trip less and encrypts the certificates. Hosts without it negotiate TLS 1.2.",
			matches: func(_ *Result, d Difference) bool {
				return strings.HasPrefix(d.Aspect, "o") && strings.HasSuffix(d.Aspect, ".tls") &&
					everyPair(d, func(e, w string) bool {
						return e != w && strings.Replace(e, " v=TLS 1.2", " v=TLS 1.3", 1) == w
					})
			},
		},
		{
			Name:   "TLS alerts",
			Text:   "If a client certificate does not match the configuration, the TLS alert of Weft is `bad certificate`. The one of Envoy is `unknown certificate`.",
			Reason: "The TLS library of Go chooses the alert. Each of them ends the connection.",
			matches: func(r *Result, d Difference) bool {
				return r.c.TLS != nil && r.c.TLS.Certificate != "" && (d.Aspect == "tls" || d.Aspect == "error") &&
					everyPair(d, func(e, w string) bool {
						return strings.HasSuffix(e, "alert: unknown certificate") && strings.Replace(e, "unknown", "bad", 1) == w
					})
			},
		},
		{
			Name:   "vary with CORS",
			Text:   "The filter `cors` adds `vary: Origin` to responses. Envoy does not.",
			Reason: "Without it, a cache may send a response for one origin to a page of another.",
			matches: func(r *Result, d Difference) bool {
				return r.Feature == "cors" && strings.HasSuffix(d.Aspect, ".headers.vary") && d.Envoy == nil && slices.Equal(d.Weft, []string{"Origin"})
			},
		},
	}
}

// notYet returns the differences that should go away.
func notYet() []Named { return slices.Concat(everywhere(), ignoredFields(), inTrailers()) }

// everywhere returns the differences that should go away, and that occur with every configuration.
func everywhere() []Named {
	return []Named{
		{
			Name: "cluster of requests without a host",
			Text: "If a filter responds, `%UPSTREAM_CLUSTER%` of the access log is `-`. In Envoy, it is the cluster of the route.",
			matches: func(r *Result, d Difference) bool {
				// With ext_authz, the request that reaches an origin is that of the filter.
				responds := slices.Equal(r.weft[originCount], []string{"0"}) || slices.Equal(r.weft[logPrefix+"flags"], []string{"UAEX"})
				return d.Aspect == logPrefix+"cluster" && responds &&
					everyPair(d, func(e, w string) bool { return e == w || w == "-" })
			},
		},
		{
			Name: "name of HTTP/2",
			Text: "`%PROTOCOL%` of the access log is `HTTP/2.0` in Weft and `HTTP/2` in Envoy.",
			matches: func(_ *Result, d Difference) bool {
				return d.Aspect == logPrefix+"protocol" &&
					everyPair(d, func(e, w string) bool { return e == w || e == "HTTP/2" && w == "HTTP/2.0" })
			},
		},
	}
}

// ignoredFields returns the differences that should go away, and that concern one filter or one
// field of the configuration.
func ignoredFields() []Named {
	return []Named{
		fieldDifference("te", "Weft does not forward `te: trailers` to hosts with HTTP/2.", "",
			"te", func(_ *Result, d Difference) bool {
				return strings.HasPrefix(d.Aspect, "o") && slices.Equal(d.Envoy, []string{"trailers"}) && d.Weft == nil
			}),
		fieldDifference("exposed headers in preflights", "Weft sends `access-control-expose-headers` only in the response to the request itself. Envoy also sends it in the response to the preflight.", "",
			"access-control-expose-headers", func(r *Result, d Difference) bool {
				return strings.HasPrefix(d.Aspect, "resp") && r.c.Method == "OPTIONS" && d.Weft == nil
			}),
	}
}

// fieldDifference returns a difference in a header field. reason is empty if the difference should
// go away.
func fieldDifference(name, text, reason, field string, matches func(r *Result, d Difference) bool) Named {
	return Named{Name: name, Text: text, Reason: reason, matches: func(r *Result, d Difference) bool {
		return strings.HasSuffix(d.Aspect, ".headers."+field) && matches(r, d)
	}}
}

// isAmbiguous reports whether two programs may read a path differently.
func isAmbiguous(path string) bool {
	return strings.Contains(path, "..") || strings.Contains(path, "//") || strings.Contains(path, "%")
}

// isLoopbackClient reports whether two values of X-Forwarded-For differ only in the last address,
// which is 127.0.0.1 in Weft, and not a loopback address in Envoy.
func isLoopbackClient(d Difference) bool {
	if len(d.Envoy) != 1 || len(d.Weft) != 1 {
		return false
	}
	envoy, weft := splitList(d.Envoy[0]), splitList(d.Weft[0])
	last := len(envoy) - 1
	if len(weft)-1 != last || weft[last] != "127.0.0.1" || !slices.Equal(envoy[:last], weft[:last]) {
		return false
	}
	address, err := netip.ParseAddr(envoy[last])
	return err == nil && !address.IsLoopback()
}

// splitList returns the elements of a list without spaces around them.
func splitList(text string) []string {
	if text == "" {
		return nil
	}
	elements := strings.Split(text, ",")
	for i, e := range elements {
		elements[i] = strings.TrimSpace(e)
	}
	return elements
}

// serviceTime is the end of an aspect that only forwarded responses of Envoy have.
const serviceTime = ".headers.x-envoy-upstream-service-time"

// responseOf returns the name of the response to which an aspect belongs.
func responseOf(aspect string) string {
	name, _, _ := strings.Cut(aspect, ".")
	return name
}

// isLocalReply reports whether a response is a local reply of both proxies with the same status.
func isLocalReply(r *Result, name string) bool {
	status := r.weft[name+".status"]
	return r.envoy[name+serviceTime] == nil && len(status) > 0 && slices.Equal(r.envoy[name+".status"], status) &&
		!slices.Contains(r.weft[logPrefix+"details"], viaUpstream) && !slices.Contains(r.envoy[logPrefix+"details"], viaUpstream)
}

// wasForwarded reports whether a request reached an origin.
func wasForwarded(v View) bool {
	return len(v[originCount]) == 1 && v[originCount][0] != "0"
}

// usesHTTP1 reports whether the client or an origin of a case uses HTTP/1.
func usesHTTP1(r *Result) bool {
	if r.c.Kind == client.HTTP1 || r.c.Kind == client.Raw {
		return true
	}
	for aspect, line := range r.weft {
		if strings.HasSuffix(aspect, ".line") && len(line) == 1 && strings.HasSuffix(line[0], " HTTP/1.1") {
			return true
		}
	}
	return false
}

// streamPrefix begins the aspects about the frames of a stream.
const streamPrefix = "frames.stream "

// hasStreams reports whether frames of a stream arrived.
func hasStreams(v View) bool {
	for aspect := range v {
		if strings.HasPrefix(aspect, streamPrefix) {
			return true
		}
	}
	return false
}

// viaUpstream are the details of the response of a host.
const viaUpstream = "via_upstream"

// isCodecError reports whether a response of Weft says that a request is malformed.
func isCodecError(weft View, name string) bool {
	text := weft[name+".body"]
	return len(text) == 1 && slices.Contains([]string{
		"Bad Request", "Expectation Failed", "Not Implemented", "Request Header Fields Too Large", "Upgrade Required",
	}, text[0])
}

// isRejectedPath reports whether Envoy rejects the path of a request, which its parser accepts.
func isRejectedPath(envoy View) bool {
	return slices.Equal(envoy["resp.status"], []string{"400"}) && slices.Equal(envoy[logPrefix+"details"], []string{"path_normalization_failed"})
}

// malformation is a part of a malformed request.
type malformation struct{ name, bytes string }

// strictSyntax returns the malformed requests that Weft rejects and Envoy forwards.
func strictSyntax() []malformation {
	return []malformation{
		{"several `host` fields", "\r\nHost: a\r\nHost: b\r\n"},
		{"folded fields", "\r\nX: a\r\n b\r\n"},
		{"several spaces in the request line", "GET  / "},
		{"lines that end without a carriage return", "HTTP/1.1\nHost"},
		{"expectations other than `100-continue`", "\r\nExpect: other\r\n"},
		{"user information in `host`", "\r\nHost: user@a.test\r\n"},
		{"an `@` in `host`", "\r\nHost: a@b\r\n"},
		{"ports in `host` that are no number", "\r\nHost: a.test:x\r\n"},
		{"ports in `host` that are too large", "\r\nHost: a.test:99999\r\n"},
	}
}

func strictSyntaxText() string {
	var names []string
	for _, m := range strictSyntax() {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// isMalformed reports whether a case sends bytes with one of the malformations.
func isMalformed(c *cases.Case) bool {
	return c.Kind == client.Raw && len(c.Parts) > 0 && slices.ContainsFunc(strictSyntax(), func(m malformation) bool {
		return strings.Contains(string(c.Parts[0].Data), m.bytes)
	})
}

// everyPair reports whether the values of both proxies have the same number, and fulfil a condition
// in pairs.
func everyPair(d Difference, condition func(envoy, weft string) bool) bool {
	if len(d.Envoy) != len(d.Weft) || len(d.Envoy) == 0 {
		return false
	}
	for i := range d.Envoy {
		if !condition(d.Envoy[i], d.Weft[i]) {
			return false
		}
	}
	return true
}

// Markdown returns the sections of docs/envoy.md about the named differences.
func Markdown() string {
	var b strings.Builder
	b.WriteString("<!-- Written by go test ./test/envoy -run Page -update from the table in test/envoy/compare/named.go. Change it there. -->\n")
	b.WriteString("\n## Differences by design\n\n| difference | behavior | reason |\n|---|---|---|\n")
	for _, n := range byDesign() {
		b.WriteString("| " + n.Name + " | " + n.Text + " | " + n.Reason + " |\n")
	}
	b.WriteString("\n## Not yet equal\n\nThese differences have no reason. Weft should behave like Envoy here, but does not yet.\n\n| difference | behavior |\n|---|---|\n")
	for _, n := range notYet() {
		b.WriteString("| " + n.Name + " | " + n.Text + " |\n")
	}
	b.WriteString("\n")
	return b.String()
}
