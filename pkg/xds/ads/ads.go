// Package ads decides what a consumer of an aggregated discovery service asks for and
// answers: subscriptions, versions, nonces, acceptance and refusal, in both forms of the
// protocol. It is pure: it reads and writes nothing, and knows resources by name only.
// The protocol is Envoy's, as in its "xDS REST and gRPC protocol" document.
package ads

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// Mode is which of its two forms the protocol is spoken in.
type Mode uint8

// The forms.
const (
	StateOfTheWorld Mode = iota // a response has all resources of its type that are asked for
	Delta                       // a response has what changed
)

// Type is a type of resources.
type Type struct {
	URL string // as in a google.protobuf.Any
	// AllResourcesRequiredInSotW: a response in StateOfTheWorld has all that there are, so that what it has
	// not is gone. Of other types it is gone when nobody wants it any more.
	AllResourcesRequiredInSotW bool
}

// Resource is one resource as it came.
type Resource struct {
	Name    string
	Version string // its own; "" in StateOfTheWorld
	Body    []byte // serialized; immutable, kept for as long as the resource is held
	// Heartbeat: there is no Body, the resource that is held stays (a heartbeat of one with
	// a time to live).
	Heartbeat bool
	// DecodeError is why it cannot be told what this is, so that it is refused; "": it can. Its
	// Name may be made up.
	DecodeError string
}

// Request is a DiscoveryRequest or DeltaDiscoveryRequest without what is the same in
// all of them.
type Request struct {
	Type    string   // its URL
	First   bool     // of the stream: it says who asks
	Version string   // the last that was accepted; StateOfTheWorld
	Nonce   string   // of the response that this answers, or of the last one; "": none yet
	Names   []string // immutable
	// Subscribe and Unsubscribe are what changes; Held is the version of each resource
	// that is known already, in the first request of a type. Delta.
	Subscribe, Unsubscribe []string
	InitialVersions        map[string]string
	ErrorDetail            string // why the response was not accepted; "": it was, or this answers none
}

// Response is a DiscoveryResponse or DeltaDiscoveryResponse.
type Response struct {
	Type      string
	Version   string // of all of it
	Nonce     string
	Resources []Resource
	Removed   []string // Delta
}

// Update is what a response brings that was not known: to be checked, put in force,
// and concluded.
type Update struct {
	Type    string
	Version string
	Changed []Resource // by name, each once
	// Removed are gone. In Delta there may be some that were asked for and never were.
	Removed []string

	nonce string
}

// ResourceError is a resource that cannot be accepted.
type ResourceError struct {
	Name   string
	Reason string
}

// Client is the state of a consumer, which outlives the streams that it is fed by. It
// is one goroutine's. The zero value is not usable; New makes one.
type Client struct {
	mode        Mode
	startOrder  []*typeState // as types are asked for at the start of a stream
	types       map[string]*typeState
	streamOpen  bool // there is a stream
	requestSent bool // and something was sent on it
}

// typeState is one type.
type typeState struct {
	Type
	wildcard     bool            // everything is wanted
	subscribed   map[string]bool // or these
	sortedNames  []string        // names in order; nil: not made since they changed. Immutable
	resources    map[string]Resource
	doesNotExist map[string]bool // of names: the server has said that there is none. Delta
	version      string          // of the last response that was accepted
	nonce        string          // of the last response of this stream
	requested    bool            // on this stream
	hasAccepted  bool            // some response was accepted, of whatever stream
}

// New returns a client that wants nothing yet. At the start of a stream types are
// asked for in the given order.
func New(form Mode, types ...Type) *Client {
	c := &Client{mode: form, types: make(map[string]*typeState, len(types))}
	for _, t := range types {
		p := &typeState{Type: t, subscribed: map[string]bool{}, resources: map[string]Resource{}, doesNotExist: map[string]bool{}}
		c.types[t.URL] = p
		c.startOrder = append(c.startOrder, p)
	}
	return c
}

// StreamOpened says that a stream has begun, and returns what to send on it first.
func (c *Client) StreamOpened() []Request {
	c.streamOpen, c.requestSent = true, false
	var all []Request
	for _, p := range c.startOrder {
		p.requested, p.nonce = false, ""
		if p.wildcard || len(p.subscribed) > 0 {
			all = append(all, c.fullRequest(p))
		}
	}
	return all
}

// StreamClosed says that the stream is over. What is held stays.
func (c *Client) StreamClosed() { c.streamOpen = false }

// Restore says that a resource is held that an earlier Client accepted.
func (c *Client) Restore(url string, r Resource) { c.types[url].resources[r.Name] = r }

// SubscribeAll asks for all resources of a type, of whatever name.
func (c *Client) SubscribeAll(url string) []Request {
	p := c.types[url]
	if p.wildcard {
		return nil
	}
	p.wildcard = true
	if !c.streamOpen {
		return nil
	}
	return []Request{c.fullRequest(p)}
}

// SetSubscription says which resources of a type are wanted from now on, instead of those before.
// What is not wanted any more is forgotten.
func (c *Client) SetSubscription(url string, names []string) []Request {
	next := make(map[string]bool, len(names))
	for _, n := range names {
		next[n] = true
	}
	var less []string
	for n := range c.types[url].subscribed {
		if !next[n] {
			less = append(less, n)
		}
	}
	return c.UpdateSubscription(url, names, less)
}

// UpdateSubscription says which resources of a type are wanted beside those before, and which of those
// are not any more, and forgotten therefore. Its cost, in Delta, is theirs.
func (c *Client) UpdateSubscription(url string, wanted, unwanted []string) []Request {
	p := c.types[url]
	var more, less []string
	for _, n := range wanted {
		if !p.subscribed[n] {
			p.subscribed[n] = true
			more = append(more, n)
		}
	}
	for _, n := range unwanted {
		if p.subscribed[n] {
			delete(p.subscribed, n)
			delete(p.resources, n)
			delete(p.doesNotExist, n)
			less = append(less, n)
		}
	}
	if len(more)+len(less) == 0 {
		return nil
	}
	p.sortedNames = nil
	if !c.streamOpen || p.wildcard {
		return nil
	}
	if c.mode == StateOfTheWorld || !p.requested {
		return []Request{c.fullRequest(p)}
	}
	slices.Sort(more)
	slices.Sort(less)
	return []Request{c.completeRequest(p, Request{Subscribe: more, Unsubscribe: less})}
}

// fullRequest is the request that says all that is wanted of a type.
func (c *Client) fullRequest(p *typeState) Request {
	first := !p.requested
	p.requested = true
	var names []string
	if !p.wildcard {
		names = p.subscribedNames()
	}
	if c.mode == StateOfTheWorld {
		return c.completeRequest(p, Request{Version: p.version, Nonce: p.nonce, Names: names})
	}
	r := Request{Subscribe: names}
	if first {
		r.InitialVersions = p.knownVersions()
	}
	return c.completeRequest(p, r)
}

// knownVersions are those of the resources whose version is known.
func (p *typeState) knownVersions() map[string]string {
	all := make(map[string]string, len(p.resources))
	for name, r := range p.resources {
		if r.Version != "" {
			all[name] = r.Version
		}
	}
	return all
}

// completeRequest completes a request of a type, which is sent now.
func (c *Client) completeRequest(p *typeState, r Request) Request {
	r.Type = p.URL
	r.First = !c.requestSent
	c.requestSent = true
	return r
}

// Receive takes a response and returns what is new in it, which is to be concluded even
// if it is nothing. ok is false for a type that nobody asked for: there is nothing to
// be said about that.
func (c *Client) Receive(r Response) (u Update, ok bool) {
	p := c.types[r.Type]
	if p == nil || !p.requested || !c.streamOpen {
		return Update{}, false
	}
	p.nonce = r.Nonce
	u = Update{Type: r.Type, Version: r.Version, nonce: r.Nonce}
	here := make(map[string]int, len(r.Resources)) // and where in Changed; below 0: it is no change
	for _, n := range r.Resources {
		if !p.wildcard && !p.subscribed[n.Name] && n.DecodeError == "" {
			continue
		}
		at, twice := here[n.Name]
		switch {
		case twice && at >= 0:
			if first := &u.Changed[at]; !bytes.Equal(first.Body, n.Body) {
				first.DecodeError = reasonDuplicateName
			}
		case twice && p.isUnchanged(n):
		case twice: // the first one is what is held
			here[n.Name] = len(u.Changed)
			n.DecodeError = reasonDuplicateName
			u.Changed = append(u.Changed, n)
		case p.isUnchanged(n):
			here[n.Name] = -1
		default:
			here[n.Name] = len(u.Changed)
			u.Changed = append(u.Changed, n)
		}
	}
	u.Removed = c.removedNames(p, r, here)
	return u, true
}

// reasonDuplicateName is wrong with resources of one name that differ: neither is to be preferred.
const reasonDuplicateName = "the response has two different resources with this name"

// isUnchanged reports whether n is what is held, and notes its version if it is.
func (p *typeState) isUnchanged(n Resource) bool {
	held, ok := p.resources[n.Name]
	switch {
	case n.Heartbeat:
		return true
	case n.DecodeError != "":
		return false
	case !ok || !bytes.Equal(held.Body, n.Body):
		return false
	case held.Version != n.Version:
		held.Version = n.Version
		p.resources[n.Name] = held
	}
	return true
}

// removedNames returns what a response takes away, in order.
func (c *Client) removedNames(p *typeState, r Response, here map[string]int) (gone []string) {
	if c.mode == Delta {
		for _, n := range r.Removed {
			_, back := here[n]
			_, held := p.resources[n]
			if !back && (held || p.subscribed[n]) {
				gone = append(gone, n)
			}
		}
	} else if p.AllResourcesRequiredInSotW && !slices.ContainsFunc(r.Resources, func(n Resource) bool { return n.DecodeError != "" }) {
		// What cannot be told may be any of those that seem to be gone.
		for n := range p.resources {
			if _, ok := here[n]; !ok {
				gone = append(gone, n)
			}
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// Acknowledge says what became of an update: all of it is in force but what is wrong, of
// which what was held before stays, also where it was to go. It returns the request that tells the server so;
// ok is false if the stream of the update has ended.
func (c *Client) Acknowledge(u Update, wrong []ResourceError) (r Request, ok bool) {
	p := c.types[u.Type]
	bad := make(map[string]bool, len(wrong))
	for _, w := range wrong {
		bad[w.Name] = true
	}
	for _, n := range u.Changed {
		delete(p.doesNotExist, n.Name)
		if !bad[n.Name] && (p.wildcard || p.subscribed[n.Name]) {
			p.resources[n.Name] = n
		}
	}
	for _, n := range u.Removed {
		if bad[n] {
			continue
		}
		delete(p.resources, n)
		if p.subscribed[n] {
			p.doesNotExist[n] = true
		}
	}
	if len(wrong) == 0 {
		p.version, p.hasAccepted = u.Version, true
	}
	if !c.streamOpen || p.nonce != u.nonce {
		return Request{}, false
	}
	r = Request{Nonce: u.nonce, ErrorDetail: errorDetail(wrong)}
	if c.mode == StateOfTheWorld {
		r.Version = p.version
		if !p.wildcard {
			r.Names = p.subscribedNames()
		}
	}
	return c.completeRequest(p, r), true
}

// errorDetail is the text that says what is wrong, of one resource after the other.
func errorDetail(wrong []ResourceError) string {
	const most = 16 // a server's log is no place for thousands
	var text strings.Builder
	for i, w := range wrong {
		if i > 0 {
			text.WriteString("; ")
		}
		if i == most {
			text.WriteString("and more")
			break
		}
		text.WriteString(w.Name + ": " + truncateReason(w.Reason))
	}
	return text.String()
}

// truncateReason returns a reason that a server can be told: many limit what they receive.
func truncateReason(reason string) string {
	const most = 4 << 10
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + "… and more"
}

// Resources returns the resources of a type that were accepted and are still wanted, by
// name. It is a view: not to be changed, and valid until the next call.
func (c *Client) Resources(url string) map[string]Resource { return c.types[url].resources }

// DoesNotExist reports whether a resource is wanted by its name, and the server has said that
// there is none. In StateOfTheWorld no server says so.
func (c *Client) DoesNotExist(url, name string) bool { return c.types[url].doesNotExist[name] }

// Version returns the version of the last response of a type that was accepted whole;
// ok is false if none was.
func (c *Client) Version(url string) (version string, ok bool) {
	p := c.types[url]
	return p.version, p.hasAccepted
}

// IsWildcard reports whether all of a type is wanted, not only what is named.
func (c *Client) IsWildcard(url string) bool { return c.types[url].wildcard }

// Subscription returns what is wanted of a type: everything, or names in order, which must not be
// changed.
func (c *Client) Subscription(url string) (all bool, names []string) {
	p := c.types[url]
	return p.wildcard, p.subscribedNames()
}

// subscribedNames returns the names that are wanted, in order: each answer of StateOfTheWorld has
// all of them.
func (p *typeState) subscribedNames() []string {
	if p.sortedNames == nil {
		p.sortedNames = slices.Sorted(maps.Keys(p.subscribed))
	}
	return p.sortedNames
}
