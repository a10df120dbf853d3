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
	Providers map[string]Provider `key:"providers" doc:"Who issues tokens, by a name of your own." example:"{\"corp\": {\"issuer\": \"https://id.corp.test\", \"local_jwks\": {\"filename\": \"keys.json\"}}}"`
	Rules     []Rule              `key:"rules" doc:"What requests must carry: the first rule that matches says. A request that none matches needs nothing."`

	BypassPreflight bool `key:"bypass_cors_preflight" doc:"CORS preflights need no token: browsers send none with them." default:"false" example:"true"`
}

// Provider is an issuer of tokens.
type Provider struct {
	Issuer            string        `key:"issuer" doc:"What iss must be; empty: anything." example:"\"https://id.corp.test\""`
	Audiences         []string      `key:"audiences" doc:"Of which aud must have one; empty: anything." example:"[\"shop\"]"`
	RequireExpiration bool          `key:"require_expiration" doc:"Refuses tokens without exp." default:"false" example:"true"`
	ClockSkew         time.Duration `key:"clock_skew" doc:"By how much exp and nbf may be missed." default:"60s" max:"10m" example:"\"10s\""`
	Local             *LocalJWKS    `key:"local_jwks" doc:"The issuer's keys (RFC 7517), here."`
	Remote            *RemoteJWKS   `key:"remote_jwks" doc:"The issuer's keys, fetched."`
	FromHeaders       []FromHeader  `key:"from_headers" doc:"Fields that may have the token. Without this and the next two: Authorization, behind Bearer, and the parameter access_token."`
	FromParams        []string      `key:"from_params" doc:"Parameters of the query that may have it." example:"[\"token\"]"`
	FromCookies       []string      `key:"from_cookies" doc:"Cookies that may have it." example:"[\"session\"]"`
	Forward           bool          `key:"forward" doc:"Leaves the token in the fields and the query of the request; else it is removed from them. In a cookie it stays." default:"false" example:"true"`
	PayloadHeader     string        `key:"forward_payload_header" doc:"Field that tells the application the token's claims, in base64url." example:"\"x-claims\""`
	PayloadMetadata   string        `key:"payload_in_metadata" doc:"Makes the token's claims metadata of the request, under this key." example:"\"claims\""`
	Normalize         *Normalize    `key:"normalize_payload_in_metadata" doc:"How claims in the metadata differ from those of the token."`
	FailedMetadata    string        `key:"failed_status_in_metadata" doc:"Makes it metadata of the request why a token is bad." unbuilt:"failed_status_in_metadata" example:"\"failed\""`
	ClaimHeaders      []ClaimHeader `key:"claim_to_headers" doc:"Fields that tell the application single claims."`
}

// Normalize changes claims in the metadata. Headers made of claims keep the form of the token.
type Normalize struct {
	SpaceDelimited []string `key:"space_delimited_claims" doc:"Claims, not those in objects, whose text becomes a list of its words, as that of scope (RFC 8693)." example:"[\"scope\"]"`
}

// LocalJWKS is a set of keys that is part of the configuration.
type LocalJWKS struct {
	Inline   string `key:"inline_string" doc:"The set itself; it is not printed, for it may hold a secret." secret:"true" example:"\"{\\\"keys\\\": []}\""`
	Lenient  bool   `key:"accept_without_usable_keys" doc:"A set without a key that is strong enough to verify signatures is no error: then no token of the issuer is valid." default:"false" example:"true"`
	Filename string `key:"filename" doc:"The file that has it, read when the configuration is." example:"\"keys.json\""`
}

// RemoteJWKS is a set of keys that is fetched.
type RemoteJWKS struct {
	HTTP     HTTPURI       `key:"http_uri" doc:"Where it is." required:"true"`
	Duration time.Duration `key:"cache_duration" doc:"After this it is fetched again, while requests go on with what there is." default:"5m" min:"1s" example:"\"10m\""`
	Stale    time.Duration `key:"stale_duration" doc:"How much longer it is used if it cannot be fetched again." default:"1h" example:"\"24h\""`
}

// HTTPURI is an HTTP resource and the cluster that serves it.
type HTTPURI struct {
	URI     string        `key:"uri" doc:"Its address; the host is what is asked for, the cluster who is asked." required:"true" example:"\"http://id.corp.test/keys\""`
	Cluster string        `key:"cluster" doc:"The cluster that is asked, by HTTP/1.1." required:"true" example:"\"id\""`
	Timeout time.Duration `key:"timeout" doc:"How long the answer may take: as long a first request waits." default:"1s" min:"1ms" max:"1m" example:"\"2s\""`
}

// FromHeader is a header that may contain a token.
type FromHeader struct {
	Name   string `key:"name" doc:"Field name." required:"true" example:"\"x-token\""`
	Prefix string `key:"value_prefix" doc:"What stands before the token." example:"\"Bearer \""`
}

// ClaimHeader copies a claim to a header.
type ClaimHeader struct {
	Header string `key:"header_name" doc:"Field name; what callers send under it is removed." required:"true" example:"\"x-user\""`
	Claim  string `key:"claim_name" doc:"Claim; a member of an object behind a point." required:"true" example:"\"sub\""`
}

// Rule sets the requirement for matching requests.
type Rule struct {
	Match    Match        `key:"match" doc:"Which requests."`
	Requires *Requirement `key:"requires" doc:"What they must carry; absent: nothing."`
}

// Match is a condition on the path without its query. An empty Match matches every path.
type Match struct {
	Prefix   string `key:"prefix" doc:"What the path begins with." example:"\"/shop/\""`
	Path     string `key:"path" doc:"The whole path." example:"\"/login\""`
	Segments string `key:"path_separated_prefix" doc:"Whole segments that the path begins with, without a slash at the end." example:"\"/shop\""`
}

// Requirement is a condition on the tokens of a request. Exactly one of its keys is set.
type Requirement struct {
	Provider      string           `key:"provider_name" doc:"A good token of this provider." example:"\"corp\""`
	Audiences     map[string]any   `key:"provider_and_audiences" doc:"The same, for other audiences." unbuilt:"provider_and_audiences"`
	AllowMissing  *struct{}        `key:"allow_missing" doc:"No token at all; a bad one is refused." example:"{}"`
	MissingFailed *struct{}        `key:"allow_missing_or_failed" doc:"Anything; what good tokens say is passed on." example:"{}"`
	Any           *RequirementList `key:"requires_any" doc:"One of several."`
	All           *RequirementList `key:"requires_all" doc:"All of several."`
}

// RequirementList is a list of requirements.
type RequirementList struct {
	Requirements []Requirement `key:"requirements" doc:"The list." required:"true"`
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
	return nil
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
		return fmt.Errorf("remote_jwks.http_uri.uri: %q is no address of HTTP", p.Remote.HTTP.URI)
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

// deepest is the maximum nesting depth of lists.
const deepest = 8

// validate checks r, which is nested in this many lists.
func (r *Requirement) validate(providers map[string]Provider, lists int) error {
	ways := 0
	for _, set := range []bool{r.Provider != "", r.AllowMissing != nil, r.MissingFailed != nil, r.Any != nil, r.All != nil} {
		if set {
			ways++
		}
	}
	switch _, known := providers[r.Provider]; {
	case ways != 1:
		return errors.New("expected one key of provider_name, allow_missing, allow_missing_or_failed, requires_any and requires_all")
	case r.Provider != "" && !known:
		return fmt.Errorf("there is no provider %q", r.Provider)
	case lists > deepest:
		return fmt.Errorf("more than %d lists are inside one another", deepest)
	}
	for _, list := range []*RequirementList{r.Any, r.All} {
		if list == nil {
			continue
		}
		if len(list.Requirements) == 0 {
			return errors.New("the list is empty")
		}
		for i := range list.Requirements {
			if err := list.Requirements[i].validate(providers, lists+1); err != nil {
				return fmt.Errorf("requirements[%d]: %w", i, err)
			}
		}
	}
	return nil
}

// named appends the names of the providers that r and its lists refer to.
func (r *Requirement) named(names []string) []string {
	if r.Provider != "" {
		names = append(names, r.Provider)
	}
	for _, list := range []*RequirementList{r.Any, r.All} {
		if list != nil {
			for i := range list.Requirements {
				names = list.Requirements[i].named(names)
			}
		}
	}
	return names
}

func (m *Match) validate() error {
	ways := 0
	for _, set := range []string{m.Prefix, m.Path, m.Segments} {
		if set != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("expected one of path_separated_prefix, prefix and path")
	case m.Segments != "" && (m.Segments[0] != '/' || strings.HasSuffix(m.Segments, "/") || strings.ContainsAny(m.Segments, "?#")):
		return fmt.Errorf("path_separated_prefix: %q is not made of segments", m.Segments)
	}
	return nil
}

// holds reports whether path matches m.
func (m *Match) holds(path string) bool {
	if m.Path != "" {
		return path == m.Path
	}
	if m.Segments != "" {
		rest, ok := strings.CutPrefix(path, m.Segments)
		return ok && (rest == "" || rest[0] == '/')
	}
	return strings.HasPrefix(path, m.Prefix)
}
