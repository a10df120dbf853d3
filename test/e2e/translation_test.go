package e2e

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// translation is an exchange and what each side receives of it, in the notation.
type translation struct {
	name string
	// What clients send; "": not possible in this version.
	http1, http2 string
	// What the upstream receives; "": no complete request. arrives1 and arrives2 are for upstreams
	// of one version, if they differ.
	arrives, arrives1, arrives2 string
	// What upstreams send; both "": 200 and "ok"; one "": not possible in this version.
	answer1, answer2 string
	// What the client receives; "": the response "ok". gets1 and gets2 are for clients of one
	// version.
	gets, gets1, gets2 string
}

// or returns the first text that is not empty.
func or(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// applications is an upstream in each HTTP version. It reports the requests that it received and
// responds as the current translation says.
type applications struct {
	address map[string]string // by version, as in configuration
	got     chan string       // complete requests
	now     atomic.Pointer[translation]
}

func startApplications(t *testing.T) *applications {
	a := &applications{got: make(chan string, 10)}
	a.address = map[string]string{"Http1": accept(t, a.http1), "Http2": accept(t, a.http2)}
	return a
}

func (a *applications) http1(c net.Conn) {
	r := reader1{bufio.NewReader(c)}
	for {
		request, err := r.request()
		if err != nil {
			return
		}
		a.got <- request
		text, ends := strings.CutSuffix(or(a.now.Load().answer1, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), cut)
		if _, err := io.WriteString(c, ofHTTP1(text)); err != nil || ends {
			return
		}
	}
}

func (a *applications) http2(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	p := newPeer2(c)
	if _, err := io.ReadFull(c, preface); err != nil || p.fr.WriteSettings() != nil {
		return
	}
	for {
		request, stream, err := p.request()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			continue // the stream was reset
		case err != nil:
			return
		}
		a.got <- request
		if p.send(stream, or(a.now.Load().answer2, ":status: 200\ncontent-length: 2\n\nok")) != nil {
			return
		}
	}
}

// TestMessagesAreTranslatedAsTheRFCsSay sends each message through each pair of HTTP/1.1 and
// HTTP/2, and verifies what arrives on both sides (RFC 9110 7.6, RFC 9112, RFC 9113 8).
func TestMessagesAreTranslatedAsTheRFCsSay(t *testing.T) {
	t.Parallel()
	tests := append(append(requestTranslations(), refusedRequests()...), answerTranslations()...)
	for _, down := range []string{"Http1", "Http2"} {
		for _, up := range []string{"Http1", "Http2"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				t.Parallel()
				apps, front := startApplications(t), free()
				run(t, setup{
					listeners: list{chained("front", front, object{"type": "proxy", "config": object{
						"downstream_protocol": down, "upstream_protocol": up, "router_config_name": "front"}})},
					tables:   list{table("front", to("/", "app", object{"timeout": "10s"}))},
					clusters: list{cluster("app", nil, apps.address[up])},
				}.config())
				for i := range tests {
					if tests[i].concerns(down, up) {
						t.Run(tests[i].name, func(t *testing.T) { tests[i].run(t, apps, front, down, up) })
					}
				}
			})
		}
	}
}

// concerns reports whether both sides can express their part in these versions.
func (x *translation) concerns(down, up string) bool {
	asked := x.http1
	if down == "Http2" {
		asked = x.http2
	}
	said, other := x.answer1, x.answer2
	if up == "Http2" {
		said, other = other, said
	}
	return asked != "" && (said != "" || other == "")
}

func (x *translation) run(t *testing.T, apps *applications, front, down, up string) {
	apps.now.Store(x)
	arrives, gets := or(x.arrives1, x.arrives), or(x.gets1, x.gets)
	if up == "Http2" {
		arrives = or(x.arrives2, x.arrives)
	}
	var got string
	if down == "Http2" {
		gets = or(x.gets2, x.gets)
		got = ask2(t, front, x.http2)
	} else {
		got = ask1(t, front, x.http1)
	}
	if gets = or(gets, "200\ncontent-length: 2\n\nok"); status(got) != gets && got != gets {
		t.Errorf("the caller got\n%s\nwant\n%s", got, gets)
	}
	if arrived := apps.arrived(arrives != ""); arrived != arrives {
		t.Errorf("the application got\n%s\nwant\n%s", arrived, arrives)
	}
}

// arrived returns what the upstream received, or "". If certain is set, it waits for the request.
func (a *applications) arrived(certain bool) string {
	if !certain {
		select {
		case got := <-a.got:
			return got
		default:
			return ""
		}
	}
	select {
	case got := <-a.got:
		return got
	case <-time.After(patience):
		return ""
	}
}

// status returns the status of a response. Tests compare nothing else of a local reply.
func status(answer string) string {
	if len(answer) < 3 {
		return answer
	}
	return answer[:3]
}
