package jwtauthn

import (
	"context"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestReadme(t *testing.T) {
	factory := newFactory(testClock)
	examples := filtertest.CheckReadme(t, factory, *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	keys := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "application/json", jwksOf("rsa"))
		return nil
	})
	f, _ := filtertest.BuildWith(t, factory, examples[0], &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"id": keys}})
	for path, want := range map[string]int{"/login": 200, "/buy": 401} {
		if got := statusOf(t, f, path, ""); got != want {
			t.Errorf("%s without a token: %d, want %d", path, got, want)
		}
	}
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{"iss": "https://id.corp.test"}), nil)
	if got := statusOf(t, f, "/buy", token); got != 200 {
		t.Errorf("/buy with a token: %d, want 200", got)
	}
}
