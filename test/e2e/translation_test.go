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

// translation is an exchange, and what each side gets of it, in the notation.
type translation struct {
	name string
	// What callers send; "": callers of this version cannot say it.
	http1, http2 string
	// What the application gets; "": nothing whole. arrives1 and arrives2 are for
	// applications of one version, if it is not the same in both.
	arrives, arrives1, arrives2 string
	// What applications send; both "": 200 and "ok"; one "": only applications of the
	// other version can say it.
	answer1, answer2 string
	// What the caller gets; gets1 and gets2 are for callers of one version. "": the
	// answer "ok".
	gets, gets1, gets2 string
}

// or returns the first that says something.
func or(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// applications are an application in each version of HTTP, which say what they got,
// and answer as they are told.
type applications struct {
	address map[string]string // by version, as in configuration
	got     chan string       // whole requests
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
			continue // it was reset
		case err != nil:
			return
		}
		a.got <- request
		if p.send(stream, or(a.now.Load().answer2, ":status: 200\ncontent-length: 2\n\nok")) != nil {
			return
		}
	}
}

// TestMessagesAreTranslatedAsTheRFCsSay sends each message through each pair of
// HTTP/1.1 and HTTP/2, and looks at the wire on both sides (RFC 9110 7.6, RFC 9112,
// RFC 9113 8).
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

// concerns reports whether both ends can say their part.
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

// arrived is what the application got; "": nothing. certain: it got something, which
// may be on its way.
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

// status is all that counts of an answer of Weft's own.
func status(answer string) string {
	if len(answer) < 3 {
		return answer
	}
	return answer[:3]
}
