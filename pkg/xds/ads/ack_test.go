package ads

import "testing"

// TestRejectedRemovalKeepsResource verifies that a rejected removal keeps the resource and sends a
// NACK. In StateOfTheWorld the next response removes the resource again.
func TestRejectedRemovalKeepsResource(t *testing.T) {
	const url = "type"
	c := New(StateOfTheWorld, Type{URL: url, AllResourcesRequiredInSotW: true})
	c.SubscribeAll(url)
	c.StreamOpened()
	receive := func(nonce string, resources ...Resource) Update {
		t.Helper()
		u, ok := c.Receive(Response{Type: url, Version: nonce, Nonce: nonce, Resources: resources})
		if !ok {
			t.Fatal("the type is not subscribed")
		}
		return u
	}
	c.Acknowledge(receive("1", Resource{Name: "a", Body: []byte("a")}), nil)
	for _, nonce := range []string{"2", "3"} {
		u := receive(nonce)
		if len(u.Removed) != 1 || u.Removed[0] != "a" {
			t.Fatalf("Removed = %v, want a", u.Removed)
		}
		if r, ok := c.Acknowledge(u, []ResourceError{{Name: "a", Reason: "it is needed"}}); !ok || r.ErrorDetail != "a: it is needed" || r.Version != "1" {
			t.Errorf("request = %+v, want a NACK", r)
		}
		if _, accepted := c.Resources(url)["a"]; !accepted {
			t.Error("the client dropped the resource after a rejected removal")
		}
	}
	c.Acknowledge(receive("4"), nil)
	if n := len(c.Resources(url)); n != 0 {
		t.Errorf("%d accepted resources, want none", n)
	}
}
