package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
)

// Features of the filters that control access.

const otherOrigin = "Origin: https://other.test"

func (p *protocolPair) cors() feature {
	anyOrigin := object{"allow_origin_string_match": list{object{"exact": "*"}}}
	const (
		origin    = "Origin: https://pages.test"
		preflight = "Access-Control-Request-Method: PUT"
		allowed   = "Access-Control-Allow-Origin"
	)
	return feature{
		name: "cors",
		filters: list{streamFilter("cors", object{
			"allow_origin_string_match": list{object{"exact": "https://pages.test"}}, "allow_methods": "GET, PUT", "max_age": "600",
			"forward_not_matching_preflights": false,
		})},
		routes: []object{routeWithFilter("/public", "cors", anyOrigin), routeTo("/dead", "dead")},
		cases: []requestCase{
			{name: "allowed origin", path: "/", fields: []string{origin}, status: 200,
				wantHeaders: map[string]string{allowed: "https://pages.test", "Vary": "Origin", "X-App": "app"}},
			{name: "other origin", path: "/", fields: []string{otherOrigin}, status: 200,
				wantHeaders: map[string]string{allowed: "", "Vary": "Origin", "X-App": "app"}},
			{name: "route for any origin", path: "/public", fields: []string{otherOrigin}, status: 200, wantHeaders: map[string]string{allowed: "https://other.test"}},
			{name: "preflight", method: "OPTIONS", path: "/", fields: []string{origin, preflight}, status: 200,
				wantHeaders: map[string]string{allowed: "https://pages.test", "Access-Control-Allow-Methods": "GET, PUT", "Access-Control-Max-Age": "600", "X-App": ""}},
			{name: "preflight of another origin", method: "OPTIONS", path: "/", fields: []string{otherOrigin, preflight}, status: 200,
				wantHeaders: map[string]string{allowed: "", "X-App": ""}},
			{name: "error response", path: "/dead", fields: []string{origin}, status: 502, reason: "connect_failure",
				wantHeaders: map[string]string{allowed: "https://pages.test"}},
			{name: "no origin", path: "/", status: 200, code: "0", wantHeaders: map[string]string{allowed: "", "X-App": "app"}},
		},
	}
}

func (p *protocolPair) csrf() feature {
	return feature{
		name:    "csrf",
		filters: list{streamFilter("csrf", object{"additional_origins": list{object{"exact": "pages.test"}}})},
		routes:  []object{routeWithFilter("/open", "csrf", object{"filter_enabled": object{"default_value": object{"numerator": 0}}})},
		cases: []requestCase{
			{name: "safe method", path: "/", fields: []string{otherOrigin}, status: 200},
			{name: "same origin", method: "POST", path: "/", requestBody: "a", fields: []string{"Origin: http://shop.test"}, status: 200, code: "0", body: "a"},
			{name: "additional origin", method: "POST", path: "/", requestBody: "a", fields: []string{"Origin: https://pages.test"}, status: 200, code: "0", body: "a"},
			{name: "Referer", method: "PUT", path: "/", fields: []string{"Referer: http://shop.test/page"}, status: 200, code: "0"},
			{name: "other origin", method: "POST", path: "/", requestBody: "a", fields: []string{otherOrigin}, status: 403, code: "7", reason: "denied"},
			{name: "no origin", method: "POST", path: "/", requestBody: "a", status: 403, code: "7", reason: "denied"},
			{name: "route without the filter", method: "POST", path: "/open", requestBody: "a", status: 200, code: "0", body: "a"},
		},
	}
}

func (p *protocolPair) ipAccess() feature {
	return feature{
		name: "ip_access",
		filters: list{streamFilter("ip_access", object{"default_action": "deny", "header": "x-real-ip", "ips": list{
			object{"action": "deny", "addrs": list{"10.0.0.66"}}, object{"action": "allow", "addrs": list{"10.0.0.0/8"}}}})},
		cases: []requestCase{
			{name: "allowed address", path: "/", fields: []string{"X-Real-Ip: 10.1.2.3"}, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
			{name: "excluded address", path: "/", fields: []string{"X-Real-Ip: 10.0.0.66"}, status: 403, code: "7", reason: "denied"},
			{name: "address that is not allowed", method: "POST", path: "/", requestBody: "lost", fields: []string{"X-Real-Ip: 192.0.2.1"}, status: 403, code: "7", reason: "denied"},
			{name: "invalid address", path: "/", fields: []string{"X-Real-Ip: unknown"}, status: 403, code: "7", reason: "denied"},
			{name: "address of the connection", path: "/", status: 403, code: "7", reason: "denied"},
		},
	}
}

// policy returns an rbac configuration with one policy: action for requests of any principal that
// match permission.
func policy(action string, permission object) object {
	return object{"rules": object{"action": action, "policies": object{"policy": object{
		"permissions": list{permission}, "principals": list{object{"any": true}}}}}}
}

func (p *protocolPair) rbac() feature {
	path := object{"url_path": object{"path": object{"prefix": "/admin"}}}
	return feature{
		name:    "rbac",
		filters: list{streamFilter("rbac", policy("ALLOW", object{"header": object{"name": "x-tenant", "string_match": object{"exact": "blue"}}}))},
		routes:  []object{routeWithFilter("/admin", "rbac", policy("DENY", path)), routeWithFilter("/open", "rbac", object{})},
		cases: []requestCase{
			{name: "matching request", path: "/", fields: []string{"X-Tenant: blue"}, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
			{name: "other request", path: "/", fields: []string{"X-Tenant: green"}, status: 403, code: "7", reason: "denied"},
			{name: "with body", method: "POST", path: "/", requestBody: "lost", status: 403, code: "7", reason: "denied"},
			{name: "route with its own config", path: "/admin/a", fields: []string{"X-Tenant: blue"}, status: 403, code: "7", reason: "denied"},
			{name: "ambiguous path", path: "/admin/../a", status: 403, code: "7", reason: "denied"},
			{name: "route without the filter", path: "/open", status: 200, code: "0"},
		},
	}
}

// headerToMetadata verifies the metadata with an rbac policy.
func (p *protocolPair) headerToMetadata() feature {
	green := object{"metadata": object{"filter": "shop", "path": list{object{"key": "tenant"}}, "value": object{"string_match": object{"exact": "green"}}}}
	return feature{
		name: "header_to_metadata",
		filters: list{
			streamFilter("header_to_metadata", object{"request_rules": list{object{
				"header": "x-tenant", "on_header_present": object{"metadata_namespace": "shop", "key": "tenant"}, "remove": true,
			}}}),
			streamFilter("rbac", policy("DENY", green)),
		},
		cases: []requestCase{
			{name: "rejected value", path: "/", fields: []string{"X-Tenant: green"}, status: 403, code: "7", reason: "denied"},
			{name: "other value", path: "/", fields: []string{"X-Tenant: blue"}, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app", "Got-X-Tenant": ""}},
			{name: "no header", path: "/", status: 200, code: "0"},
		},
	}
}

// localRateLimit verifies token buckets that are not refilled during the test.
func (p *protocolPair) localRateLimit() feature {
	tokens := func(n int) object {
		return object{"token_bucket": object{"max_tokens": n, "fill_interval": "1h"}}
	}
	headers := list{object{"header": object{"key": "x-limited", "value": "yes"}}}
	return feature{
		name:    "local_ratelimit",
		filters: list{streamFilter("local_ratelimit", tokens(3).with(object{"response_headers_to_add": headers}))},
		routes: []object{
			routeWithFilter("/status", "local_ratelimit", tokens(1).with(object{"status": object{"code": 503}})),
			routeWithFilter("/open", "local_ratelimit", object{}),
		},
		cases: []requestCase{
			{name: "within the limit", path: "/", times: 3, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app", "X-Limited": ""}},
			{name: "above the limit", path: "/", status: 429, reason: "rate_limited", wantHeaders: map[string]string{"X-App": "", "X-Limited": "yes"}},
			{name: "above the limit, with body", method: "POST", path: "/", requestBody: "lost", status: 429, code: "14", reason: "rate_limited"},
			{name: "limit of a route", path: "/status", status: 200, code: "0"},
			{name: "other status", path: "/status", status: 503, code: "14", reason: "rate_limited"},
			{name: "route without the filter", path: "/open", times: 4, status: 200, code: "0"},
		},
	}
}

// signJWT returns a JWT (RFC 7519) with claims, which are JSON, signed with secret by HS256.
func signJWT(claims, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256"}`)) + "." + encode([]byte(claims))
	signature := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(signature, text) // never fails
	return text + "." + encode(signature.Sum(nil))
}

func (p *protocolPair) jwtAuthn() feature {
	const secret, jason = "0123456789abcdef0123456789abcdef", `{"iss":"id.test","sub":"jason"}`
	keys := fmt.Sprintf(`{"keys":[{"kty":"oct","alg":"HS256","k":%q}]}`, base64.RawURLEncoding.EncodeToString([]byte(secret)))
	bearer := func(jwt string) []string { return []string{"Authorization: Bearer " + jwt, "X-User: forged"} }
	return feature{
		name: "jwt_authn",
		filters: list{streamFilter("jwt_authn", object{
			"providers": object{"corp": object{
				"issuer": "id.test", "local_jwks": object{"inline_string": keys},
				"claim_to_headers": list{object{"header_name": "x-user", "claim_name": "sub"}},
			}},
			"rules": list{object{"match": object{"prefix": "/open"}}, object{"requires": object{"provider_name": "corp"}}},
		})},
		cases: []requestCase{
			{name: "valid token", path: "/", fields: bearer(signJWT(jason, secret)), status: 200, code: "0",
				wantHeaders: map[string]string{"Got-X-User": "jason", "Got-Authorization": ""}},
			{name: "with body", method: "POST", path: "/", requestBody: "kept", fields: bearer(signJWT(jason, secret)), status: 200, code: "0", body: "kept"},
			{name: "no token", path: "/", status: 401, reason: "unauthenticated", wantHeaders: map[string]string{"Www-Authenticate": "Bearer", "X-App": ""}},
			{name: "call without a token", path: "/", code: "16", reason: "unauthenticated", wantHeaders: map[string]string{"X-App": ""}},
			{name: "other key", path: "/", fields: bearer(signJWT(jason, "another")), status: 401, code: "16", reason: "unauthenticated"},
			{name: "other issuer", path: "/", fields: bearer(signJWT(`{"iss":"other.test"}`, secret)), status: 401, code: "16", reason: "unauthenticated"},
			{name: "expired token", path: "/", fields: bearer(signJWT(`{"iss":"id.test","exp":1}`, secret)), status: 401, code: "16", reason: "unauthenticated"},
			{name: "path without a rule", path: "/open", fields: []string{"X-User: forged"}, status: 200, code: "0", wantHeaders: map[string]string{"Got-X-User": ""}},
		},
	}
}
