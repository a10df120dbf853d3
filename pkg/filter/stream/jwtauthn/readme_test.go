package jwtauthn

import (
	"context"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestReadme(t *testing.T) {
	kind := kindAt(atNow)
	examples := filtertest.CheckReadme(t, kind, *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	keys := protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "application/json", setOf("rsa"))
		return nil
	})
	made, _ := filtertest.BuildWith(t, kind, examples[0], &filtertest.Calls{Clusters: map[string]protocol.Service{"id": keys}})
	for path, want := range map[string]int{"/login": 200, "/buy": 401} {
		if got := visit(t, made, path, ""); got != want {
			t.Errorf("%s without a token: %d, want %d", path, got, want)
		}
	}
	token := signed(t, jwt.SigningMethodRS256, "rsa", claimed(map[string]any{"iss": "https://id.corp.test"}), nil)
	if got := visit(t, made, "/buy", token); got != 200 {
		t.Errorf("/buy with a token: %d", got)
	}
}
