package jwtauthn

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Config is the filter's configuration, in Envoy's format.
type Config struct {
	Providers map[string]Provider `key:"providers" doc:"Issuers of tokens, by a name of your choice." example:"{\"corp\": {\"issuer\": \"https://id.corp.test\", \"local_jwks\": {\"filename\": \"keys.json\"}}}"`
	Rules     []Rule              `key:"rules" doc:"Which tokens requests need: the first rule that matches applies. A request that no rule matches needs no token."`

	RequirementMap  map[string]*Requirement `key:"requirement_map" doc:"Requirements that routes select by name." example:"{\"staff\": {\"provider_name\": \"corp\"}}"`
	RequirementName string                  `key:"requirement_name" doc:"In the settings of a route: the requirement of requirement_map that applies instead of the rules. The listener has the providers." example:"\"staff\""`

	ChallengeRealm  bool `key:"challenge_realm" doc:"Adds the URL of the request as realm to WWW-Authenticate." default:"false" example:"true"`
	BypassPreflight bool `key:"bypass_cors_preflight" doc:"Lets CORS preflights pass without a token: browsers do not send one with them." default:"false" example:"true"`
}

// ProtoJSON makes the lowerCamelCase spelling of all keys acceptable, as in MOSN's files.
func (*Config) ProtoJSON() {}

// Provider is an issuer of tokens.
type Provider struct {
	Issuer            string        `key:"issuer" doc:"Required value of iss; empty: any." example:"\"https://id.corp.test\""`
	Audiences         []string      `key:"audiences" doc:"Accepted values of aud, of which the token must have one; empty: any." example:"[\"shop\"]"`
	RequireExpiration bool          `key:"require_expiration" doc:"Rejects tokens without exp." default:"false" example:"true"`
	ClockSkew         time.Duration `key:"clock_skew" doc:"Tolerance for exp and nbf." default:"60s" max:"10m" example:"\"10s\""`
	Local             *LocalJWKS    `key:"local_jwks" doc:"The issuer's key set (RFC 7517), inline or in a file."`
	Remote            *RemoteJWKS   `key:"remote_jwks" doc:"The issuer's key set, fetched over HTTP."`
	FromHeaders       []FromHeader  `key:"from_headers" doc:"Headers that may contain the token. Without from_headers, from_params and from_cookies: Authorization with the prefix Bearer, and the query parameter access_token."`
	FromParams        []string      `key:"from_params" doc:"Query parameters that may contain the token." example:"[\"token\"]"`
	FromCookies       []string      `key:"from_cookies" doc:"Cookies that may contain the token." example:"[\"session\"]"`
	Forward           bool          `key:"forward" doc:"Keeps the token in the headers and the query of the request; otherwise it is removed. A token in a cookie is always kept." default:"false" example:"true"`
	PayloadHeader     string        `key:"forward_payload_header" doc:"Header that passes the claims of the token to the application, in base64url." example:"\"x-claims\""`
	PayloadMetadata   string        `key:"payload_in_metadata" doc:"Stores the claims of the token in the metadata of the request, under this key." example:"\"claims\""`
	Normalize         *Normalize    `key:"normalize_payload_in_metadata" doc:"How to convert claims for the metadata."`
	FailedMetadata    string        `key:"failed_status_in_metadata" doc:"Stores the reason why a token is not valid in the metadata of the request." unsupported:"failed_status_in_metadata" example:"\"failed\""`
	ClaimHeaders      []ClaimHeader `key:"claim_to_headers" doc:"Headers that pass single claims to the application."`
}

// Normalize configures how claims are converted for the metadata. Claim headers are not converted.
type Normalize struct {
	SpaceDelimited []string `key:"space_delimited_claims" doc:"Top-level claims whose text is split into a list of words, such as scope (RFC 8693)." example:"[\"scope\"]"`
}

// LocalJWKS is a key set in the configuration or in a file.
type LocalJWKS struct {
	Inline   string `key:"inline_string" doc:"The key set as text. It may contain a secret." secret:"true" example:"\"{\\\"keys\\\": []}\""`
	Lenient  bool   `key:"accept_without_usable_keys" doc:"Accepts a key set that has no key strong enough to verify signatures; no token of the issuer is valid then." default:"false" example:"true"`
	Filename string `key:"filename" doc:"File with the key set, read when the configuration is loaded." example:"\"keys.json\""`
}

// RemoteJWKS is a key set that Weft fetches.
type RemoteJWKS struct {
	HTTP          HTTPURI       `key:"http_uri" doc:"Location of the key set." required:"true"`
	CacheDuration time.Duration `key:"cache_duration" doc:"How long a key set is used before it is fetched again; requests use the old one meanwhile." default:"5m" min:"1s" example:"\"10m\""`
	StaleDuration time.Duration `key:"stale_duration" doc:"How much longer a key set is used if fetching it again fails." default:"1h" example:"\"24h\""`
}

// HTTPURI is an HTTP resource and the cluster that serves it.
type HTTPURI struct {
	URI     string        `key:"uri" doc:"URL of the key set; its host is the authority of the request, which goes to the cluster." required:"true" example:"\"http://id.corp.test/keys\""`
	Cluster string        `key:"cluster" doc:"Cluster to fetch the key set from, over HTTP/1.1." required:"true" refers:"cluster" example:"\"id\""`
	Timeout time.Duration `key:"timeout" doc:"Timeout of a fetch. Requests that need a key set which Weft is fetching wait at most this long." default:"1s" min:"1ms" max:"1m" example:"\"2s\""`
}

// FromHeader is a header that may contain a token.
type FromHeader struct {
	Name   string `key:"name" doc:"Header name." required:"true" example:"\"x-token\""`
	Prefix string `key:"value_prefix" doc:"Text before the token." example:"\"Bearer \""`
}

// ClaimHeader copies a claim to a header.
type ClaimHeader struct {
	Header string `key:"header_name" doc:"Header name; client headers of this name are removed." required:"true" example:"\"x-user\""`
	Claim  string `key:"claim_name" doc:"Claim; a dot selects a member of an object." required:"true" example:"\"sub\""`
}

// Rule sets the requirement for matching requests.
type Rule struct {
	Match    Match        `key:"match" doc:"Requests that the rule applies to."`
	Requires *Requirement `key:"requires" doc:"Token that the requests need; absent: none."`
}

// Match is a condition on the path without its query. An empty Match matches every path.
type Match struct {
	Prefix   string `key:"prefix" doc:"Start of the path." example:"\"/shop/\""`
	Path     string `key:"path" doc:"The whole path." example:"\"/login\""`
	Segments string `key:"path_separated_prefix" doc:"Whole segments at the start of the path, without a trailing slash." example:"\"/shop\""`
}

// Requirement is a condition on the tokens of a request. Exactly one of its keys is set.
type Requirement struct {
	Provider             string           `key:"provider_name" doc:"A valid token of this provider." example:"\"corp\""`
	Audiences            map[string]any   `key:"provider_and_audiences" doc:"A valid token of this provider, for other audiences." unsupported:"provider_and_audiences"`
	AllowMissing         *struct{}        `key:"allow_missing" doc:"The token may be missing; a token that is not valid is rejected." example:"{}"`
	AllowMissingOrFailed *struct{}        `key:"allow_missing_or_failed" doc:"The token may be missing or not valid; the claims of valid tokens are passed on." example:"{}"`
	Any                  *RequirementList `key:"requires_any" doc:"At least one of several requirements."`
	All                  *RequirementList `key:"requires_all" doc:"All of several requirements."`
}

// RequirementList is a list of requirements.
type RequirementList struct {
	Requirements []Requirement `key:"requirements" doc:"The requirements." required:"true"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		p := c.Providers[name]
		if err := p.validate(); err != nil {
			return fmt.Errorf("providers.%s: %w", name, err)
		}
	}
	for i := range c.Rules {
		if err := c.Rules[i].validate(c.Providers); err != nil {
			return fmt.Errorf("rules[%d]: %w", i, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.RequirementMap)) {
		if r := c.RequirementMap[name]; r != nil {
			if err := r.validate(c.Providers, 0); err != nil {
				return fmt.Errorf("requirement_map.%s: %w", name, err)
			}
		}
	}
	if c.RequirementName != "" && (len(c.Providers) > 0 || len(c.Rules) > 0 || len(c.RequirementMap) > 0) {
		return errors.New("requirement_name is mutually exclusive with the other keys")
	}
	return nil
}

// inherit implements filter.StreamFilterFactory.Inherit. A route with a requirement_name has the
// settings of the listener, except that the requirement applies to all requests.
func inherit(listenerConfig, routeConfig any) any {
	listener, listenerOK := listenerConfig.(*Config)
	route, routeOK := routeConfig.(*Config)
	if !listenerOK || !routeOK || route.RequirementName == "" {
		return routeConfig
	}
	merged := *listener
	requirement, defined := listener.RequirementMap[route.RequirementName]
	if !defined {
		requirement = &Requirement{Any: &RequirementList{}} // no token can satisfy it
	}
	merged.Rules = []Rule{{Requires: requirement}}
	return &merged
}

func (p *Provider) validate() error {
	if (p.Local == nil) == (p.Remote == nil) {
		return errors.New("expected one of local_jwks and remote_jwks")
	}
	if l := p.Local; l != nil {
		if (l.Inline == "") == (l.Filename == "") {
			return errors.New("local_jwks: expected one of inline_string and filename")
		}
		if l.Inline != "" {
			if _, err := l.keys(); err != nil {
				return err
			}
		}
		return nil
	}
	u, err := url.Parse(p.Remote.HTTP.URI)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("remote_jwks.http_uri.uri: %q is not a valid http or https URL", p.Remote.HTTP.URI)
	}
	return nil
}

func (l *LocalJWKS) keys() (keySet, error) {
	text := []byte(l.Inline)
	if l.Inline == "" {
		var err error
		if text, err = os.ReadFile(l.Filename); err != nil {
			return nil, fmt.Errorf("local_jwks: %w", err)
		}
	}
	set, err := parseKeys(text)
	if l.Lenient && errors.Is(err, errUnusable) {
		return keySet{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("local_jwks: %w", err)
	}
	return set, nil
}

func (r *Rule) validate(providers map[string]Provider) error {
	if err := r.Match.validate(); err != nil {
		return fmt.Errorf("match: %w", err)
	}
	if r.Requires == nil {
		return nil
	}
	if err := r.Requires.validate(providers, 0); err != nil {
		return fmt.Errorf("requires: %w", err)
	}
	return nil
}

// maxDepth is the maximum nesting depth of requirement lists.
const maxDepth = 8

// validate checks r, which is nested in depth lists.
func (r *Requirement) validate(providers map[string]Provider, depth int) error {
	count := 0
	for _, isSet := range []bool{r.Provider != "", r.AllowMissing != nil, r.AllowMissingOrFailed != nil, r.Any != nil, r.All != nil} {
		if isSet {
			count++
		}
	}
	switch _, defined := providers[r.Provider]; {
	case count != 1:
		return errors.New("expected one key of provider_name, allow_missing, allow_missing_or_failed, requires_any and requires_all")
	case r.Provider != "" && !defined:
		return fmt.Errorf("provider %q is not defined", r.Provider)
	case depth > maxDepth:
		return fmt.Errorf("lists are nested more than %d deep", maxDepth)
	}
	for _, list := range []*RequirementList{r.Any, r.All} {
		if list == nil {
			continue
		}
		if len(list.Requirements) == 0 {
			return errors.New("requirements is empty")
		}
		for i := range list.Requirements {
			if err := list.Requirements[i].validate(providers, depth+1); err != nil {
				return fmt.Errorf("requirements[%d]: %w", i, err)
			}
		}
	}
	return nil
}

// providerNames appends the names of the providers that r and its lists refer to.
func (r *Requirement) providerNames(names []string) []string {
	if r.Provider != "" {
		names = append(names, r.Provider)
	}
	for _, list := range []*RequirementList{r.Any, r.All} {
		if list != nil {
			for i := range list.Requirements {
				names = list.Requirements[i].providerNames(names)
			}
		}
	}
	return names
}

func (m *Match) validate() error {
	count := 0
	for _, value := range []string{m.Prefix, m.Path, m.Segments} {
		if value != "" {
			count++
		}
	}
	switch {
	case count > 1:
		return errors.New("expected one of path_separated_prefix, prefix and path")
	case m.Segments != "" && (m.Segments[0] != '/' || strings.HasSuffix(m.Segments, "/") || strings.ContainsAny(m.Segments, "?#")):
		return fmt.Errorf("path_separated_prefix: %q is not a valid prefix: expected a leading slash, no trailing slash and no query", m.Segments)
	}
	return nil
}

// matches reports whether path matches m.
func (m *Match) matches(path string) bool {
	if m.Path != "" {
		return path == m.Path
	}
	if m.Segments != "" {
		rest, ok := strings.CutPrefix(path, m.Segments)
		return ok && (rest == "" || rest[0] == '/')
	}
	return strings.HasPrefix(path, m.Prefix)
}
