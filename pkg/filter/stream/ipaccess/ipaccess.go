// Package ipaccess implements the ip_access filter, which allows or denies requests by the address
// of the client.
package ipaccess

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Config is the filter's configuration. The first list that contains the address decides.
type Config struct {
	Default     string `key:"default_action" doc:"Action for requests whose address is in no list." enum:"allow|deny" default:"allow" example:"\"deny\""`
	Header      string `key:"header" doc:"Header with the client address; of a list, the last address. Empty: the client address that the listener determines. Absent from the request: the remote address of the connection. Set it only if clients cannot write the header themselves." example:"\"x-real-ip\""`
	TrustedHops int    `key:"xff_num_trusted_hops" doc:"Number of trusted proxies at the end of header: the address before theirs is used." min:"0" max:"100" default:"0" example:"1"`
	Lists       []List `key:"ips" doc:"Address lists, in order."`
}

// List configures the action for a list of addresses.
type List struct {
	Action    string   `key:"action" doc:"Action for requests from these addresses." enum:"allow|deny" default:"allow" example:"\"deny\""`
	Addresses []string `key:"addrs" doc:"Addresses and ranges in CIDR notation." example:"[\"10.0.0.0/8\", \"192.0.2.7\"]"`
}

const actionDeny = "deny"

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if c.TrustedHops > 0 && c.Header == "" {
		return &document.KeyError{Key: "xff_num_trusted_hops", Err: errors.New("xff_num_trusted_hops requires header")}
	}
	_, err := compile(c.Lists)
	return err
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:    "ip_access",
		Stage:   filter.BeforeRoute,
		Config:  func() any { return new(Config) },
		New:     build,
		Metrics: []metrics.Metric{deniedMetric()},
	}
}

func deniedMetric() metrics.Metric {
	return metrics.Metric{Name: "weft_filter_ip_access_denied_total", Help: "Requests that the ip_access filter rejected.", Kind: metrics.KindCounter}
}

func build(cfg any, env filter.Env) (filter.Filter, error) {
	c := cfg.(*Config) //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
	lists, err := compile(c.Lists)
	if err != nil {
		return nil, err
	}
	denied := env.Metrics.Counter(deniedMetric())
	return func(next protocol.Service) protocol.Service {
		return &ipAccess{
			client:         match.NewClientAddr(c.Header, c.TrustedHops),
			lists:          lists,
			deniesUnlisted: c.Default == actionDeny,
			denied:         denied,
			next:           next,
		}
	}, nil
}

// list is a compiled List.
type list struct {
	addresses match.CIDRSet
	deny      bool
}

func compile(configs []List) ([]list, error) {
	lists := make([]list, len(configs))
	for i, l := range configs {
		prefixes := make([]netip.Prefix, len(l.Addresses))
		for j, text := range l.Addresses {
			var err error
			if prefixes[j], err = match.ParsePrefix(text); err != nil {
				return nil, fmt.Errorf("ips[%d].addrs[%d]: %w", i, j, err)
			}
		}
		lists[i] = list{match.NewCIDRSet(prefixes), l.Action == actionDeny}
	}
	return lists, nil
}

// ipAccess is immutable; only its counter changes.
type ipAccess struct {
	client         match.ClientAddr
	lists          []list
	deniesUnlisted bool
	denied         *metrics.Counter
	next           protocol.Service
}

// Start implements protocol.Service.
func (a *ipAccess) Start(ctx context.Context, x *protocol.Exchange) error {
	if err := a.evaluate(x); err != nil {
		a.denied.Add(1)
		return protocol.NewFault(protocol.ReasonDenied, err)
	}
	return a.next.Start(ctx, x)
}

// evaluate returns the error that denies x, or nil if x is allowed. It denies a client without an
// address.
func (a *ipAccess) evaluate(x *protocol.Exchange) error {
	addr, err := a.client.Address(x)
	switch {
	case err != nil:
		return errors.New("ip_access: the header has no valid client address")
	case !addr.IsValid():
		return errors.New("ip_access: the client has no IP address")
	}
	for i := range a.lists {
		if !a.lists[i].addresses.Contains(addr) {
			continue
		}
		if a.lists[i].deny {
			return fmt.Errorf("ip_access: %v is denied by ips[%d]", addr, i)
		}
		return nil
	}
	if a.deniesUnlisted {
		return fmt.Errorf("ip_access: %v is not in any list", addr)
	}
	return nil
}
