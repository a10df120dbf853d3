package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// tokenIssuer issues tokens and serves the keys that verify them.
type tokenIssuer struct {
	*origin
	key ed25519.PrivateKey
}

func newTokenIssuer(t *testing.T) *tokenIssuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &tokenIssuer{key: private, origin: startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "id.corp.test" || r.URL.Path != "/keys" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = fmt.Fprintf(w, `{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "key-1", "x": %q}]}`, base64.RawURLEncoding.EncodeToString(public))
	})}
}

// token returns an Authorization header with a token that expires after lifetime.
func (i *tokenIssuer) token(t *testing.T, lifetime time.Duration) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "https://id.corp.test", "aud": "shop", "sub": "ann", "exp": time.Now().Add(lifetime).Unix()})
	token.Header["kid"] = "key-1"
	text, err := token.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + text
}

// TestJWTIsRequired verifies that HTTP and Dubbo requests without a valid token are rejected with a
// status of their protocol.
func TestJWTIsRequired(t *testing.T) {
	t.Parallel()
	id := newTokenIssuer(t)
	auth := streamFilter("jwt_authn", object{
		"providers": object{"corp": object{"issuer": "https://id.corp.test", "remote_jwks": object{
			"http_uri": object{"uri": "http://id.corp.test/keys", "cluster": "id", "timeout": "5s"}}}},
		"rules": list{object{"requires": object{"provider_name": "corp"}}},
	})
	shop := startProvider(t, "shop", nil)
	rpc, web := freeAddress(), freeAddress()
	app := startUpstream(t, describeRequest)
	startWeft(t, setup{
		listeners: list{
			listenDubbo("rpc", rpc, object{"stream_filters": list{auth}}),
			httpListener("web", web, object{"stream_filters": list{auth}}),
		},
		tables:   list{routeTable("rpc", routeWhen("shop", "service: .*")), routeTable("web", routeTo("/", "app"))},
		clusters: list{cluster("shop", nil, shop.address), cluster("app", nil, app.address), cluster("id", nil, id.address)},
	}.config())
	client := newConsumer(t, rpc)
	valid, expired := id.token(t, time.Hour), id.token(t, -time.Hour)
	for _, c := range []struct {
		name, field string
		passes      bool
	}{{"valid token", valid, true}, {"expired token", expired, false}, {"no token", "", false}} {
		call := invocation{service: "org.example.Shop", method: "buy"}
		var fields []string
		if c.field != "" {
			fields = []string{c.field}
			call.attachments = []string{c.field}
		}
		if got := client.call(call); (got.status == dubboOK) != c.passes {
			t.Errorf("call, %s: status %d, body %q; want the call to pass: %t", c.name, got.status, got.text, c.passes)
		}
		got := sendRequest(t, newClient(t), "GET", "http://"+web, "", fields...)
		if want := map[bool]int{true: 200, false: 401}[c.passes]; got.status != want || (got.header.Get("WWW-Authenticate") == "") != c.passes {
			t.Errorf("request, %s: %d %v, want %d", c.name, got.status, got.header, want)
		}
	}
	if n := shop.calls.Load() + app.requests.Load(); n != 2 {
		t.Errorf("%d requests reached the upstream, want 2", n)
	}
	if n := id.requests.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times, want once", n)
	}
}

func jwtExample(t *testing.T) {
	id := newTokenIssuer(t)
	app := startUpstream(t, describeRequest)
	e := loadExample(t, "jwt.json")
	e.replace(`{"name": "app", "hosts": [{"address": "`+e.address("2666")+`"}]}`, `{"name": "app", "hosts": [{"address": "`+app.address+`"}]}`)
	e.replace(`{"address": "`+e.address("2667")+`"}`, `{"address": "`+id.address+`"}`)
	e.run("jwt.json")
	url := "http://" + e.address("2665")
	if got := callGRPC(t, clients(t)["Http2"], e.address("2665"), "/org.example.Shop/Buy"); got != "16" {
		t.Errorf("gRPC call without a token: grpc-status %s, want 16 (UNAUTHENTICATED)", got)
	}
	for version, c := range clients(t) {
		got := sendRequest(t, c, "GET", url+"/buy", "", id.token(t, time.Hour), "X-User: root")
		if got.status != 200 || !strings.Contains(got.body, "X-User: ann") || strings.Contains(got.body, "root") || strings.Contains(got.body, "Bearer") {
			t.Errorf("%s with a token: %d\n%s", version, got.status, got.body)
		}
		for path, want := range map[string]int{"/buy": 401, "/public/a": 200, "/public/../buy": 401, "/public/%2e%2e/buy": 401} {
			if got := sendRequest(t, c, "GET", url+path, ""); got.status != want {
				t.Errorf("%s, %s without a token: %d, want %d", version, path, got.status, want)
			}
		}
	}
}

// TestJWTMatchesOriginalPath verifies that rules match the original path, not the rewritten one.
func TestJWTMatchesOriginalPath(t *testing.T) {
	t.Parallel()
	id := newTokenIssuer(t)
	app := startUpstream(t, describeRequest)
	s, front := simpleProxy(app.address)
	s.listeners = list{httpListener("front", front, object{"stream_filters": list{streamFilter("jwt_authn", object{
		"providers": object{"corp": object{"remote_jwks": object{"http_uri": object{"uri": "http://id.corp.test/keys", "cluster": "id", "timeout": "5s"}}}},
		"rules":     list{object{"match": object{"prefix": "/api/"}, "requires": object{"provider_name": "corp"}}},
	})}})}
	s.tables = list{routeTable("front", routeTo("/api/", "app", object{"prefix_rewrite": "/"}), routeTo("/", "app", object{"prefix_rewrite": "/api/"}))}
	s.clusters = list{cluster("app", nil, app.address), cluster("id", nil, id.address)}
	startWeft(t, s.config())
	for path, want := range map[string]int{"/api/a": 401, "/a": 200} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+path, ""); got.status != want {
			t.Errorf("%s without a token: %d, want %d", path, got.status, want)
		}
	}
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/api/a", "", id.token(t, time.Hour)); got.status != 200 {
		t.Errorf("/api/a with a token: %d, want 200", got.status)
	}
}
