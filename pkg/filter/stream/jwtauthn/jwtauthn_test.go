package jwtauthn

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// testNow is the time of the tests.
var testNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func testClock() time.Time { return testNow }

// signingKeys returns the private keys and the secret of the tests, by key ID.
var signingKeys = sync.OnceValue(func() map[string]any {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	other, err2 := rsa.GenerateKey(rand.Reader, 2048)
	ec, err3 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, ed, err4 := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		panic(err)
	}
	return map[string]any{"rsa": rsaKey, "other": other, "ec": ec, "ed": ed, "secret": []byte("0123456789abcdef0123456789abcdef")}
})

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwkOf returns the JWK of a key in signingKeys.
func jwkOf(id string) map[string]any {
	j := map[string]any{"kid": id, "use": "sig"}
	switch k := signingKeys()[id].(type) {
	case *rsa.PrivateKey:
		j["kty"], j["n"], j["e"] = "RSA", base64url(k.N.Bytes()), base64url(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PrivateKey:
		point, err := k.PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		j["kty"], j["crv"], j["x"], j["y"] = "EC", "P-256", base64url(point[1:33]), base64url(point[33:])
	case ed25519.PrivateKey:
		j["kty"], j["crv"], j["x"] = "OKP", "Ed25519", base64url(k.Public().(ed25519.PublicKey))
	case []byte:
		j["kty"], j["k"] = "oct", base64url(k)
	}
	return j
}

// jwksOf returns a JSON set of keys.
func jwksOf(ids ...string) string {
	keys := make([]map[string]any, 0, len(ids))
	for _, id := range ids {
		keys = append(keys, jwkOf(id))
	}
	text, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// validClaims returns the claims of a valid token, changed by more. A nil value removes a claim.
func validClaims(more map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{"iss": "https://id.test", "aud": "shop", "sub": "ann", "exp": testNow.Add(time.Hour).Unix()}
	for name, value := range more {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

// signToken returns a token signed with the key of this ID. more changes header parameters of the
// token.
func signToken(t testing.TB, method jwt.SigningMethod, id string, claims jwt.MapClaims, more map[string]any) string {
	t.Helper()
	return signTokenWith(t, method, signingKeys()[id], claims, map[string]any{"kid": id}, more)
}

func signTokenWith(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims, header, more map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for _, list := range []map[string]any{header, more} {
		for name, value := range list {
			if token.Header[name] = value; value == nil {
				delete(token.Header, name)
			}
		}
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func publicPEM(t testing.TB, k crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestTokens(t *testing.T) {
	rs, other := jwt.SigningMethodRS256, signingKeys()["other"]
	public := signingKeys()["rsa"].(*rsa.PrivateKey).Public()
	unix := func(d time.Duration) int64 { return testNow.Add(d).Unix() }
	good := signToken(t, rs, "rsa", validClaims(nil), nil)
	parts := strings.Split(good, ".")
	reheaded := func(header string) string { return base64url([]byte(header)) + "." + parts[1] + "." + parts[2] }
	for _, test := range []struct {
		name, token string
		good        bool
	}{
		{"RS256", good, true},
		{"PS256", signToken(t, jwt.SigningMethodPS256, "rsa", validClaims(nil), nil), true},
		{"ES256", signToken(t, jwt.SigningMethodES256, "ec", validClaims(nil), nil), true},
		{"EdDSA", signToken(t, jwt.SigningMethodEdDSA, "ed", validClaims(nil), nil), true},
		{"HS256 with a secret of the set", signToken(t, jwt.SigningMethodHS256, "secret", validClaims(nil), nil), true},
		{"without a kid", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": nil}), true},
		{"one of several audiences", signToken(t, rs, "rsa", validClaims(map[string]any{"aud": []string{"bank", "shop"}}), nil), true},
		{"without exp", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": nil}), nil), true},
		{"late within the skew", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": unix(-59 * time.Second)}), nil), true},
		{"early within the skew", signToken(t, rs, "rsa", validClaims(map[string]any{"nbf": unix(59 * time.Second)}), nil), true},

		{"late", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": unix(-61 * time.Second)}), nil), false},
		{"early", signToken(t, rs, "rsa", validClaims(map[string]any{"nbf": unix(61 * time.Second)}), nil), false},
		{"exp that is no number", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": "never"}), nil), false},
		{"of another issuer", signToken(t, rs, "rsa", validClaims(map[string]any{"iss": "https://id.test.evil"}), nil), false},
		{"of no issuer", signToken(t, rs, "rsa", validClaims(map[string]any{"iss": nil}), nil), false},
		{"for another audience", signToken(t, rs, "rsa", validClaims(map[string]any{"aud": "bank"}), nil), false},
		{"for no audience", signToken(t, rs, "rsa", validClaims(map[string]any{"aud": nil}), nil), false},
		{"alg none", signTokenWith(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, validClaims(nil), nil, nil), false},
		{"alg None, spelt otherwise", base64url([]byte(`{"alg":"nOnE"}`)) + "." + parts[1] + ".", false},
		{"none with the signature of another", reheaded(`{"alg":"none","kid":"rsa"}`), false},
		{"no alg", reheaded(`{"kid":"rsa"}`), false},
		{"an alg that is not listed", reheaded(`{"alg":"RS1","kid":"rsa"}`), false},
		{"HS256 with a public key for a secret, DER", signTokenWith(t, jwt.SigningMethodHS256, publicPEM(t, public), validClaims(nil), map[string]any{"kid": "rsa"}, nil), false},
		{"HS256 with a public key for a secret, its modulus", signTokenWith(t, jwt.SigningMethodHS256, public.(*rsa.PublicKey).N.Bytes(), validClaims(nil), map[string]any{"kid": "rsa"}, nil), false},
		{"HS256 with a public key for a secret, without a kid", signTokenWith(t, jwt.SigningMethodHS256, publicPEM(t, public), validClaims(nil), nil, nil), false},
		{"signed by a stranger who takes our kid", signTokenWith(t, rs, other, validClaims(nil), map[string]any{"kid": "rsa"}, nil), false},
		{"signed by a stranger", signTokenWith(t, rs, other, validClaims(nil), nil, nil), false},
		{"a kid that leads elsewhere", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": "ec"}), false},
		{"unknown kid", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": "../../dev/null"}), false},
		{"an empty kid", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": ""}), false},
		{"a kid that is no text", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": 1}), false},
		{"a key that it brings along", signTokenWith(t, rs, other, validClaims(nil), map[string]any{"jwk": jwkOf("other"), "kid": "other"}, nil), false},
		{"extensions that must be understood", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"crit": []string{"b64"}}), false},
		{"without a signature", parts[0] + "." + parts[1] + ".", false},
		{"another's claims", parts[0] + "." + base64url([]byte(`{"iss":"https://id.test","aud":"shop","sub":"root"}`)) + "." + parts[2], false},
		{"two parts", parts[0] + "." + parts[1], false},
		{"garbage", "garbage", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := parseKeys([]byte(jwksOf("rsa", "ec", "ed", "secret")))
			if err != nil {
				t.Fatal(err)
			}
			p := &Provider{Issuer: "https://id.test", Audiences: []string{"shop", "depot"}, ClockSkew: time.Minute}
			claims, err := newVerifier(p, testClock).verify(test.token, keys)
			if (err == nil) != test.good || err == nil && claims["sub"] != "ann" {
				t.Errorf("verify = %v, %v; good is %t", claims, err, test.good)
			}
		})
	}
}

func TestUnusableKeysAreSkipped(t *testing.T) {
	with := func(id string, more map[string]any) string {
		j := jwkOf(id)
		maps.Copy(j, more)
		text, _ := json.Marshal(map[string]any{"keys": []any{j}})
		return string(text)
	}
	for name, text := range map[string]string{
		"for encryption":            with("rsa", map[string]any{"use": "enc"}),
		"for signing alone":         with("rsa", map[string]any{"key_ops": []string{"sign"}}),
		"of an alg of another kind": with("rsa", map[string]any{"alg": "HS256"}),
		"a short RSA key":           with("rsa", map[string]any{"n": base64url(make([]byte, 128)[:0]) + base64url([]byte(strings.Repeat("\xff", 128)))}),
		"an exponent of one":        with("rsa", map[string]any{"e": "AQ"}),
		"a point off the curve":     with("ec", map[string]any{"y": base64url(make([]byte, 32))}),
		"an unknown curve":          with("ec", map[string]any{"crv": "secp256k1"}),
		"a short secret":            with("secret", map[string]any{"k": base64url([]byte("secret"))}),
		"an unknown kind":           with("rsa", map[string]any{"kty": "XYZ"}),
		"none":                      `{"keys": []}`,
		"no set":                    `[]`,
	} {
		if set, err := parseKeys([]byte(text)); err == nil {
			t.Errorf("%s: %v", name, set)
		}
	}
	if set, err := parseKeys([]byte(with("rsa", map[string]any{"alg": "RS512"}))); err != nil || set.find("RS256", "") != nil || len(set.find("RS512", "rsa")) != 1 {
		t.Errorf("a key for RS512 alone: %v, %v", set, err)
	}
}

// localProvider returns the settings of a provider with inline keys. more is appended to them.
func localProvider(more string) string {
	inline, _ := json.Marshal(jwksOf("rsa"))
	return fmt.Sprintf(`{"issuer": "https://id.test", "local_jwks": {"inline_string": %s}%s}`, inline, more)
}

// serveRequest serves a request. got are the headers that the application received, nil if it was
// not called; x has the response.
func serveRequest(t *testing.T, settings, path string, fields ...string) (got *protocol.Header, x *protocol.Exchange) {
	t.Helper()
	made, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(settings))
	x = new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = "GET", path
	filtertest.AddHeaders(&x.Request.Header, fields...)
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		got = &x.Request.Header
		x.LocalReply(200, "text/plain", "app")
		return nil
	})
	if err := x.Serve(t.Context(), made(app)); err != nil {
		t.Fatal(err)
	}
	return got, x
}

func TestRules(t *testing.T) {
	good := "Authorization: Bearer " + signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)
	bad := "Authorization: Bearer " + signToken(t, jwt.SigningMethodRS256, "other", validClaims(nil), nil)
	foreign := "Authorization: Bearer " + signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{"iss": "https://two.test"}), nil)
	settings := fmt.Sprintf(`{"providers": {"one": %s, "two": %s}, "rules": [
		{"match": {"path": "/login"}},
		{"match": {"prefix": "/public/"}},
		{"match": {"prefix": "/maybe"}, "requires": {"requires_any": {"requirements": [{"provider_name": "one"}, {"allow_missing": {}}]}}},
		{"match": {"prefix": "/any"}, "requires": {"requires_any": {"requirements": [{"provider_name": "one"}, {"provider_name": "two"}]}}},
		{"match": {"prefix": "/all"}, "requires": {"requires_all": {"requirements": [{"provider_name": "one"}, {"provider_name": "two"}]}}},
		{"match": {"prefix": "/nest"}, "requires": {"requires_any": {"requirements": [
			{"requires_all": {"requirements": [{"provider_name": "one"}, {"provider_name": "two"}]}}, {"allow_missing": {}}]}}},
		{"match": {"prefix": "/deep"}, "requires": {"requires_all": {"requirements": [
			{"provider_name": "one"}, {"requires_any": {"requirements": [{"provider_name": "two"}, {"allow_missing_or_failed": {}}]}}]}}},
		{"match": {"prefix": "/look"}, "requires": {"allow_missing_or_failed": {}}},
		{"match": {"prefix": "/guest"}, "requires": {"allow_missing": {}}},
		{"match": {"prefix": "/admin"}, "requires": {"provider_name": "one"}}]}`,
		localProvider(""), strings.Replace(localProvider(""), "https://id.test", "https://two.test", 1))
	for _, test := range []struct {
		path, field string
		want        int
	}{
		{"/admin", good, 200}, {"/admin?a=b", good, 200}, {"/admin", "", 401}, {"/admin", bad, 401}, {"/admin", foreign, 401},
		{"/admin", "Authorization: Basic YTpi", 401}, {"/admin", "Authorization: Bearer ", 401},
		{"/login", "", 200}, {"/login?x", "", 200}, {"/other", "", 200}, {"/other", bad, 200},
		{"/maybe", "", 200}, {"/maybe", good, 200}, {"/maybe", bad, 401}, {"/maybe", foreign, 401},
		{"/any", good, 200}, {"/any", foreign, 200}, {"/any", bad, 401}, {"/any", "", 401},
		{"/all", good, 401}, {"/all", foreign, 401},
		{"/nest", "", 200}, {"/nest", bad, 401}, {"/nest", good, 200}, {"/nest", foreign, 200},
		{"/deep", "", 401}, {"/deep", bad, 401}, {"/deep", good, 200}, {"/deep", foreign, 401},
		{"/look", "", 200}, {"/look", bad, 200}, {"/look", good, 200},
		{"/guest", "", 200}, {"/guest", good, 200}, {"/guest", foreign, 200}, {"/guest", bad, 401},
		// No spelling of a path bypasses a rule.
		{"/%61dmin", "", 401}, {"//admin", "", 401}, {"/./admin", "", 401}, {"/x/../admin", "", 401},
		{"/public/../admin", "", 401}, {"/public/%2e%2e/admin", "", 401}, {"/public/..;a=b/admin", "", 401}, {"/public/..%5cadmin", "", 401},
		{"/admin/../public/", "", 401}, {"/%61dmin", good, 200}, {"/public/a%20b", "", 200},
		{"/%2561dmin", "", 401}, {"/public/b%2Fc/../../admin", "", 401}, {"/public//../../admin", "", 401}, {"/public/x;y%2F../..\\admin", "", 401},
		{"/public/..%252fadmin", "", 401}, {"/public/a//../b", "", 200}, {"/public/a;b=c/%64", "", 200}, {"/public/%zz%4", "", 200},
		{"/public/" + strings.Repeat("a;/%2e/", 300), "", 401},
	} {
		var fields []string
		if test.field != "" {
			fields = []string{test.field}
		}
		_, x := serveRequest(t, settings, test.path, fields...)
		if x.Response.Status != test.want {
			t.Errorf("%s with %.30q: %d, want %d (%s)", test.path, test.field, x.Response.Status, test.want, x.Record.Detail)
		}
		challenge, ok := x.Response.Header.Lookup("WWW-Authenticate")
		if ok != (test.want == 401) || ok && (challenge == "Bearer") != (test.field == "" || strings.HasSuffix(test.field, "YTpi") || strings.HasSuffix(test.field, "Bearer ")) {
			t.Errorf("%s with %.30q: WWW-Authenticate: %s", test.path, test.field, challenge)
		}
		if test.want == 401 && x.Record.Reason != protocol.Unauthenticated {
			t.Errorf("%s: the reason is %v", test.path, x.Record.Reason)
		}
	}
}

// TestPathVariantsCannotBypassRules verifies that no spelling of a path bypasses a rule for a
// nested path, whatever the application resolves and whatever it keeps.
func TestPathVariantsCannotBypassRules(t *testing.T) {
	settings := fmt.Sprintf(`{"providers": {"one": %s}, "rules": [{"match": {"prefix": "/a/secure"}, "requires": {"provider_name": "one"}}]}`, localProvider(""))
	for _, path := range []string{
		"/a/secure", "/a/b%2Fc/../secure", "/a//../secure", "/a/b\\c/../secure", "/a/b;c/../secure", "/a/%2e/secure", "/a/%252e/secure", "/a/./x/%2e%2e/secure;d",
	} {
		if _, x := serveRequest(t, settings, path); x.Response.Status != 401 {
			t.Errorf("%s: %d, want 401", path, x.Response.Status)
		}
	}
}

func TestOriginalPathIsMatched(t *testing.T) {
	made, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider("")+`}, "rules": [{"match": {"prefix": "/api/"}, "requires": {"provider_name": "one"}}]}`))
	for _, test := range []struct {
		asked, path string
		want        int
	}{{"/api/a", "/a", 401}, {"/a", "/api/a", 200}} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Method, x.Request.Path, x.Record.OriginalPath = "GET", test.path, test.asked
		app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error { x.LocalReply(200, "", ""); return nil })
		if err := x.Serve(t.Context(), made(app)); err != nil || x.Response.Status != test.want {
			t.Errorf("%s, rewritten to %s: %d, %v; want %d", test.asked, test.path, x.Response.Status, err, test.want)
		}
	}
}

func TestTokenLocations(t *testing.T) {
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)
	other := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{"sub": "bob"}), nil)
	rule := `, "rules": [{"requires": {"provider_name": "one"}}]}`
	anywhere := `{"providers": {"one": ` + localProvider(`, "from_headers": [{"name": "x-token", "value_prefix": "T "}], "from_params": ["t"], "from_cookies": ["session"]`) + `}` + rule
	usual := `{"providers": {"one": ` + localProvider("") + `}` + rule
	for _, test := range []struct {
		name, settings, path string
		fields               []string
		want                 int
	}{
		{"Authorization", usual, "/", []string{"authorization: bearer " + token}, 200},
		{"the usual parameter", usual, "/?a=b&access_token=" + token, nil, 200},
		{"the usual parameter, escaped", usual, "/?a=b&access%5ftoken=%65" + token[1:], nil, 200},
		{"a second one, escaped", usual, "/?access%5Ftoken=" + other, []string{"Authorization: Bearer " + token}, 401},
		{"a parameter with escapes that are none", usual, "/?access%_token=%zz", []string{"Authorization: Bearer " + token}, 200},
		{"twice the same", usual, "/?access_token=" + token, []string{"Authorization: Bearer " + token}, 200},
		{"two that differ", usual, "/?access_token=" + other, []string{"Authorization: Bearer " + token}, 401},
		{"two fields that differ", usual, "/", []string{"Authorization: Bearer " + token, "Authorization: Bearer " + other}, 401},
		{"a field", anywhere, "/", []string{"X-Token: T " + token}, 200},
		{"a field without its prefix", anywhere, "/", []string{"X-Token: " + token}, 401},
		{"a parameter", anywhere, "/?t=" + token, nil, 200},
		{"a cookie", anywhere, "/", []string{"Cookie: a=b; session=" + token}, 200},
		{"another cookie", anywhere, "/", []string{"Cookie: a=b; sessions=" + token}, 401},
		{"Authorization, where it is not meant", anywhere, "/", []string{"Authorization: Bearer " + token}, 401},
	} {
		if _, x := serveRequest(t, test.settings, test.path, test.fields...); x.Response.Status != test.want {
			t.Errorf("%s: %d, want %d (%s)", test.name, x.Response.Status, test.want, x.Record.Detail)
		}
	}
}

func TestClaimHeaders(t *testing.T) {
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{
		"n": 12345678901, "realm": map[string]any{"role": "admin"}, "evil": "a\r\nX-Admin: 1", "list": []int{1}}), nil)
	settings := `{"providers": {"one": ` + localProvider(`, "forward_payload_header": "x-claims", "claim_to_headers": [
		{"header_name": "x-user", "claim_name": "sub"}, {"header_name": "x-n", "claim_name": "n"}, {"header_name": "x-role", "claim_name": "realm.role"},
		{"header_name": "x-evil", "claim_name": "evil"}, {"header_name": "x-list", "claim_name": "list"}, {"header_name": "x-none", "claim_name": "none"}]`) +
		`}, "rules": [{"match": {"prefix": "/in"}, "requires": {"provider_name": "one"}}]}`
	got, _ := serveRequest(t, settings, "/in", "Authorization: Bearer "+token, "X-User: root", "X-None: forged", "X_USER: root", "x-user: root", "X_User: root")
	want := map[string]string{"x-claims": strings.Split(token, ".")[1], "x-user": "ann", "x-n": "12345678901", "x-role": "admin",
		"x-evil": "", "x-list": "", "x-none": "", "authorization": ""}
	for name, value := range want {
		if got.Get(name) != value {
			t.Errorf("%s: %q, want %q", name, got.Get(name), value)
		}
	}
	if got.Len() != 4 || got.Get("x_user") != "" {
		t.Errorf("there are %d fields, and x_user is %q", got.Len(), got.Get("x_user"))
	}
	got, _ = serveRequest(t, settings, "/out", "X-User: root", "x_user: root", "X-Claims: forged", "X_Claims: forged", "x_user: root")
	if got.Len() != 0 {
		t.Errorf("where no rule is, a client forged %d fields", got.Len())
	}
	got, _ = serveRequest(t, settings, "/in", "Authorization: Basic YTpi", "Authorization: Bearer "+token)
	if got.Get("authorization") != "Basic YTpi" || got.Len() != 5 {
		t.Errorf("of two fields %q is left, and %d in all", got.Get("authorization"), got.Len())
	}
	got, _ = serveRequest(t, `{"providers": {"one": `+localProvider(`, "forward": true`)+`}, "rules": [{"requires": {"provider_name": "one"}}]}`, "/", "Authorization: Bearer "+token)
	if got.Get("authorization") != "Bearer "+token {
		t.Error("the token was not forwarded")
	}
}

func TestRPCWithoutTokenIsRejected(t *testing.T) {
	made, counts := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider("")+`}, "rules": [{"match": {"prefix": "/org.Shop/"}, "requires": {"provider_name": "one"}}]}`))
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Path = "/org.Shop/buy"
	x.Request.Header.Add("service", "org.Shop")
	if err := x.Serve(t.Context(), made(nil)); err != nil || x.Record.Reason != protocol.Unauthenticated || x.Record.Reason.Spec().GRPC != 16 {
		t.Errorf("Serve = %v, %v", err, x.Record.Reason)
	}
	if n := counts.Value(requestsMetric()); n != 1 {
		t.Errorf("%v requests are counted", n)
	}
}

func TestUnidentifiedCallsMustSatisfyEveryRule(t *testing.T) {
	made, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider("")+`}, "rules": [{"match": {"prefix": "/org.Shop/"}, "requires": {"provider_name": "one"}}]}`))
	for _, test := range []struct {
		name, path, service string
		disputed            bool
		want                protocol.Reason
	}{
		{"of another service", "/org.Bank/look", "org.Bank", false, protocol.ReasonNone},
		{"of another service, by one account", "/org.Bank/look", "org.Bank", true, protocol.Unauthenticated},
		{"of no service", "/", "", false, protocol.Unauthenticated},
		{"of the service, behind dubbo_stream", "/", "org.Shop", false, protocol.Unauthenticated},
		{"of another service, behind dubbo_stream", "/", "org.Bank", false, protocol.ReasonNone},
	} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Path = test.path
		x.Request.Body = &xprotocol.Message{View: xprotocol.FrameView{Ambiguous: test.disputed}}
		if test.service != "" {
			x.Request.Header.Add("service", test.service)
		}
		app := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
		if err := x.Serve(t.Context(), made(app)); err != nil || x.Record.Reason != test.want {
			t.Errorf("a call %s: %v, %v; want %v", test.name, err, x.Record.Reason, test.want)
		}
	}
}

// fakeIssuer is a cluster that serves keys.
type fakeIssuer struct {
	fetches atomic.Int32
	keys    atomic.Value // string; "": fetches fail
}

func (i *fakeIssuer) Start(_ context.Context, x *protocol.Exchange) error {
	i.fetches.Add(1)
	if x.Request.Method+x.Request.Authority+x.Request.Path != "GETid.test/keys" || x.Deadline.IsZero() {
		return errors.New("it was asked for something else")
	}
	text, _ := i.keys.Load().(string)
	if text == "" {
		return protocol.NewFault(protocol.ConnectFailure, nil)
	}
	x.LocalReply(200, "application/json", text)
	return nil
}

// statusOf returns the response status of a request with a token, or without one if token is "".
func statusOf(t *testing.T, through filter.Filter, path, token string) int {
	t.Helper()
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = "GET", path
	if token != "" {
		x.Request.Header.Add("Authorization", "Bearer "+token)
	}
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error { x.LocalReply(200, "", ""); return nil })
	if err := x.Serve(t.Context(), through(app)); err != nil {
		t.Fatal(err)
	}
	return x.Response.Status
}

// TestFetchedKeys verifies when keys are fetched, cached, replaced and expired, and that they
// outlive a reload.
func TestFetchedKeys(t *testing.T) {
	clock := testNow
	from := new(fakeIssuer)
	calls := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"id": from}}
	kind := newFactory(func() time.Time { return clock })
	const settings = `{"providers": {"one": {"clock_skew": "10m", "remote_jwks": {
		"http_uri": {"uri": "http://id.test/keys", "cluster": "id", "timeout": "1s"}, "cache_duration": "1m", "stale_duration": "10m"}}},
		"rules": [{"requires": {"provider_name": "one"}}]}`
	build := func() filter.Filter {
		made, _ := filtertest.BuildWith(t, kind, settings, calls)
		return made
	}
	made := build()
	ask := func(id string) int {
		status := statusOf(t, made, "/", signToken(t, jwt.SigningMethodRS256, id, validClaims(nil), nil))
		calls.Wait()
		return status
	}
	for _, step := range []struct {
		what  string
		after time.Duration
		keys  string // keys of the issuer from now on; "": fetches fail
		id    string // ID of the signing key
		want  int
		asked int32 // total number of fetches
	}{
		{"no keys: requests are rejected", 0, "", "rsa", 401, 1},
		{"and it is not asked again at once", time.Second, jwksOf("rsa"), "rsa", 401, 1},
		{"but soon", minFetchInterval, jwksOf("rsa"), "rsa", 200, 2},
		{"keys are kept", 30 * time.Second, jwksOf("rsa"), "rsa", 200, 2},
		{"a key that is not among them has them fetched anew", time.Second, jwksOf("other"), "other", 200, 3},
		{"what is not in the newer set is bad", time.Second, jwksOf("other"), "rsa", 401, 3},
		{"old keys are used while they are fetched anew", 2 * time.Minute, jwksOf("rsa", "other"), "other", 200, 4},
		{"and when that fails", 2 * time.Minute, "", "rsa", 200, 5},
		{"again and again", 5 * time.Minute, "", "rsa", 200, 6},
		{"but not for ever", 5 * time.Minute, "", "rsa", 401, 7},
		{"until there are keys again", minFetchInterval, jwksOf("rsa"), "rsa", 200, 8},
	} {
		clock = clock.Add(step.after)
		from.keys.Store(step.keys)
		if got := ask(step.id); got != step.want || from.fetches.Load() != step.asked {
			t.Fatalf("%s: %d, and the issuer got %d requests; want %d and %d", step.what, got, from.fetches.Load(), step.want, step.asked)
		}
	}
	from.keys.Store("")
	made = build()
	if got := ask("rsa"); got != 200 || from.fetches.Load() != 8 {
		t.Errorf("after a reload: %d, asked %d times", got, from.fetches.Load())
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	inline, _ := json.Marshal(jwksOf("secret"))
	report := new(document.Report)
	root := document.Parse("config", []byte(`{"providers": {"one": {"local_jwks": {"inline_string": `+string(inline)+`}}}}`), document.Options{}, report)
	document.NewDecoder(report).Decode(root, new(Config))
	printed := string(document.Redact(root))
	if report.Errors() > 0 || strings.Contains(printed, jwkOf("secret")["k"].(string)) || !strings.Contains(printed, document.Redacted) {
		t.Errorf("%v\n%s", report.Diagnostics(), printed)
	}
}

// panickingClient is a ClusterClient whose calls panic and whose Go recovers panics.
type panickingClient struct{ filtertest.ClusterClient }

func (*panickingClient) Go(f func(context.Context)) {
	go func() {
		defer func() { _ = recover() }()
		f(context.Background())
	}()
}

func (*panickingClient) Call(context.Context, filter.Target, *protocol.Exchange, func() error) error {
	panic("a defect")
}

func TestPanickedFetchEndsWait(t *testing.T) {
	made, _ := filtertest.BuildWith(t, newFactory(testClock), `{"providers": {"one": {"remote_jwks": {"http_uri": {"uri": "http://id.test/keys", "cluster": "id"}}}},
		"rules": [{"requires": {"provider_name": "one"}}]}`, new(panickingClient))
	if got := statusOf(t, made, "/", signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)); got != 401 {
		t.Errorf("%d, want 401", got)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"a provider without keys":          {`{"providers": {"a": {}}}`, "expected one of local_jwks and remote_jwks"},
		"keys that are none":               {`{"providers": {"a": {"local_jwks": {"inline_string": "{}"}}}}`, "no key"},
		"invalid address":                  {`{"providers": {"a": {"remote_jwks": {"http_uri": {"uri": "keys", "cluster": "c"}}}}}`, "uri"},
		"unknown provider":                 {`{"rules": [{"requires": {"provider_name": "a"}}]}`, `provider "a" is not defined`},
		"two requirements at once":         {`{"rules": [{"requires": {"allow_missing": {}, "allow_missing_or_failed": {}}}]}`, "expected one"},
		"an empty list":                    {`{"rules": [{"requires": {"requires_any": {"requirements": []}}}]}`, "empty"},
		"a list in a list that is wrong":   {`{"rules": [{"requires": {"requires_all": {"requirements": [{"requires_any": {"requirements": [{"provider_name": "a"}]}}]}}}]}`, `requirements[0]: requirements[0]: provider "a" is not defined`},
		"too many lists":                   {`{"rules": [{"requires": ` + strings.Repeat(`{"requires_any": {"requirements": [`, 10) + `{"allow_missing": {}}` + strings.Repeat(`]}}`, 10) + `}]}`, "nested more than 8 deep"},
		"audiences of a requirement":       {`{"rules": [{"requires": {"provider_and_audiences": {"provider_name": "a"}}}]}`, "provider_and_audiences"},
		"a requirement that needs nothing": {`{"rules": [{"requires": {}}]}`, "expected one"},
		"two matches":                      {`{"rules": [{"match": {"path": "/a", "prefix": "/b"}}]}`, "prefix and path"},
		"an algorithm of one's own":        {`{"providers": {"a": {"algorithms": ["none"]}}}`, "algorithms"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}
