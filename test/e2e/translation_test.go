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
	// What the upstream receives; "": no complete request. upstreamWant1 and upstreamWant2 are for
	// upstreams of one version, if they differ.
	upstreamWant, upstreamWant1, upstreamWant2 string
	// What upstreams send; both "": 200 and "ok"; one "": not possible in this version.
	response1, response2 string
	// What the client receives; "": the response "ok". clientWant1 and clientWant2 are for clients
	// of one version.
	clientWant, clientWant1, clientWant2 string
}

// firstNonEmpty returns the first text that is not empty.
func firstNonEmpty(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// recordingUpstreams is an upstream in each HTTP version. It reports the requests that it received
// and responds as the current translation says.
type recordingUpstreams struct {
	address  map[string]string // by version, as in configuration
	requests chan string       // complete requests
	current  atomic.Pointer[translation]
}

func startRecordingUpstreams(t *testing.T) *recordingUpstreams {
	a := &recordingUpstreams{requests: make(chan string, 10)}
	a.address = map[string]string{"Http1": startTCPServer(t, a.http1), "Http2": startTCPServer(t, a.http2)}
	return a
}

func (a *recordingUpstreams) http1(c net.Conn) {
	r := http1Reader{bufio.NewReader(c)}
	for {
		request, err := r.request()
		if err != nil {
			return
		}
		a.requests <- request
		text, ends := strings.CutSuffix(firstNonEmpty(a.current.Load().response1, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), closeMark)
		if _, err := io.WriteString(c, http1Text(text)); err != nil || ends {
			return
		}
	}
}

func (a *recordingUpstreams) http2(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	p := newHTTP2Peer(c)
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
		a.requests <- request
		if p.send(stream, firstNonEmpty(a.current.Load().response2, ":status: 200\ncontent-length: 2\n\nok")) != nil {
			return
		}
	}
}

// TestTranslation sends each message through each pair of HTTP/1.1 and
// HTTP/2, and verifies what arrives on both sides (RFC 9110 7.6, RFC 9112, RFC 9113 8).
func TestTranslation(t *testing.T) {
	t.Parallel()
	tests := append(append(requestTranslations(), rejectedRequests()...), responseTranslations()...)
	for _, down := range []string{"Http1", "Http2"} {
		for _, up := range []string{"Http1", "Http2"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				t.Parallel()
				apps, front := startRecordingUpstreams(t), freeAddress()
				startWeft(t, setup{
					listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
						"downstream_protocol": down, "upstream_protocol": up, "router_config_name": "front"}})},
					tables:   list{routeTable("front", routeTo("/", "app", object{"timeout": "10s"}))},
					clusters: list{cluster("app", nil, apps.address[up])},
				}.config())
				for i := range tests {
					if tests[i].appliesTo(down, up) {
						t.Run(tests[i].name, func(t *testing.T) { tests[i].run(t, apps, front, down, up) })
					}
				}
			})
		}
	}
}

// appliesTo reports whether both sides can express their part in these versions.
func (x *translation) appliesTo(down, up string) bool {
	request := x.http1
	if down == "Http2" {
		request = x.http2
	}
	sent, other := x.response1, x.response2
	if up == "Http2" {
		sent, other = other, sent
	}
	return request != "" && (sent != "" || other == "")
}

func (x *translation) run(t *testing.T, apps *recordingUpstreams, front, down, up string) {
	apps.current.Store(x)
	arrives, gets := firstNonEmpty(x.upstreamWant1, x.upstreamWant), firstNonEmpty(x.clientWant1, x.clientWant)
	if up == "Http2" {
		arrives = firstNonEmpty(x.upstreamWant2, x.upstreamWant)
	}
	var got string
	if down == "Http2" {
		gets = firstNonEmpty(x.clientWant2, x.clientWant)
		got = requestHTTP2(t, front, x.http2)
	} else {
		got = requestHTTP1(t, front, x.http1)
	}
	if gets = firstNonEmpty(gets, "200\ncontent-length: 2\n\nok"); status(got) != gets && got != gets {
		t.Errorf("the client got\n%s\nwant\n%s", got, gets)
	}
	if arrived := apps.received(arrives != ""); arrived != arrives {
		t.Errorf("the application got\n%s\nwant\n%s", arrived, arrives)
	}
}

// received returns what the upstream received, or "". If certain is set, it waits for the request.
func (a *recordingUpstreams) received(certain bool) string {
	if !certain {
		select {
		case got := <-a.requests:
			return got
		default:
			return ""
		}
	}
	select {
	case got := <-a.requests:
		return got
	case <-time.After(waitTimeout):
		return ""
	}
}

// status returns the status of a response. Tests compare nothing else of a local reply.
func status(response string) string {
	if len(response) < 3 {
		return response
	}
	return response[:3]
}
