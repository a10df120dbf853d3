package e2e

import (
	"testing"
)

// TestAttachmentsCannotHideService verifies that attachments cannot hide the called service from a
// policy. A provider looks up the service by the path.
func TestAttachmentsCannotHideService(t *testing.T) {
	t.Parallel()
	deny := streamFilter("rbac", object{"xff_num_trusted_hops": 0, "rules": object{"action": "DENY", "policies": object{
		"shop": object{
			"permissions": list{object{"header": object{"name": "service", "exact_match": "org.example.Shop"}}},
			"principals":  list{object{"any": true}},
		},
		"remote": object{
			"permissions": list{object{"any": true}},
			"principals":  list{object{"not_id": object{"remote_ip": object{"address_prefix": "127.0.0.0", "prefix_len": 8}}}},
		},
	}}})
	app, front := startProvider(t, "app", nil), freeAddress()
	startWeft(t, setup{
		listeners: list{listenDubbo("front", front, object{"stream_filters": list{deny}})},
		tables:    list{routeTable("front", routeTo("/", "app"))},
		clusters:  list{cluster("app", nil, app.address)},
	}.config())
	client := newConsumer(t, front)
	for _, c := range []struct {
		name   string
		call   invocation
		passes bool
	}{
		{"other service", invocation{service: "org.example.Bank", method: "look"}, true},
		{"other service with its path", invocation{service: "org.example.Bank", method: "look", attachments: []string{"path: org.example.Bank", "interface: org.example.Bank"}}, true},
		{"other context path", invocation{service: "bank/org.example.Bank", method: "look", attachments: []string{"interface: org.example.Bank"}}, true},
		{"forged x-forwarded-for", invocation{service: "org.example.Bank", method: "look", attachments: []string{"x-forwarded-for: 192.0.2.1"}}, true},
		{"denied service", invocation{service: "org.example.Shop", method: "buy"}, false},
		{"denied service, other interface", invocation{service: "org.example.Shop", method: "buy", attachments: []string{"interface: org.example.Bank"}}, false},
		{"denied service, path attachment", invocation{service: "org.example.Bank", method: "buy", attachments: []string{"path: org.example.Shop"}}, false},
		{"denied service, path attachment and other interface", invocation{service: "org.example.Bank", method: "buy", attachments: []string{"path: org.example.Shop", "interface: org.example.Bank"}}, false},
	} {
		if got := client.call(c.call); (got.status == dubboOK) != c.passes {
			t.Errorf("%s: %d %q, want it passed: %v", c.name, got.status, got.text, c.passes)
		}
	}
	const fastjson2 = 23
	client.next++
	frame := invocation{service: "org.example.Shop", method: "buy"}.frame(client.next)
	frame[2] = frame[2]&^0x1f | fastjson2
	if _, err := client.conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if got, err := readDubbo(client.r); err != nil || got[3] == dubboOK {
		t.Errorf("call with another serialization: %q, %v, want an error response", got, err)
	}
	if n := app.calls.Load(); n != 4 {
		t.Errorf("%d calls reached the upstream, want 4", n)
	}
}
