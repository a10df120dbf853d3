package service

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestOverloadPolicyDoesNotAllocate(t *testing.T) {
	var policy OverloadPolicy
	served := 0
	s := Shed(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { served++; return nil }), &policy)
	x := &protocol.Exchange{}
	serve := func() {
		x.Reset()
		if err := x.Serve(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, serve); n > 0 || served == 0 {
		t.Errorf("%v allocations with an inactive policy, want 0", n)
	}
	policy.SetFractions(1, 1)
	served = 0
	if n := testing.AllocsPerRun(100, serve); n > 0 || served > 0 {
		t.Errorf("%v allocations per rejected request, %d requests served; want 0, 0", n, served)
	}
	if x.Record.Reason != protocol.Overloaded || x.Response.Status != 503 {
		t.Errorf("rejected with reason %v and status %d; want %v, 503", x.Record.Reason, x.Response.Status, protocol.Overloaded)
	}
	policy.SetFractions(0, 1)
	serve() // without a connection, there is nothing to close
	if served != 1 {
		t.Errorf("%d requests were served, want 1", served)
	}
}

func BenchmarkOverloadPolicy(b *testing.B) {
	var policy OverloadPolicy
	s := Shed(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), &policy)
	x := &protocol.Exchange{}
	for b.Loop() {
		_ = s.Start(context.Background(), x)
	}
}
