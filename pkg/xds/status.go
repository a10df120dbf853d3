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
	Node   string  `json:"node"` // who asks
	Planes []Plane `json:"control_planes"`
	// Waiting are the resources that were accepted and are not in force yet.
	Waiting []Waiting `json:"waiting"`
	Kept    Kept      `json:"kept"` // on disk
	// Lazy is what is left with the control plane until it is used; nil: nothing is, ever.
	Lazy *Lazy `json:"lazy,omitempty"`
}

// Plane is a control plane, as far as it was heard of.
type Plane struct {
	Name      string    `json:"name"` // of its cluster
	Form      string    `json:"form"` // FormDelta or FormWorld
	Serves    string    `json:"serves"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"` // of Connected being what it is; zero: it was never tried
	// Failure is why it is away, or was the last time; Attempts are those in vain since.
	Failure  string       `json:"failure,omitempty"`
	Attempts int          `json:"attempts,omitempty"`
	Types    []TypeStatus `json:"types"` // that are wanted of it
}

// The values of Plane.Form and Plane.Serves.
const (
	FormDelta     = "delta"
	FormWorld     = "state of the world"
	ServesAll     = "everything"
	ServesSecrets = "secrets"
)

// TypeStatus is a type of resources of a control plane.
type TypeStatus struct {
	Type    string   `json:"type"`              // its URL
	Version string   `json:"version,omitempty"` // of the last response that was accepted whole
	All     bool     `json:"all"`               // all are wanted that there are
	Wanted  int      `json:"wanted"`            // by name
	Held    int      `json:"held"`              // accepted
	Missing []string `json:"missing,omitempty"` // wanted by name, and not held

	Accepted *Reply    `json:"accepted,omitempty"` // the last response that was; nil: none was
	Refused  *Reply    `json:"refused,omitempty"`  // the last response that was not; nil: none
	Bad      []BadOne  `json:"refused_resources,omitempty"`
	Changed  time.Time `json:"changed,omitzero"` // when a resource last was
}

// Short is the type without its package: "Cluster".
func (t *TypeStatus) Short() string { return shortType(t.Type) }

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// Reply is what was answered to a response.
type Reply struct {
	Version string    `json:"version"` // of the response
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"` // it was refused, at least a resource of it
}

// BadOne is a resource whose last version was refused.
type BadOne struct {
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"` // that is held in its place; "": none is
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// Waiting is a resource that is not in force yet.
type Waiting struct {
	Type    string    `json:"type"` // its URL
	Name    string    `json:"name"`
	Since   time.Time `json:"since"`
	For     []string  `json:"for"`
	InForce bool      `json:"in_force"` // what was said of it before is
	// Until is when it is put in force without the hosts or routes that it waits for;
	// zero: never.
	Until time.Time `json:"until,omitzero"`
}

// Resource is what is told of one resource.
type Resource struct {
	Version string    `json:"version"`           // the last that was accepted; "": none was
	Updated time.Time `json:"updated"`           // when that was
	Refused string    `json:"refused,omitempty"` // why the last one was not; "": it was
	At      time.Time `json:"refused_at,omitzero"`
}

// replies are the last answers to responses of a type.
type replies struct{ accepted, refused *Reply }

// topicOf tells the types of control planes apart.
type topicOf struct {
	feed *feed
	url  string
}

// Status returns what is told of the control planes. It waits while a configuration is
// put in force.
func (s *Source) Status() Status {
	s.work.Lock()
	defer s.work.Unlock()
	out := Status{Node: s.boot.node.GetId(), Planes: []Plane{}, Waiting: s.world.waiting(), Kept: s.Kept(), Lazy: s.world.lazyStatus()}
	for _, f := range s.feeds {
		p := Plane{Name: f.name, Form: FormWorld, Serves: ServesAll}
		if f.form == ads.Delta {
			p.Form = FormDelta
		}
		types := []string{resource.ListenerType, resource.RouteType, resource.DubboRouteType, resource.ClusterType, resource.EndpointType, resource.ExtensionType, resource.RuntimeType, resource.SecretType}
		if f.secrets != (resource.SecretSource{}) {
			p.Serves, types = ServesSecrets, types[len(types)-1:]
		}
		f.mu.Lock()
		p.Connected, p.Since, p.Failure, p.Attempts = f.status.connected, f.status.since, f.status.failure, f.status.attempts
		f.mu.Unlock()
		for _, url := range types {
			p.Types = append(p.Types, s.typeStatus(f, url))
		}
		out.Planes = append(out.Planes, p)
	}
	return out
}

// typeStatus is what is told of a type of f. s.work is held.
func (s *Source) typeStatus(f *feed, url string) TypeStatus {
	all, names := f.client.Wanted(url)
	held := f.client.Held(url)
	version, _ := f.client.Version(url)
	t := TypeStatus{Type: url, Version: version, All: all, Wanted: len(names), Held: len(held)}
	for _, n := range names {
		if _, ok := held[n]; !ok {
			t.Missing = append(t.Missing, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.replied[topicOf{f, url}]; r != nil {
		t.Accepted, t.Refused = r.accepted, r.refused
	}
	for name, r := range s.tracked[url] {
		if _, wanted := slices.BinarySearch(names, name); !all && !wanted {
			continue // not any more
		}
		if r.Refused != "" {
			t.Bad = append(t.Bad, BadOne{name, r.Version, r.Refused, r.At})
		}
		if r.Updated.After(t.Changed) {
			t.Changed = r.Updated
		}
	}
	slices.SortFunc(t.Bad, func(a, b BadOne) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// track notes what became of an update.
func (s *Source) track(_ *feed, u ads.Update, wrong []ads.Wrong, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tracked[u.Type]
	if of == nil {
		of = map[string]*Resource{}
		s.tracked[u.Type] = of
	}
	bad := make(map[string]string, len(wrong))
	for _, w := range wrong {
		bad[w.Name] = w.Reason
	}
	for _, n := range u.Changed {
		r := of[n.Name]
		if r == nil {
			r = &Resource{}
			of[n.Name] = r
		}
		if reason, refused := bad[n.Name]; refused {
			r.Refused, r.At = reason, now
			continue
		}
		r.Version, r.Updated, r.Refused, r.At = versionOf(u, n), now, "", time.Time{}
	}
	for _, name := range u.Removed {
		if reason, refused := bad[name]; !refused {
			delete(of, name)
		} else if r := of[name]; r != nil { // and it is still in force
			r.Refused, r.At = reason, now
		}
	}
}

// untrack drops what is told of resources that nobody wants any more: no control plane
// says when these go.
func (s *Source) untrack(w *turns) {
	http, dubbo := tablesOf(w.tables.less)
	var secrets []string
	for _, r := range w.secrets.less {
		another := func(f *feed) bool { return s.world.isAsked(resource.SecretRef{Name: r.Name, From: f.secrets}) }
		if !slices.ContainsFunc(s.feeds, another) {
			secrets = append(secrets, r.Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, names := range map[string][]string{
		resource.EndpointType: w.assignments.less, resource.RouteType: http, resource.DubboRouteType: dubbo,
		resource.ExtensionType: w.extensions.less, resource.SecretType: secrets,
	} {
		for _, name := range names {
			delete(s.tracked[url], name)
		}
	}
}

// trackKnown is track of what has a name of its own.
func (s *Source) trackKnown(f *feed, u ads.Update, wrong []ads.Wrong, now time.Time) {
	madeUp := map[string]bool{}
	known := u
	known.Changed = nil
	for _, n := range u.Changed {
		if n.Fault == "" {
			known.Changed = append(known.Changed, n)
		} else {
			madeUp[n.Name] = true
		}
	}
	named := slices.DeleteFunc(slices.Clone(wrong), func(w ads.Wrong) bool { return madeUp[w.Name] })
	s.track(f, known, named, now)
}

// untrackGone drops what is told of resources that a response of f's, which was concluded,
// has not any more, and that were never accepted: of others track knows.
func (s *Source) untrackGone(f *feed, r *ads.Response) {
	if !f.client.WantsAll(r.Type) {
		return
	}
	held := f.client.Held(r.Type)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tracked[r.Type]
	if f.form == ads.Delta {
		for _, name := range r.Removed {
			if _, is := held[name]; !is {
				delete(of, name)
			}
		}
		return
	}
	there := make(map[string]bool, len(r.Resources))
	for _, n := range r.Resources {
		if n.Fault != "" {
			return // it may be any of those that seem to be gone
		}
		there[n.Name] = true
	}
	maps.DeleteFunc(of, func(name string, _ *Resource) bool {
		_, is := held[name]
		return !is && !there[name]
	})
}

// refused notes that a resource that was accepted is not in force after all.
func (s *Source) refused(typeURL, name, reason string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.tracked[typeURL][name]; r != nil {
		r.Refused, r.At = reason, at
	}
}

// reply notes what was answered to a response.
func (s *Source) reply(f *feed, u ads.Update, refusal string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replied == nil {
		s.replied = map[topicOf]*replies{}
	}
	r := s.replied[topicOf{f, u.Type}]
	if r == nil {
		r = &replies{}
		s.replied[topicOf{f, u.Type}] = r
	}
	one := &Reply{Version: u.Version, At: now, Reason: refusal}
	if refusal != "" {
		r.refused = one
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
