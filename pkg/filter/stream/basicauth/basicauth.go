// Package basicauth implements the basic_auth filter, which rejects requests without the name and
// the password of a user (RFC 7617).
package basicauth

import (
	"context"
	"crypto/sha1" //nolint:gosec // the format of htpasswd
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration.
type Config struct {
	Users Users `key:"users" doc:"The users." required:"true"`

	ForwardUser  string `key:"forward_username_header" doc:"Header of the request that gets the name of the user; the filter removes it from requests of clients. Empty: none." example:"\"x-user\""`
	Header       string `key:"authentication_header" doc:"Header of the request with the credentials." default:"authorization" example:"\"x-authorization\""`
	AllowMissing bool   `key:"allow_missing" doc:"Lets requests without credentials of the scheme Basic pass, for example to another filter that authenticates." default:"false" example:"true"`
	Realm        string `key:"realm" doc:"Realm of the challenge to rejected clients. Empty: the URL of the request." example:"\"shop\""`

	// Inherit takes all settings but the users from the listener, as Envoy's routes do.
	Inherit bool `key:"inherit" doc:"In the settings of a route. true: only users replaces the settings of the listener. false: the settings of the route replace them." default:"false" example:"true"`
}

// Users configures users.
type Users struct {
	Inline   string `key:"inline_string" doc:"Lines of a name, a colon and the hash of a password, as \"htpasswd -s\" writes them: NAME:{SHA}HASH." secret:"true" example:"\"alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\""`
	Filename string `key:"filename" doc:"File with such lines, read when the configuration is loaded." example:"\"users.htpasswd\""`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.Users.load()
	return err
}

// inherit implements filter.StreamFilterFactory.Inherit.
func inherit(listenerConfig, routeConfig any) any {
	listener, listenerOK := listenerConfig.(*Config)
	route, routeOK := routeConfig.(*Config)
	if !listenerOK || !routeOK || !route.Inherit {
		return routeConfig
	}
	merged := *listener
	merged.Users = route.Users
	return &merged
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "basic_auth",
		Stage:   filter.AfterRoute,
		Config:  func() any { return new(Config) },
		Inherit: inherit,
		New:     build,
		Metrics: []metrics.Metric{allowedMetric(), deniedMetric()},
	}
}

func allowedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_basic_auth_allowed_total", Help: "Requests that the basic_auth filter allowed.", Kind: metrics.KindCounter}
}

func deniedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_basic_auth_denied_total", Help: "Requests that the basic_auth filter rejected.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := *cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	users, err := c.Users.load()
	if err != nil {
		return nil, err
	}
	allowed, denied := env.Metrics.Counter(allowedMetric()), env.Metrics.Counter(deniedMetric())
	return func(next protocol.Service) protocol.Service { return &basicAuth{c, users, allowed, denied, next} }, nil
}

// basicAuth is immutable; only its counters change.
type basicAuth struct {
	config          Config
	users           users
	allowed, denied *metrics.Counter
	next            protocol.Service
}

// Start implements protocol.Service.
func (b *basicAuth) Start(ctx context.Context, x *protocol.Exchange) error {
	name, err := b.authenticate(&x.Request.Header)
	isMissing := errors.Is(err, errMissing) || errors.Is(err, errScheme)
	if err != nil && !(b.config.AllowMissing && isMissing) {
		b.denied.Add(1)
		b.reject(x, err)
		return nil
	}
	b.allowed.Add(1)
	if header := b.config.ForwardUser; header != "" {
		x.Request.Header.DelFunc(func(field string) bool { return protocol.EqualFoldUnderscore(field, header) })
		if name != "" {
			x.Request.Header.Add(header, name)
		}
	}
	return b.next.Start(ctx, x)
}

// Reasons for a rejection.
var (
	errMissing   = errors.New("basic_auth: the request has no credentials")
	errScheme    = errors.New("basic_auth: the credentials do not have the scheme Basic")
	errMalformed = errors.New("basic_auth: the credentials are malformed")
	errWrong     = errors.New("basic_auth: the user is unknown, or the password is wrong")
)

// authenticate returns the name of the user, or the reason to reject a request.
func (b *basicAuth) authenticate(h *protocol.Header) (name string, err error) {
	value, count := "", 0
	for field, v := range h.All() {
		if protocol.EqualFold(field, b.config.Header) {
			value, count = v, count+1
		}
	}
	encoded, isBasic := strings.CutPrefix(value, "Basic ")
	switch {
	case count == 0:
		return "", errMissing
	case count > 1:
		return "", errMalformed // another program might use another one of them
	case !isBasic:
		return "", errScheme
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", errMalformed
	}
	name, password, ok := strings.Cut(string(decoded), ":")
	switch {
	case !ok:
		return "", errMalformed
	case !b.users.has(name, password):
		return "", errWrong
	}
	return name, nil
}

func (b *basicAuth) reject(x *protocol.Exchange, err error) {
	x.LocalReplyError(protocol.NewFault(protocol.Unauthenticated, err))
	realm := b.config.Realm
	if realm == "" {
		realm = filter.RequestURL(x)
	}
	x.Response.Header.Add("WWW-Authenticate", `Basic realm="`+realm+`"`)
}

// users holds the hash of the password of each user.
type users map[string][sha1.Size]byte

// has reports whether password is that of the user called name.
func (u users) has(name, password string) bool {
	want, known := u[name]
	hash := sha1.Sum([]byte(password)) //nolint:gosec // the format of htpasswd
	return subtle.ConstantTimeCompare(hash[:], want[:]) == 1 && known
}
