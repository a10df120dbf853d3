// Package status reports what an xDS client has received and applied: as a summary, as Envoy's
// config dump, and with Envoy's Client Status Discovery Service (CSDS).
package status

import (
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/cache"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// Status is the status of a client and its control planes.
type Status struct {
	Node          string         `json:"node"` // node ID
	ControlPlanes []ControlPlane `json:"control_planes"`
	// Warming are the accepted resources that are not active yet.
	Warming []state.WarmingResource `json:"warming"`
	Cache   cache.Status            `json:"cache"` // xDS cache on disk
	// OnDemand is the status of resources that are fetched on demand; nil: on-demand loading is
	// off.
	OnDemand *state.OnDemandStatus `json:"on_demand,omitempty"`
}

// ControlPlane is the status of the connection to one control plane.
type ControlPlane struct {
	Name      string    `json:"name"` // name of the cluster of the control plane
	Mode      string    `json:"mode"` // ModeDelta or ModeSotW
	Serves    string    `json:"serves"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"` // when Connected last changed or the first attempt failed; zero: neither yet
	// Failure is the last connection error; "" while connected. Attempts counts the failures since the
	// last connection.
	Failure  string `json:"failure,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	Types    []Type `json:"types"` // types that the control plane serves
}

// The values of ControlPlane.Mode and ControlPlane.Serves.
const (
	ModeDelta     = "delta"
	ModeSotW      = "state of the world"
	ServesAll     = "everything"
	ServesSecrets = "secrets"
)

// Type is the status of one resource type of a control plane.
type Type struct {
	Type      string   `json:"type"`              // type URL
	Version   string   `json:"version,omitempty"` // version of the last response that was accepted as a whole
	Wildcard  bool     `json:"wildcard"`          // subscribed to all resources of the type
	Requested int      `json:"requested"`         // resources subscribed by name
	Resources int      `json:"resources"`         // accepted resources
	Missing   []string `json:"missing,omitempty"` // subscribed by name, but not accepted

	Accepted          *Ack               `json:"accepted,omitempty"` // last ACK; nil: none
	Rejected          *Ack               `json:"rejected,omitempty"` // last NACK; nil: none
	RejectedResources []RejectedResource `json:"rejected_resources,omitempty"`
	Changed           time.Time          `json:"changed,omitzero"` // when a resource was last accepted
}

// Short returns the type without its package: "Cluster".
func (t *Type) Short() string { return shortType(t.Type) }

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// Ack is an ACK or NACK of a response.
type Ack struct {
	Version string    `json:"version"` // version of the response
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"` // why resources were rejected; "": ACK
}

// RejectedResource is a resource whose last version was rejected.
type RejectedResource struct {
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"` // last accepted version; "": none
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// Channel is the connection to one control plane. The functions of this package use it only during
// the call.
type Channel struct {
	Name    string                // name of the cluster of the control plane
	Source  resource.SecretSource // source of the secrets that it serves; zero: the control plane serves everything
	Mode    ads.Mode
	Client  *ads.Client
	History *History
	Connection
}

// Connection is the state of a connection.
type Connection struct {
	Connected bool
	Since     time.Time // when Connected last changed or the first attempt failed; zero: neither yet
	Failure   string    // last connection error; "" while connected
	Attempts  int       // failures since the last connection
}

// types returns the resource types of the channel.
func (c *Channel) types() []string {
	if c.Source != (resource.SecretSource{}) {
		return []string{resource.SecretType}
	}
	return []string{resource.ListenerType, resource.RouteType, resource.DubboRouteType, resource.ClusterType, resource.EndpointType, resource.ExtensionType, resource.RuntimeType, resource.SecretType}
}

// Summarize returns the status of a client. cacheStatus is the status of its cache.
func Summarize(boot *bootstrap.Bootstrap, s *state.State, channels []Channel, cacheStatus cache.Status) Status {
	out := Status{Node: boot.Node.GetId(), ControlPlanes: []ControlPlane{}, Warming: s.Warming(), Cache: cacheStatus, OnDemand: s.OnDemandStatus()}
	for i := range channels {
		c := &channels[i]
		p := ControlPlane{Name: c.Name, Mode: ModeSotW, Serves: ServesAll, Connected: c.Connected, Since: c.Since, Failure: c.Failure, Attempts: c.Attempts}
		if c.Mode == ads.Delta {
			p.Mode = ModeDelta
		}
		if c.Source != (resource.SecretSource{}) {
			p.Serves = ServesSecrets
		}
		for _, url := range c.types() {
			p.Types = append(p.Types, c.typeStatus(url))
		}
		out.ControlPlanes = append(out.ControlPlanes, p)
	}
	return out
}

// typeStatus returns the status of a type.
func (c *Channel) typeStatus(url string) Type {
	wildcard, names := c.Client.Subscription(url)
	accepted := c.Client.Resources(url)
	version, _ := c.Client.Version(url)
	t := Type{Type: url, Version: version, Wildcard: wildcard, Requested: len(names), Resources: len(accepted)}
	for _, n := range names {
		if _, ok := accepted[n]; !ok {
			t.Missing = append(t.Missing, n)
		}
	}
	if r := c.History.acks[url]; r != nil {
		t.Accepted, t.Rejected = r.lastAck, r.lastNack
	}
	t.RejectedResources, t.Changed = c.History.summary(url, wildcard, names)
	return t
}
