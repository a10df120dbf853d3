package xds

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/cache"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// Status is the status of a Source and its control planes.
type Status struct {
	Node          string               `json:"node"` // node ID
	ControlPlanes []ControlPlaneStatus `json:"control_planes"`
	// Warming are the accepted resources that are not active yet.
	Warming []state.WarmingResource `json:"waiting"`
	Cache   cache.Status            `json:"kept"` // xDS cache on disk
	// OnDemand is the status of resources that are fetched on demand; nil: on-demand loading is
	// off.
	OnDemand *state.OnDemandStatus `json:"lazy,omitempty"`
}

// ControlPlaneStatus is the status of the connection to one control plane.
type ControlPlaneStatus struct {
	Name      string    `json:"name"` // of the cluster of the control plane
	Mode      string    `json:"form"` // ModeDelta or ModeSotW
	Serves    string    `json:"serves"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"` // when Connected last changed; zero: no attempt yet
	// Failure is the last connection error; Attempts counts the failures since the last connection.
	Failure  string       `json:"failure,omitempty"`
	Attempts int          `json:"attempts,omitempty"`
	Types    []TypeStatus `json:"types"` // types that the control plane serves
}

// The values of ControlPlaneStatus.Mode and ControlPlaneStatus.Serves.
const (
	ModeDelta     = "delta"
	ModeSotW      = "state of the world"
	ServesAll     = "everything"
	ServesSecrets = "secrets"
)

// TypeStatus is the status of one resource type of a control plane.
type TypeStatus struct {
	Type      string   `json:"type"`              // its URL
	Version   string   `json:"version,omitempty"` // of the last response that was accepted as a whole
	Wildcard  bool     `json:"all"`               // subscribed to all resources of the type
	Requested int      `json:"wanted"`            // resources subscribed by name
	Resources int      `json:"held"`              // accepted resources
	Missing   []string `json:"missing,omitempty"` // subscribed by name, but not accepted

	Accepted          *AckStatus         `json:"accepted,omitempty"` // last ACK; nil: none
	Rejected          *AckStatus         `json:"refused,omitempty"`  // last NACK; nil: none
	RejectedResources []RejectedResource `json:"refused_resources,omitempty"`
	Changed           time.Time          `json:"changed,omitzero"` // when a resource was last accepted
}

// Short returns the type without its package: "Cluster".
func (t *TypeStatus) Short() string { return shortType(t.Type) }

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// AckStatus is an ACK or NACK of a response.
type AckStatus struct {
	Version string    `json:"version"` // of the response
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

// ResourceStatus is the status of one resource.
type ResourceStatus struct {
	Version      string    `json:"version"`           // last accepted version; "": none
	Updated      time.Time `json:"updated"`           // when Version was accepted
	RejectReason string    `json:"refused,omitempty"` // why the last version was rejected; "": it was accepted
	RejectedAt   time.Time `json:"refused_at,omitzero"`
}

// ackHistory is the last ACK and the last NACK of a type.
type ackHistory struct{ accepted, rejected *AckStatus }

// typeKey identifies a resource type of one channel.
type typeKey struct {
	channel *xdsChannel
	url     string
}

// Status returns the status of all control planes. It waits while a configuration is being applied.
func (s *Source) Status() Status {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	out := Status{Node: s.boot.Node.GetId(), ControlPlanes: []ControlPlaneStatus{}, Warming: s.state.Warming(), Cache: s.cache.Status(), OnDemand: s.state.OnDemandStatus()}
	for _, f := range s.channels {
		p := ControlPlaneStatus{Name: f.name, Mode: ModeSotW, Serves: ServesAll}
		if f.mode == ads.Delta {
			p.Mode = ModeDelta
		}
		types := []string{resource.ListenerType, resource.RouteType, resource.DubboRouteType, resource.ClusterType, resource.EndpointType, resource.ExtensionType, resource.RuntimeType, resource.SecretType}
		if f.secretSource != (resource.SecretSource{}) {
			p.Serves, types = ServesSecrets, types[len(types)-1:]
		}
		f.mu.Lock()
		p.Connected, p.Since, p.Failure, p.Attempts = f.status.connected, f.status.since, f.status.failure, f.status.attempts
		f.mu.Unlock()
		for _, url := range types {
			p.Types = append(p.Types, s.typeStatus(f, url))
		}
		out.ControlPlanes = append(out.ControlPlanes, p)
	}
	return out
}

// typeStatus returns the status of a type on f. Called with applyMu held.
func (s *Source) typeStatus(f *xdsChannel, url string) TypeStatus {
	all, names := f.client.Subscription(url)
	held := f.client.Resources(url)
	version, _ := f.client.Version(url)
	t := TypeStatus{Type: url, Version: version, Wildcard: all, Requested: len(names), Resources: len(held)}
	for _, n := range names {
		if _, ok := held[n]; !ok {
			t.Missing = append(t.Missing, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.acks[typeKey{f, url}]; r != nil {
		t.Accepted, t.Rejected = r.accepted, r.rejected
	}
	for name, r := range s.resourceStatus[url] {
		if _, wanted := slices.BinarySearch(names, name); !all && !wanted {
			continue // no longer subscribed
		}
		if r.RejectReason != "" {
			t.RejectedResources = append(t.RejectedResources, RejectedResource{name, r.Version, r.RejectReason, r.RejectedAt})
		}
		if r.Updated.After(t.Changed) {
			t.Changed = r.Updated
		}
	}
	slices.SortFunc(t.RejectedResources, func(a, b RejectedResource) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// recordUpdate records which resources of an update were accepted, rejected or removed.
func (s *Source) recordUpdate(_ *xdsChannel, u ads.Update, wrong []ads.ResourceError, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.resourceStatus[u.Type]
	if of == nil {
		of = map[string]*ResourceStatus{}
		s.resourceStatus[u.Type] = of
	}
	bad := make(map[string]string, len(wrong))
	for _, w := range wrong {
		bad[w.Name] = w.Reason
	}
	for _, n := range u.Changed {
		r := of[n.Name]
		if r == nil {
			r = &ResourceStatus{}
			of[n.Name] = r
		}
		if reason, refused := bad[n.Name]; refused {
			r.RejectReason, r.RejectedAt = reason, now
			continue
		}
		r.Version, r.Updated, r.RejectReason, r.RejectedAt = versionOf(u, n), now, "", time.Time{}
	}
	for _, name := range u.Removed {
		if reason, refused := bad[name]; !refused {
			delete(of, name)
		} else if r := of[name]; r != nil { // still active
			r.RejectReason, r.RejectedAt = reason, now
		}
	}
}

// dropUnsubscribedStatus drops the status of resources that are no longer subscribed, because no
// control plane reports their removal.
func (s *Source) dropUnsubscribedStatus(w *state.SubscriptionChanges) {
	var secrets []string
	for _, r := range w.Secrets.Removed {
		another := func(f *xdsChannel) bool {
			return s.state.IsSecretRequested(resource.SecretRef{Name: r.Name, From: f.secretSource})
		}
		if !slices.ContainsFunc(s.channels, another) {
			secrets = append(secrets, r.Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, names := range map[string][]string{
		resource.EndpointType: w.Assignments.Removed, resource.RouteType: w.Routes.Removed, resource.DubboRouteType: w.DubboRoutes.Removed,
		resource.ExtensionType: w.Extensions.Removed, resource.SecretType: secrets,
	} {
		for _, name := range names {
			delete(s.resourceStatus[url], name)
		}
	}
}

// recordNamedUpdate is recordUpdate without the resources that have a DecodeError, whose names may
// be made up.
func (s *Source) recordNamedUpdate(f *xdsChannel, u ads.Update, wrong []ads.ResourceError, now time.Time) {
	madeUp := map[string]bool{}
	known := u
	known.Changed = nil
	for _, n := range u.Changed {
		if n.DecodeError == "" {
			known.Changed = append(known.Changed, n)
		} else {
			madeUp[n.Name] = true
		}
	}
	named := slices.DeleteFunc(slices.Clone(wrong), func(w ads.ResourceError) bool { return madeUp[w.Name] })
	s.recordUpdate(f, known, named, now)
}

// dropRemovedStatus drops the status of resources that are missing from the acknowledged response r
// and were never accepted. recordUpdate handles the others. It applies to wildcard subscriptions
// only.
func (s *Source) dropRemovedStatus(f *xdsChannel, r *ads.Response) {
	if !f.client.IsWildcard(r.Type) {
		return
	}
	held := f.client.Resources(r.Type)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.resourceStatus[r.Type]
	if f.mode == ads.Delta {
		for _, name := range r.Removed {
			if _, is := held[name]; !is {
				delete(of, name)
			}
		}
		return
	}
	there := make(map[string]bool, len(r.Resources))
	for _, n := range r.Resources {
		if n.DecodeError != "" {
			return // it may be one of the missing resources
		}
		there[n.Name] = true
	}
	maps.DeleteFunc(of, func(name string, _ *ResourceStatus) bool {
		_, is := held[name]
		return !is && !there[name]
	})
}

// recordRejection records that an accepted resource could not be applied.
func (s *Source) recordRejection(typeURL, name, reason string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.resourceStatus[typeURL][name]; r != nil {
		r.RejectReason, r.RejectedAt = reason, at
	}
}

// recordAck records the ACK or NACK of a response.
func (s *Source) recordAck(f *xdsChannel, u ads.Update, refusal string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acks == nil {
		s.acks = map[typeKey]*ackHistory{}
	}
	r := s.acks[typeKey{f, u.Type}]
	if r == nil {
		r = &ackHistory{}
		s.acks[typeKey{f, u.Type}] = r
	}
	one := &AckStatus{Version: u.Version, At: now, Reason: refusal}
	if refusal != "" {
		r.rejected = one
	} else {
		r.accepted = one
	}
}

func versionOf(u ads.Update, n ads.Resource) string {
	if n.Version != "" {
		return n.Version
	}
	return u.Version
}
