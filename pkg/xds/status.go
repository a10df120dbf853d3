package xds

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Status is what is told of the control planes of a Source.
type Status struct {
	Node          string               `json:"node"` // who asks
	ControlPlanes []ControlPlaneStatus `json:"control_planes"`
	// Warming are the resources that were accepted and are not in force yet.
	Warming []WarmingResource `json:"waiting"`
	Cache   CacheStatus       `json:"kept"` // on disk
	// OnDemand is what is left with the control plane until it is used; nil: nothing is, ever.
	OnDemand *OnDemandStatus `json:"lazy,omitempty"`
}

// ControlPlaneStatus is a control plane, as far as it was heard of.
type ControlPlaneStatus struct {
	Name      string    `json:"name"` // of its cluster
	Mode      string    `json:"form"` // ModeDelta or ModeSotW
	Serves    string    `json:"serves"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"` // of Connected being what it is; zero: it was never tried
	// Failure is why it is away, or was the last time; Attempts are those in vain since.
	Failure  string       `json:"failure,omitempty"`
	Attempts int          `json:"attempts,omitempty"`
	Types    []TypeStatus `json:"types"` // that are wanted of it
}

// The values of Plane.Mode and Plane.Serves.
const (
	ModeDelta     = "delta"
	ModeSotW      = "state of the world"
	ServesAll     = "everything"
	ServesSecrets = "secrets"
)

// TypeStatus is a type of resources of a control plane.
type TypeStatus struct {
	Type      string   `json:"type"`              // its URL
	Version   string   `json:"version,omitempty"` // of the last response that was accepted whole
	Wildcard  bool     `json:"all"`               // all are wanted that there are
	Requested int      `json:"wanted"`            // by name
	Resources int      `json:"held"`              // accepted
	Missing   []string `json:"missing,omitempty"` // wanted by name, and not held

	Accepted          *AckStatus         `json:"accepted,omitempty"` // the last response that was; nil: none was
	Rejected          *AckStatus         `json:"refused,omitempty"`  // the last response that was not; nil: none
	RejectedResources []RejectedResource `json:"refused_resources,omitempty"`
	Changed           time.Time          `json:"changed,omitzero"` // when a resource last was
}

// Short is the type without its package: "Cluster".
func (t *TypeStatus) Short() string { return shortType(t.Type) }

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// AckStatus is what was answered to a response.
type AckStatus struct {
	Version string    `json:"version"` // of the response
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"` // it was refused, at least a resource of it
}

// RejectedResource is a resource whose last version was refused.
type RejectedResource struct {
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"` // that is held in its place; "": none is
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// WarmingResource is a resource that is not in force yet.
type WarmingResource struct {
	Type           string    `json:"type"` // its URL
	Name           string    `json:"name"`
	Since          time.Time `json:"since"`
	Missing        []string  `json:"for"`
	PreviousActive bool      `json:"in_force"` // what was said of it before is
	// Until is when it is put in force without the hosts or routes that it waits for;
	// zero: never.
	Until time.Time `json:"until,omitzero"`
}

// ResourceStatus is what is told of one resource.
type ResourceStatus struct {
	Version      string    `json:"version"`           // the last that was accepted; "": none was
	Updated      time.Time `json:"updated"`           // when that was
	RejectReason string    `json:"refused,omitempty"` // why the last one was not; "": it was
	RejectedAt   time.Time `json:"refused_at,omitzero"`
}

// ackHistory are the last answers to responses of a type.
type ackHistory struct{ accepted, rejected *AckStatus }

// typeKey tells the types of control planes apart.
type typeKey struct {
	channel *xdsChannel
	url     string
}

// Status returns what is told of the control planes. It waits while a configuration is
// put in force.
func (s *Source) Status() Status {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	out := Status{Node: s.boot.node.GetId(), ControlPlanes: []ControlPlaneStatus{}, Warming: s.state.warming(), Cache: s.CacheStatus(), OnDemand: s.state.onDemandStatus()}
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

// typeStatus is what is told of a type of f. s.work is held.
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
			continue // not any more
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

// recordUpdate notes what became of an update.
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
		} else if r := of[name]; r != nil { // and it is still in force
			r.RejectReason, r.RejectedAt = reason, now
		}
	}
}

// dropUnsubscribedStatus drops what is told of resources that nobody wants any more: no control plane
// says when these go.
func (s *Source) dropUnsubscribedStatus(w *subscriptionChanges) {
	http, dubbo := splitTables(w.tables.removed)
	var secrets []string
	for _, r := range w.secrets.removed {
		another := func(f *xdsChannel) bool {
			return s.state.isSecretRequested(resource.SecretRef{Name: r.Name, From: f.secretSource})
		}
		if !slices.ContainsFunc(s.channels, another) {
			secrets = append(secrets, r.Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, names := range map[string][]string{
		resource.EndpointType: w.assignments.removed, resource.RouteType: http, resource.DubboRouteType: dubbo,
		resource.ExtensionType: w.extensions.removed, resource.SecretType: secrets,
	} {
		for _, name := range names {
			delete(s.resourceStatus[url], name)
		}
	}
}

// recordNamedUpdate is track of what has a name of its own.
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

// dropRemovedStatus drops what is told of resources that a response of f's, which was concluded,
// has not any more, and that were never accepted: of others track knows.
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
			return // it may be any of those that seem to be gone
		}
		there[n.Name] = true
	}
	maps.DeleteFunc(of, func(name string, _ *ResourceStatus) bool {
		_, is := held[name]
		return !is && !there[name]
	})
}

// recordRejection notes that a resource that was accepted is not in force after all.
func (s *Source) recordRejection(typeURL, name, reason string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.resourceStatus[typeURL][name]; r != nil {
		r.RejectReason, r.RejectedAt = reason, at
	}
}

// recordAck notes what was answered to a response.
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
