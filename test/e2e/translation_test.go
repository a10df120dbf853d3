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

// translation is an exchange: the messages that each side sends and must receive, in the notation.
type translation struct {
	name string
	// Requests of clients; "": the request is not possible in this version of HTTP.
	http1, http2 string
	// Request that the upstream must receive; "": no complete request. upstreamWant1 and
	// upstreamWant2 are for upstreams of one version, if they differ.
	upstreamWant, upstreamWant1, upstreamWant2 string
	// Responses of upstreams; if both are "", status 200 with the body "ok"; if one is "", the
	// response is not possible in this version of HTTP.
	response1, response2 string
	// Response that the client must receive; "": the response "ok". clientWant1 and clientWant2
	// are for clients of one version.
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
// and sends the response of the current translation.
type recordingUpstreams struct {
	address  map[string]string // by version, as in configuration
	requests chan string       // complete requests
	current  atomic.Pointer[translation]
}

func startRecordingUpstreams(t *testing.T) *recordingUpstreams {
	u := &recordingUpstreams{requests: make(chan string, 10)}
	u.address = map[string]string{"Http1": startTCPServer(t, u.http1), "Http2": startTCPServer(t, u.http2)}
	return u
}

func (u *recordingUpstreams) http1(c net.Conn) {
	r := http1Reader{bufio.NewReader(c)}
	for {
		request, err := r.request()
		if err != nil {
			return
		}
		u.requests <- request
		text, closes := strings.CutSuffix(firstNonEmpty(u.current.Load().response1, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), closeMark)
		if _, err := io.WriteString(c, http1Text(text)); err != nil || closes {
			return
		}
	}
}

func (u *recordingUpstreams) http2(c net.Conn) {
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
		u.requests <- request
		if p.send(stream, firstNonEmpty(u.current.Load().response2, ":status: 200\ncontent-length: 2\n\nok")) != nil {
			return
		}
	}
}

// TestTranslation sends each message through each pair of HTTP versions, and verifies the messages
// that both sides receive (RFC 9110 7.6, RFC 9112, RFC 9113 8).
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
	wantUpstream, wantClient := firstNonEmpty(x.upstreamWant1, x.upstreamWant), firstNonEmpty(x.clientWant1, x.clientWant)
	if up == "Http2" {
		wantUpstream = firstNonEmpty(x.upstreamWant2, x.upstreamWant)
	}
	var got string
	if down == "Http2" {
		wantClient = firstNonEmpty(x.clientWant2, x.clientWant)
		got = requestHTTP2(t, front, x.http2)
	} else {
		got = requestHTTP1(t, front, x.http1)
	}
	if wantClient = firstNonEmpty(wantClient, "200\ncontent-length: 2\n\nok"); status(got) != wantClient && got != wantClient {
		t.Errorf("the client got\n%s\nwant\n%s", got, wantClient)
	}
	if received := apps.received(wantUpstream != ""); received != wantUpstream {
		t.Errorf("the upstream got\n%s\nwant\n%s", received, wantUpstream)
	}
}

// received returns the request that the upstream received, or "". If wait is set, it waits for the
// request.
func (u *recordingUpstreams) received(wait bool) string {
	if !wait {
		select {
		case got := <-u.requests:
			return got
		default:
			return ""
		}
	}
	select {
	case got := <-u.requests:
		return got
	case <-time.After(waitTimeout):
		return ""
	}
}

// status returns the status of a response. Tests compare only the status of a local reply.
func status(response string) string {
	if len(response) < 3 {
		return response
	}
	return response[:3]
}
