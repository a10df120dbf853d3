// Package ads implements the client side of the xDS protocol, in its state-of-the-world and delta
// variants: subscriptions, versions, nonces, ACKs and NACKs. It does no I/O and treats resources as
// opaque bytes with a name. The protocol is the one of Envoy's "xDS REST and gRPC protocol".
package ads

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// Mode is a variant of the xDS protocol.
type Mode uint8

// The variants.
const (
	StateOfTheWorld Mode = iota // a response has all requested resources of its type
	Delta                       // a response has the changes
)

// Type is a type of resources.
type Type struct {
	URL string // type URL, as in google.protobuf.Any
	// AllResourcesRequiredInSotW: a StateOfTheWorld response lists all resources of the type, and
	// removes those that it omits. A resource of another type is removed only when it is
	// unsubscribed.
	AllResourcesRequiredInSotW bool
}

// Resource is one resource of a response.
type Resource struct {
	Name    string
	Version string // version of the resource; "" in StateOfTheWorld
	Body    []byte // serialized; immutable, retained with the resource
	// Heartbeat: there is no Body, and the accepted resource stays (refresh of a resource with a
	// time to live).
	Heartbeat bool
	// DecodeError is why the resource cannot be identified, so that it is rejected; "": no error.
	// If it is set, Name may be made up.
	DecodeError string
}

// Request is a DiscoveryRequest or DeltaDiscoveryRequest without the node.
type Request struct {
	Type    string   // type URL
	First   bool     // first request of the stream: identifies the node
	Version string   // last accepted version; StateOfTheWorld
	Nonce   string   // of the response that this request acknowledges, or of the last one; "": none
	Names   []string // immutable
	// Subscribe and Unsubscribe change the subscription; InitialVersions is the version of each
	// resource that the client has, in the first request of a type. Delta.
	Subscribe, Unsubscribe []string
	InitialVersions        map[string]string
	ErrorDetail            string // why the response was rejected (NACK); "": it was accepted, or this is not an acknowledgment
}

// Response is a DiscoveryResponse or DeltaDiscoveryResponse.
type Response struct {
	Type      string
	Version   string // of the whole response
	Nonce     string
	Resources []Resource
	Removed   []string // Delta
}

// Update is the part of a response that is new. The caller validates it, applies it and passes it
// to Acknowledge.
type Update struct {
	Type    string
	Version string
	Changed []Resource // names are unique
	// Removed are sorted. In Delta, Removed may contain subscribed names that never existed.
	Removed []string

	nonce string
}

// ResourceError says why a resource is rejected.
type ResourceError struct {
	Name   string
	Reason string
}

// Client is the protocol state of an xDS client. It survives the end of a stream. It is not safe
// for concurrent use. The zero value is not usable; call New.
type Client struct {
	mode        Mode
	startOrder  []*typeState // order of the requests at the start of a stream
	types       map[string]*typeState
	streamOpen  bool // a stream is open
	requestSent bool // a request was returned for this stream
}

// typeState is the state of one type.
type typeState struct {
	Type
	wildcard     bool            // all resources are subscribed
	subscribed   map[string]bool // names subscribed
	sortedNames  []string        // subscribed in order; nil: to be computed. Immutable
	resources    map[string]Resource
	doesNotExist map[string]bool // names that the server has reported as nonexistent. Delta
	version      string          // of the last accepted response
	nonce        string          // of the last response on this stream
	requested    bool            // requested on this stream
	hasAccepted  bool            // a response was accepted, on any stream
}

// New returns a client without subscriptions. At the start of a stream it requests types in the
// given order.
func New(form Mode, types ...Type) *Client {
	c := &Client{mode: form, types: make(map[string]*typeState, len(types))}
	for _, t := range types {
		p := &typeState{Type: t, subscribed: map[string]bool{}, resources: map[string]Resource{}, doesNotExist: map[string]bool{}}
		c.types[t.URL] = p
		c.startOrder = append(c.startOrder, p)
	}
	return c
}

// StreamOpened records that a stream has started, and returns the first requests to send on it.
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

// StreamClosed records that the stream has ended. Accepted resources stay.
func (c *Client) StreamClosed() { c.streamOpen = false }

// Restore adds a resource that an earlier Client accepted.
func (c *Client) Restore(url string, r Resource) { c.types[url].resources[r.Name] = r }

// SubscribeAll subscribes to all resources of a type and returns the requests to send.
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

// SetSubscription replaces the subscribed names of a type and returns the requests to send. It
// drops the resources that are no longer subscribed.
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

// UpdateSubscription adds names to the subscription of a type and removes others, and returns the
// requests to send. It drops the resources of removed names. In Delta its cost depends only on the
// number of names passed.
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

// fullRequest returns the request for the complete subscription of a type.
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

// knownVersions returns the versions of the accepted resources that have one.
func (p *typeState) knownVersions() map[string]string {
	all := make(map[string]string, len(p.resources))
	for name, r := range p.resources {
		if r.Version != "" {
			all[name] = r.Version
		}
	}
	return all
}

// completeRequest sets Type and First of a request that is sent next.
func (c *Client) completeRequest(p *typeState, r Request) Request {
	r.Type = p.URL
	r.First = !c.requestSent
	c.requestSent = true
	return r
}

// Receive processes a response and returns the changes in it. The caller passes them to Acknowledge
// even if they are empty. ok is false for a type that was not requested; the caller ignores such a
// response.
func (c *Client) Receive(r Response) (u Update, ok bool) {
	p := c.types[r.Type]
	if p == nil || !p.requested || !c.streamOpen {
		return Update{}, false
	}
	p.nonce = r.Nonce
	u = Update{Type: r.Type, Version: r.Version, nonce: r.Nonce}
	here := make(map[string]int, len(r.Resources)) // index in Changed; -1: unchanged
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
		case twice: // the first one equals the accepted resource
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

// reasonDuplicateName rejects different resources with the same name, because neither takes
// precedence.
const reasonDuplicateName = "the response has two different resources with this name"

// isUnchanged reports whether n equals the accepted resource. If so, it updates the version.
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

// removedNames returns the names that a response removes, sorted.
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
		// A resource with a DecodeError may be any of the missing ones, so a response with one
		// removes nothing.
		for n := range p.resources {
			if _, ok := here[n]; !ok {
				gone = append(gone, n)
			}
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// Acknowledge ends an update. All of u was applied except wrong, whose previous versions stay, also
// if they were to be removed. It returns the ACK or NACK to send; ok is false if the stream of the
// update has ended or a newer response has arrived.
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

// errorDetail joins the reasons of the rejected resources.
func errorDetail(wrong []ResourceError) string {
	const most = 16 // limits the text for the server's log
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

// truncateReason limits the length of a reason, because many servers limit the size of a request.
func truncateReason(reason string) string {
	const most = 4 << 10
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + "… and more"
}

// Resources returns the accepted resources of a type; the keys are their names. The caller must not
// modify the map, which is valid until the next call.
func (c *Client) Resources(url string) map[string]Resource { return c.types[url].resources }

// DoesNotExist reports whether a name is subscribed and the server has reported that the resource
// does not exist. StateOfTheWorld servers never report that.
func (c *Client) DoesNotExist(url, name string) bool { return c.types[url].doesNotExist[name] }

// Version returns the version of the last response of a type that was accepted as a whole; ok is
// false if there is none.
func (c *Client) Version(url string) (version string, ok bool) {
	p := c.types[url]
	return p.version, p.hasAccepted
}

// IsWildcard reports whether all resources of a type are subscribed.
func (c *Client) IsWildcard(url string) bool { return c.types[url].wildcard }

// Subscription returns the subscription to a type: all resources, or the names in order. The caller
// must not modify names.
func (c *Client) Subscription(url string) (all bool, names []string) {
	p := c.types[url]
	return p.wildcard, p.subscribedNames()
}

// subscribedNames returns the subscribed names in order. It caches them because every
// StateOfTheWorld request lists all of them.
func (p *typeState) subscribedNames() []string {
	if p.sortedNames == nil {
		p.sortedNames = slices.Sorted(maps.Keys(p.subscribed))
	}
	return p.sortedNames
}
