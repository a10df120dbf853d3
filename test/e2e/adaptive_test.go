package e2e

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// adaptively is the filter with a limit that begins at least, and is found anew each
// hour only.
func adaptively(least int, more object) object {
	return filterOf("adaptive_concurrency", object{"gradient_controller_config": object{
		"min_rtt_calc_params": object{"interval": "10h", "min_concurrency": least},
	}}.with(more))
}

// adaptiveConcurrency: requests that come one after the other are never too many.
// Refusals are in adaptive_test.go.
func (p *pair) adaptiveConcurrency() feature {
	return feature{
		name: "adaptive_concurrency",
		filters: list{adaptively(1, object{"per": "method", "priority": object{
			"header": "x-priority", "default": "low", "levels": list{object{"value": "high", "share": 100}, object{"value": "low", "share": 1}}}})},
		routes: []object{own("/off", "adaptive_concurrency", object{}), to("/dead", "dead")},
		trials: []trial{
			{name: "one after the other", path: "/", times: 5, status: 200, code: "0", want: map[string]string{"X-App": "app"}},
			{name: "with content", method: "POST", path: "/", content: "kept", times: 5, status: 200, code: "0", body: "kept"},
			{name: "of any level", path: "/", fields: []string{"X-Priority: high"}, status: 200, code: "0"},
			{name: "what fails is not under way any more", path: "/dead", times: 3, status: 502, code: "14", reason: "connect_failure"},
			{name: "a route without", path: "/off", status: 200, code: "0"},
		},
	}
}

const adaptiveRefused, adaptiveInFlight = "weft_filter_adaptive_concurrency_refused_total", "weft_filter_adaptive_concurrency_in_flight"

// TestWhatIsTooMuchIsRefusedInTheProtocolsTerms: one request is not answered, and the
// next one is beyond the limit. Once the first has ended there is room again.
func TestWhatIsTooMuchIsRefusedInTheProtocolsTerms(t *testing.T) {
	t.Parallel()
	filters := object{"stream_filters": list{adaptively(1, nil)}}
	for _, down := range []string{"Http1", "Http2"} {
		t.Run(down, func(t *testing.T) {
			t.Parallel()
			app, front := hold(t), free()
			w := run(t, setup{
				listeners: list{chained("front", front, object{"type": "proxy", "config": object{
					"downstream_protocol": down, "upstream_protocol": "Http1", "router_config_name": "front"}}, filters)},
				tables:   list{table("front", to("/", "app"))},
				clusters: list{cluster("app", nil, app.address)},
			}.config())
			c := client(t)
			c.Transport.(*http.Transport).Protocols = speaking(down)
			first := make(chan answer, 1)
			go func() {
				got, err := try(t.Context(), c, "GET", "http://"+front+"/", "")
				if err != nil {
					t.Error(err)
				}
				first <- got
			}()
			app.await(t)
			if got := ask(t, c, "POST", "http://"+front+"/", "lost"); got.status != 503 || got.header.Get("X-App") != "" {
				t.Errorf("beyond the limit: %d", got.status)
			}
			if n := w.metric(adaptiveInFlight); n != 1 {
				t.Errorf("%v requests are under way, want 1", n)
			}
			close(app.leave)
			if got := <-first; got.status != 200 {
				t.Errorf("the first request: %d", got.status)
			}
			if got := ask(t, c, "GET", "http://"+front+"/", ""); got.status != 200 {
				t.Errorf("afterwards: %d", got.status)
			}
			if refused, n := w.metric(adaptiveRefused), w.metric(adaptiveInFlight); refused != 1 || n != 0 {
				t.Errorf("%v were refused, %v are under way; want 1 and 0", refused, n)
			}
		})
	}
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		entered, leave := make(chan struct{}, 1), make(chan struct{})
		address := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // all that comes
			entered <- struct{}{}
			<-leave
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "0")
		})
		_, front, c := carriesGRPC(t, filters, list{cluster("app", nil, address)}, to("/", "app"))
		first := make(chan string, 1)
		go func() { first <- callGRPC(t, c, front, "/shop.Items/List") }()
		<-entered
		if got := callGRPC(t, c, front, "/shop.Items/Get"); got != "14" {
			t.Errorf("beyond the limit: %s", got)
		}
		close(leave)
		if got := <-first; got != "0" {
			t.Errorf("the first call: %s", got)
		}
	})
	eachRPC(t, func(t *testing.T, r *rpc) {
		front, arrived := free(), make(chan struct{}, 1024)
		silent := accept(t, func(c net.Conn) {
			for rest := []byte(nil); ; {
				if _, err := r.next(c, &rest); err != nil {
					return // the caller has gone
				}
				arrived <- struct{}{}
			}
		})
		run(t, setup{
			listeners: list{chained("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": r.Name(), "upstream_protocol": r.Name(), "router_config_name": "front"}},
				object{"stream_filters": list{adaptively(2, object{"priority": object{
					"attachment": "x-priority", "default": "low", "levels": list{object{"value": "high", "share": 100}, object{"value": "low", "share": 50}}}})}})},
			tables:   list{table("front", to("/", "app"))},
			clusters: list{cluster("app", nil, silent)},
		}.config())
		caller := r.dial(t, front)
		high := func(id uint64) []byte { return r.adding(t, r.request(id), "x-priority", "high") }
		caller.send(r.request(1))
		<-arrived
		caller.send(r.request(2)) // half of the limit is in use
		if got := caller.answer(); got.id != 2 || got.code != r.code(protocol.Overflow) {
			t.Errorf("beyond the share of its level: answer %d with code %d", got.id, got.code)
		}
		caller.send(high(3))
		<-arrived
		caller.send(high(4))
		if got := caller.answer(); got.id != 4 || got.code != r.code(protocol.Overflow) {
			t.Errorf("beyond the limit: answer %d with code %d", got.id, got.code)
		}
	})
}

// TestAdaptiveLimitsOutliveAReload: what is under way counts on.
func TestAdaptiveLimitsOutliveAReload(t *testing.T) {
	t.Parallel()
	app := hold(t)
	s, front := simple(app.address)
	with := func(routes ...object) object {
		s.listeners = list{listen("front", front, object{"stream_filters": list{adaptively(1, nil)}})}
		s.tables = list{table("front", append(routes, object{"name": "rest"}.with(to("/", "app")))...)}
		return s.config()
	}
	w := run(t, with())
	first := background(t, "http://"+front+"/")
	app.await(t)
	w.reload(with(says("/other", 200, "")))
	if got := ask(t, client(t), "GET", "http://"+front+"/", ""); got.status != 503 {
		t.Errorf("after a reload: %d, want 503", got.status)
	}
	close(app.leave)
	if got := first(); got.status != 200 {
		t.Errorf("the first request: %d", got.status)
	}
	if got := ask(t, client(t), "GET", "http://"+front+"/", ""); got.status != 200 {
		t.Errorf("when it has ended: %d", got.status)
	}
}
