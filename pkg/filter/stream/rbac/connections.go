package rbac

import (
	"errors"
	"fmt"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ConnectionConfig is the configuration of the network filter, in the format of Envoy's network
// RBAC v3. It supports the conditions of Config except those on headers, paths and metadata, which
// a connection does not have.
type ConnectionConfig struct {
	Rules        *Rules `key:"rules" doc:"Rules to enforce; absent: none."`
	Shadow       *Rules `key:"shadow_rules" doc:"Rules to count as if they were enforced."`
	Prefix       string `key:"rules_stat_prefix" doc:"Value of the metric label stat_prefix for rules." example:"\"shop\""`
	ShadowPrefix string `key:"shadow_rules_stat_prefix" doc:"Value of the metric label stat_prefix for shadow_rules." example:"\"shop_next\""`

	StatPrefix  string `key:"stat_prefix" doc:"Name of the filter in Envoy's metrics." ignored:"use rules_stat_prefix and shadow_rules_stat_prefix" example:"\"tcp.\""`
	Enforcement string `key:"enforcement_type" doc:"How often Envoy evaluates the rules for a connection." ignored:"the evaluated properties do not change while a connection is open" enum:"ONE_TIME_ON_FIRST_BYTE|CONTINUOUS" example:"\"CONTINUOUS\""`
	Delay       string `key:"delay_deny" doc:"How long Envoy keeps a denied connection open." ignored:"a denied connection is closed immediately" example:"\"1s\""`

	Matcher       map[string]any `key:"matcher" doc:"Envoy's matching tree, instead of rules." unsupported:"matcher" example:"{\"matcher_list\": {}}"`
	ShadowMatcher map[string]any `key:"shadow_matcher" doc:"Envoy's matching tree, instead of shadow_rules." unsupported:"shadow_matcher" example:"{\"matcher_list\": {}}"`
}

// ProtoJSON makes the lowerCamelCase spelling of all keys acceptable, as for Config.
func (*ConnectionConfig) ProtoJSON() {}

// Validate checks the configuration after it was decoded.
func (c *ConnectionConfig) Validate() error {
	if err := rejectMatchers(c.Matcher, c.ShadowMatcher); err != nil {
		return err
	}
	_, _, err := c.compile()
	return err
}

func (c *ConnectionConfig) compile() (enforced, shadow *rules, err error) {
	if enforced, err = c.Rules.compileForConnections("rules"); err != nil {
		return nil, nil, err
	}
	shadow, err = c.Shadow.compileForConnections("shadow_rules")
	return enforced, shadow, err
}

// errRequestCondition rejects conditions on properties of requests. In Envoy, such a condition
// matches no connection, so a DENY rule with it allows every connection.
var errRequestCondition = errors.New("conditions on headers, paths and metadata apply to requests, not to connections")

func (r *Rules) compileForConnections(key string) (*rules, error) {
	compiled, err := r.compile(key)
	if err == nil && compiled != nil && (compiled.readsPath || compiled.readsFields || compiled.readsMetadata) {
		return nil, fmt.Errorf("%s: %w", key, errRequestCondition)
	}
	return compiled, err
}

// ConnectionFactory returns the network filter's factory.
func ConnectionFactory() filter.ConnectionFilterFactory {
	return filter.ConnectionFilterFactory{
		Name:   name,
		Config: func() any { return new(ConnectionConfig) },
		New:    buildConnectionFilter,
		Metrics: []metrics.Metric{
			connectionsAllowedMetric(), connectionsDeniedMetric(), connectionsShadowAllowedMetric(), connectionsShadowDeniedMetric(),
		},
	}
}

func connectionsAllowedMetric() metrics.Metric {
	return filter.Counter(name, "connections_allowed", "Connections that the rules of the network filter rbac allowed.")
}

func connectionsDeniedMetric() metrics.Metric {
	return filter.Counter(name, "connections_denied", "Connections that the network filter rbac denied.")
}

func connectionsShadowAllowedMetric() metrics.Metric {
	return filter.Counter(name, "connections_shadow_allowed", "Connections that the shadow rules of the network filter rbac would have allowed.")
}

func connectionsShadowDeniedMetric() metrics.Metric {
	return filter.Counter(name, "connections_shadow_denied", "Connections that the shadow rules of the network filter rbac would have denied.")
}

func buildConnectionFilter(cfg any, env filter.Env) (filter.ConnectionFilter, error) {
	c := cfg.(*ConnectionConfig) //nolint:forcetypeassert // a value that ConnectionFilterFactory.Config created
	enforced, shadow, err := c.compile()
	if err != nil {
		return nil, err
	}
	f := &rbac{
		enforced: enforced.withCounters(env, connectionsAllowedMetric(), connectionsDeniedMetric(), c.Prefix),
		shadow:   shadow.withCounters(env, connectionsShadowAllowedMetric(), connectionsShadowDeniedMetric(), c.ShadowPrefix),
	}
	return f.evaluateConnection, nil
}

// evaluateConnection implements filter.ConnectionFilter. It evaluates the rules for an empty
// request on conn.
func (f *rbac) evaluateConnection(conn *protocol.ConnMeta) error {
	e := evaluation{x: &protocol.Exchange{}}
	e.x.Meta.Conn = conn
	_, _ = f.evaluate(&f.shadow, &e) // shadow rules only count
	_, err := f.evaluate(&f.enforced, &e)
	return err
}
