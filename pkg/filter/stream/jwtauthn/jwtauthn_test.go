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
	otherKey, err2 := rsa.GenerateKey(rand.Reader, 2048)
	ec, err3 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, ed, err4 := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		panic(err)
	}
	return map[string]any{"rsa": rsaKey, "other": otherKey, "ec": ec, "ed": ed, "secret": []byte("0123456789abcdef0123456789abcdef")}
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

// jwksOf returns a JWKS of keys in signingKeys.
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

// validClaims returns the claims of a valid token, changed by changes. A nil value removes a claim.
func validClaims(changes map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{"iss": "https://id.test", "aud": "shop", "sub": "ann", "exp": testNow.Add(time.Hour).Unix()}
	for name, value := range changes {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

// signToken returns a token signed with the key of this ID. extra replaces parameters of the token
// header; a nil value removes one.
func signToken(t testing.TB, method jwt.SigningMethod, id string, claims jwt.MapClaims, extra map[string]any) string {
	t.Helper()
	return signTokenWith(t, method, signingKeys()[id], claims, map[string]any{"kid": id}, extra)
}

func signTokenWith(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims, header, extra map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for _, params := range []map[string]any{header, extra} {
		for name, value := range params {
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
	validToken := signToken(t, rs, "rsa", validClaims(nil), nil)
	parts := strings.Split(validToken, ".")
	withHeader := func(header string) string { return base64url([]byte(header)) + "." + parts[1] + "." + parts[2] }
	for _, test := range []struct {
		name, token string
		valid       bool
	}{
		{"RS256", validToken, true},
		{"PS256", signToken(t, jwt.SigningMethodPS256, "rsa", validClaims(nil), nil), true},
		{"ES256", signToken(t, jwt.SigningMethodES256, "ec", validClaims(nil), nil), true},
		{"EdDSA", signToken(t, jwt.SigningMethodEdDSA, "ed", validClaims(nil), nil), true},
		{"HS256", signToken(t, jwt.SigningMethodHS256, "secret", validClaims(nil), nil), true},
		{"no kid", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": nil}), true},
		{"one of several audiences", signToken(t, rs, "rsa", validClaims(map[string]any{"aud": []string{"bank", "shop"}}), nil), true},
		{"no exp", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": nil}), nil), true},
		{"expired within the clock skew", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": unix(-59 * time.Second)}), nil), true},
		{"not valid yet, within the clock skew", signToken(t, rs, "rsa", validClaims(map[string]any{"nbf": unix(59 * time.Second)}), nil), true},

		{"expired", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": unix(-61 * time.Second)}), nil), false},
		{"not valid yet", signToken(t, rs, "rsa", validClaims(map[string]any{"nbf": unix(61 * time.Second)}), nil), false},
		{"exp is not a number", signToken(t, rs, "rsa", validClaims(map[string]any{"exp": "never"}), nil), false},
		{"other issuer", signToken(t, rs, "rsa", validClaims(map[string]any{"iss": "https://id.test.evil"}), nil), false},
		{"no issuer", signToken(t, rs, "rsa", validClaims(map[string]any{"iss": nil}), nil), false},
		{"other audience", signToken(t, rs, "rsa", validClaims(map[string]any{"aud": "bank"}), nil), false},
		{"no audience", signToken(t, rs, "rsa", validClaims(map[string]any{"aud": nil}), nil), false},
		{"alg none", signTokenWith(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, validClaims(nil), nil, nil), false},
		{"alg nOnE", base64url([]byte(`{"alg":"nOnE"}`)) + "." + parts[1] + ".", false},
		{"alg none with a signature", withHeader(`{"alg":"none","kid":"rsa"}`), false},
		{"no alg", withHeader(`{"kid":"rsa"}`), false},
		{"unlisted alg", withHeader(`{"alg":"RS1","kid":"rsa"}`), false},
		{"HS256 with the public key in PEM as the secret", signTokenWith(t, jwt.SigningMethodHS256, publicPEM(t, public), validClaims(nil), map[string]any{"kid": "rsa"}, nil), false},
		{"HS256 with the modulus as the secret", signTokenWith(t, jwt.SigningMethodHS256, public.(*rsa.PublicKey).N.Bytes(), validClaims(nil), map[string]any{"kid": "rsa"}, nil), false},
		{"HS256 with the public key as the secret, no kid", signTokenWith(t, jwt.SigningMethodHS256, publicPEM(t, public), validClaims(nil), nil, nil), false},
		{"unknown key with a known kid", signTokenWith(t, rs, other, validClaims(nil), map[string]any{"kid": "rsa"}, nil), false},
		{"unknown key", signTokenWith(t, rs, other, validClaims(nil), nil, nil), false},
		{"kid of another key", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": "ec"}), false},
		{"unknown kid", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": "../../dev/null"}), false},
		{"empty kid", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": ""}), false},
		{"kid is not a string", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"kid": 1}), false},
		{"key in the token header", signTokenWith(t, rs, other, validClaims(nil), map[string]any{"jwk": jwkOf("other"), "kid": "other"}, nil), false},
		{"critical extension", signToken(t, rs, "rsa", validClaims(nil), map[string]any{"crit": []string{"b64"}}), false},
		{"no signature", parts[0] + "." + parts[1] + ".", false},
		{"changed claims", parts[0] + "." + base64url([]byte(`{"iss":"https://id.test","aud":"shop","sub":"root"}`)) + "." + parts[2], false},
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
			if (err == nil) != test.valid || err == nil && claims["sub"] != "ann" {
				t.Errorf("verify = %v, %v; want valid: %t", claims, err, test.valid)
			}
		})
	}
}

func TestUnusableKeysAreSkipped(t *testing.T) {
	withParams := func(id string, params map[string]any) string {
		j := jwkOf(id)
		maps.Copy(j, params)
		text, _ := json.Marshal(map[string]any{"keys": []any{j}})
		return string(text)
	}
	for name, text := range map[string]string{
		"encryption":              withParams("rsa", map[string]any{"use": "enc"}),
		"signing only":            withParams("rsa", map[string]any{"key_ops": []string{"sign"}}),
		"alg of another key type": withParams("rsa", map[string]any{"alg": "HS256"}),
		"short RSA key":           withParams("rsa", map[string]any{"n": base64url(make([]byte, 128)[:0]) + base64url([]byte(strings.Repeat("\xff", 128)))}),
		"exponent 1":              withParams("rsa", map[string]any{"e": "AQ"}),
		"point not on the curve":  withParams("ec", map[string]any{"y": base64url(make([]byte, 32))}),
		"unknown curve":           withParams("ec", map[string]any{"crv": "secp256k1"}),
		"short secret":            withParams("secret", map[string]any{"k": base64url([]byte("secret"))}),
		"unknown key type":        withParams("rsa", map[string]any{"kty": "XYZ"}),
		"no keys":                 `{"keys": []}`,
		"no JWKS":                 `[]`,
	} {
		if set, err := parseKeys([]byte(text)); err == nil {
			t.Errorf("%s: parseKeys = %v, want an error", name, set)
		}
	}
	if set, err := parseKeys([]byte(withParams("rsa", map[string]any{"alg": "RS512"}))); err != nil || set.find("RS256", "") != nil || len(set.find("RS512", "rsa")) != 1 {
		t.Errorf("RS512 key: %v, %v; want one key, only for RS512", set, err)
	}
}

// localProvider returns the settings of a provider with inline keys, followed by extra.
func localProvider(extra string) string {
	inline, _ := json.Marshal(jwksOf("rsa"))
	return fmt.Sprintf(`{"issuer": "https://id.test", "local_jwks": {"inline_string": %s}%s}`, inline, extra)
}

// serveRequest serves a request. got holds the headers that the application received; it is nil if
// the application was not called. x has the response.
func serveRequest(t *testing.T, settings, path string, fields ...string) (got *protocol.Header, x *protocol.Exchange) {
	t.Helper()
	f, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(settings))
	x = new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = "GET", path
	filtertest.AddHeaders(&x.Request.Header, fields...)
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		got = &x.Request.Header
		x.LocalReply(200, "text/plain", "app")
		return nil
	})
	if err := x.Serve(t.Context(), f(app)); err != nil {
		t.Fatal(err)
	}
	return got, x
}

func TestRules(t *testing.T) {
	valid := "Authorization: Bearer " + signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)
	invalid := "Authorization: Bearer " + signToken(t, jwt.SigningMethodRS256, "other", validClaims(nil), nil)
	otherIssuer := "Authorization: Bearer " + signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{"iss": "https://two.test"}), nil)
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
		{"/admin", valid, 200}, {"/admin?a=b", valid, 200}, {"/admin", "", 401}, {"/admin", invalid, 401}, {"/admin", otherIssuer, 401},
		{"/admin", "Authorization: Basic YTpi", 401}, {"/admin", "Authorization: Bearer ", 401},
		{"/login", "", 200}, {"/login?x", "", 200}, {"/other", "", 200}, {"/other", invalid, 200},
		{"/maybe", "", 200}, {"/maybe", valid, 200}, {"/maybe", invalid, 401}, {"/maybe", otherIssuer, 401},
		{"/any", valid, 200}, {"/any", otherIssuer, 200}, {"/any", invalid, 401}, {"/any", "", 401},
		{"/all", valid, 401}, {"/all", otherIssuer, 401},
		{"/nest", "", 200}, {"/nest", invalid, 401}, {"/nest", valid, 200}, {"/nest", otherIssuer, 200},
		{"/deep", "", 401}, {"/deep", invalid, 401}, {"/deep", valid, 200}, {"/deep", otherIssuer, 401},
		{"/look", "", 200}, {"/look", invalid, 200}, {"/look", valid, 200},
		{"/guest", "", 200}, {"/guest", valid, 200}, {"/guest", otherIssuer, 200}, {"/guest", invalid, 401},
		// No spelling of a path bypasses a rule.
		{"/%61dmin", "", 401}, {"//admin", "", 401}, {"/./admin", "", 401}, {"/x/../admin", "", 401},
		{"/public/../admin", "", 401}, {"/public/%2e%2e/admin", "", 401}, {"/public/..;a=b/admin", "", 401}, {"/public/..%5cadmin", "", 401},
		{"/admin/../public/", "", 401}, {"/%61dmin", valid, 200}, {"/public/a%20b", "", 200},
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
			t.Errorf("%s with %.30q: WWW-Authenticate: %s, want it exactly with 401, and \"Bearer\" exactly if the token is missing", test.path, test.field, challenge)
		}
		if test.want == 401 && x.Record.Reason != protocol.Unauthenticated {
			t.Errorf("%s: reason %v, want %v", test.path, x.Record.Reason, protocol.Unauthenticated)
		}
	}
}

// TestPathVariantsCannotBypassRules verifies that no spelling of a path bypasses a rule for a
// nested path, even if the application decodes or cleans only some parts of the path.
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
	f, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider("")+`}, "rules": [{"match": {"prefix": "/api/"}, "requires": {"provider_name": "one"}}]}`))
	for _, test := range []struct {
		original, path string
		want           int
	}{{"/api/a", "/a", 401}, {"/a", "/api/a", 200}} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Method, x.Request.Path, x.Record.OriginalPath = "GET", test.path, test.original
		app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error { x.LocalReply(200, "", ""); return nil })
		if err := x.Serve(t.Context(), f(app)); err != nil || x.Response.Status != test.want {
			t.Errorf("%s, rewritten to %s: %d, %v; want %d", test.original, test.path, x.Response.Status, err, test.want)
		}
	}
}

func TestTokenLocations(t *testing.T) {
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)
	other := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{"sub": "bob"}), nil)
	rule := `, "rules": [{"requires": {"provider_name": "one"}}]}`
	custom := `{"providers": {"one": ` + localProvider(`, "from_headers": [{"name": "x-token", "value_prefix": "T "}], "from_params": ["t"], "from_cookies": ["session"]`) + `}` + rule
	defaults := `{"providers": {"one": ` + localProvider("") + `}` + rule
	for _, test := range []struct {
		name, settings, path string
		fields               []string
		want                 int
	}{
		{"Authorization", defaults, "/", []string{"authorization: bearer " + token}, 200},
		{"default parameter", defaults, "/?a=b&access_token=" + token, nil, 200},
		{"default parameter, escaped", defaults, "/?a=b&access%5ftoken=%65" + token[1:], nil, 200},
		{"other token in the parameter, escaped", defaults, "/?access%5Ftoken=" + other, []string{"Authorization: Bearer " + token}, 401},
		{"parameter with invalid escapes", defaults, "/?access%_token=%zz", []string{"Authorization: Bearer " + token}, 200},
		{"same token twice", defaults, "/?access_token=" + token, []string{"Authorization: Bearer " + token}, 200},
		{"different tokens", defaults, "/?access_token=" + other, []string{"Authorization: Bearer " + token}, 401},
		{"different tokens in two headers", defaults, "/", []string{"Authorization: Bearer " + token, "Authorization: Bearer " + other}, 401},
		{"header", custom, "/", []string{"X-Token: T " + token}, 200},
		{"header without its prefix", custom, "/", []string{"X-Token: " + token}, 401},
		{"parameter", custom, "/?t=" + token, nil, 200},
		{"cookie", custom, "/", []string{"Cookie: a=b; session=" + token}, 200},
		{"other cookie", custom, "/", []string{"Cookie: a=b; sessions=" + token}, 401},
		{"Authorization not configured", custom, "/", []string{"Authorization: Bearer " + token}, 401},
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
		t.Errorf("%d headers, x_user is %q; want 4 and none", got.Len(), got.Get("x_user"))
	}
	got, _ = serveRequest(t, settings, "/out", "X-User: root", "x_user: root", "X-Claims: forged", "X_Claims: forged", "x_user: root")
	if got.Len() != 0 {
		t.Errorf("without a rule, the application received %d forged headers, want 0", got.Len())
	}
	got, _ = serveRequest(t, settings, "/in", "Authorization: Basic YTpi", "Authorization: Bearer "+token)
	if got.Get("authorization") != "Basic YTpi" || got.Len() != 5 {
		t.Errorf("Authorization is %q, %d headers; want the Basic one and 5", got.Get("authorization"), got.Len())
	}
	got, _ = serveRequest(t, `{"providers": {"one": `+localProvider(`, "forward": true`)+`}, "rules": [{"requires": {"provider_name": "one"}}]}`, "/", "Authorization: Bearer "+token)
	if got.Get("authorization") != "Bearer "+token {
		t.Error("the token was not forwarded")
	}
}

func TestRPCWithoutTokenIsRejected(t *testing.T) {
	f, counts := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider("")+`}, "rules": [{"match": {"prefix": "/org.Shop/"}, "requires": {"provider_name": "one"}}]}`))
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Path = "/org.Shop/buy"
	x.Request.Header.Add("service", "org.Shop")
	if err := x.Serve(t.Context(), f(nil)); err != nil || x.Record.Reason != protocol.Unauthenticated || x.Record.Reason.Spec().GRPC != 16 {
		t.Errorf("Serve = %v, %v; want nil, %v", err, x.Record.Reason, protocol.Unauthenticated)
	}
	if n := counts.Value(requestsMetric()); n != 1 {
		t.Errorf("counter = %v, want 1", n)
	}
}

func TestUnidentifiedCallsMustSatisfyEveryRule(t *testing.T) {
	f, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider("")+`}, "rules": [{"match": {"prefix": "/org.Shop/"}, "requires": {"provider_name": "one"}}]}`))
	for _, test := range []struct {
		name, path, service string
		ambiguous           bool
		want                protocol.Reason
	}{
		{"of another service", "/org.Bank/look", "org.Bank", false, protocol.ReasonNone},
		{"of another service, ambiguous frame", "/org.Bank/look", "org.Bank", true, protocol.Unauthenticated},
		{"without a service", "/", "", false, protocol.Unauthenticated},
		{"of the service, behind dubbo_stream", "/", "org.Shop", false, protocol.Unauthenticated},
		{"of another service, behind dubbo_stream", "/", "org.Bank", false, protocol.ReasonNone},
	} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Path = test.path
		x.Request.Body = &xprotocol.Message{View: xprotocol.FrameView{Ambiguous: test.ambiguous}}
		if test.service != "" {
			x.Request.Header.Add("service", test.service)
		}
		app := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
		if err := x.Serve(t.Context(), f(app)); err != nil || x.Record.Reason != test.want {
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
		return errors.New("unexpected request")
	}
	text, _ := i.keys.Load().(string)
	if text == "" {
		return protocol.NewFault(protocol.ConnectFailure, nil)
	}
	x.LocalReply(200, "application/json", text)
	return nil
}

// statusOf returns the response status of a request with a token, or without one if token is "".
func statusOf(t *testing.T, f filter.Filter, path, token string) int {
	t.Helper()
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = "GET", path
	if token != "" {
		x.Request.Header.Add("Authorization", "Bearer "+token)
	}
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error { x.LocalReply(200, "", ""); return nil })
	if err := x.Serve(t.Context(), f(app)); err != nil {
		t.Fatal(err)
	}
	return x.Response.Status
}

// TestFetchedKeys verifies when keys are fetched, cached, replaced and expired, and that they
// outlive a reload.
func TestFetchedKeys(t *testing.T) {
	clock := testNow
	issuer := new(fakeIssuer)
	clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"id": issuer}}
	factory := newFactory(func() time.Time { return clock })
	const settings = `{"providers": {"one": {"clock_skew": "10m", "remote_jwks": {
		"http_uri": {"uri": "http://id.test/keys", "cluster": "id", "timeout": "1s"}, "cache_duration": "1m", "stale_duration": "10m"}}},
		"rules": [{"requires": {"provider_name": "one"}}]}`
	build := func() filter.Filter {
		f, _ := filtertest.BuildWith(t, factory, settings, clusters)
		return f
	}
	f := build()
	send := func(id string) int {
		status := statusOf(t, f, "/", signToken(t, jwt.SigningMethodRS256, id, validClaims(nil), nil))
		clusters.Wait()
		return status
	}
	for _, step := range []struct {
		name    string
		after   time.Duration
		keys    string // keys of the issuer from now on; "": fetches fail
		id      string // ID of the signing key
		want    int
		fetches int32 // total number of fetches
	}{
		{"no keys", 0, "", "rsa", 401, 1},
		{"no second fetch within minFetchInterval", time.Second, jwksOf("rsa"), "rsa", 401, 1},
		{"second fetch after minFetchInterval", minFetchInterval, jwksOf("rsa"), "rsa", 200, 2},
		{"cached keys", 30 * time.Second, jwksOf("rsa"), "rsa", 200, 2},
		{"fetch after an unknown kid", time.Second, jwksOf("other"), "other", 200, 3},
		{"removed key", time.Second, jwksOf("other"), "rsa", 401, 3},
		{"stale keys during a fetch", 2 * time.Minute, jwksOf("rsa", "other"), "other", 200, 4},
		{"stale keys after a failed fetch", 2 * time.Minute, "", "rsa", 200, 5},
		{"stale keys after two failed fetches", 5 * time.Minute, "", "rsa", 200, 6},
		{"end of stale_duration", 5 * time.Minute, "", "rsa", 401, 7},
		{"successful fetch", minFetchInterval, jwksOf("rsa"), "rsa", 200, 8},
	} {
		clock = clock.Add(step.after)
		issuer.keys.Store(step.keys)
		if got := send(step.id); got != step.want || issuer.fetches.Load() != step.fetches {
			t.Fatalf("%s: %d after %d fetches; want %d after %d", step.name, got, issuer.fetches.Load(), step.want, step.fetches)
		}
	}
	issuer.keys.Store("")
	f = build()
	if got := send("rsa"); got != 200 || issuer.fetches.Load() != 8 {
		t.Errorf("after a reload: %d, %d fetches; want 200, 8", got, issuer.fetches.Load())
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	inline, _ := json.Marshal(jwksOf("secret"))
	report := new(document.Report)
	root := document.Parse("config", []byte(`{"providers": {"one": {"local_jwks": {"inline_string": `+string(inline)+`}}}}`), document.Options{}, report)
	document.NewDecoder(report).Decode(root, new(Config))
	printed := string(document.Redact(root))
	if report.Errors() > 0 || strings.Contains(printed, jwkOf("secret")["k"].(string)) || !strings.Contains(printed, document.Redacted) {
		t.Errorf("problems %v, want none; the printed settings, where the secret must be redacted:\n%s", report.Diagnostics(), printed)
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
	f, _ := filtertest.BuildWith(t, newFactory(testClock), `{"providers": {"one": {"remote_jwks": {"http_uri": {"uri": "http://id.test/keys", "cluster": "id"}}}},
		"rules": [{"requires": {"provider_name": "one"}}]}`, new(panickingClient))
	if got := statusOf(t, f, "/", signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)); got != 401 {
		t.Errorf("status %d, want 401", got)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"provider without keys":    {`{"providers": {"a": {}}}`, "expected one of local_jwks and remote_jwks"},
		"no usable keys":           {`{"providers": {"a": {"local_jwks": {"inline_string": "{}"}}}}`, "no key"},
		"invalid address":          {`{"providers": {"a": {"remote_jwks": {"http_uri": {"uri": "keys", "cluster": "c"}}}}}`, "uri"},
		"unknown provider":         {`{"rules": [{"requires": {"provider_name": "a"}}]}`, `provider "a" is not defined`},
		"two requirements":         {`{"rules": [{"requires": {"allow_missing": {}, "allow_missing_or_failed": {}}}]}`, "expected one"},
		"empty list":               {`{"rules": [{"requires": {"requires_any": {"requirements": []}}}]}`, "empty"},
		"error in a nested list":   {`{"rules": [{"requires": {"requires_all": {"requirements": [{"requires_any": {"requirements": [{"provider_name": "a"}]}}]}}}]}`, `requirements[0]: requirements[0]: provider "a" is not defined`},
		"nested too deeply":        {`{"rules": [{"requires": ` + strings.Repeat(`{"requires_any": {"requirements": [`, 10) + `{"allow_missing": {}}` + strings.Repeat(`]}}`, 10) + `}]}`, "nested more than 8 deep"},
		"audiences of requirement": {`{"rules": [{"requires": {"provider_and_audiences": {"provider_name": "a"}}}]}`, "provider_and_audiences"},
		"empty requirement":        {`{"rules": [{"requires": {}}]}`, "expected one"},
		"two matches":              {`{"rules": [{"match": {"path": "/a", "prefix": "/b"}}]}`, "prefix and path"},
		"unknown algorithm":        {`{"providers": {"a": {"algorithms": ["none"]}}}`, "algorithms"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}
