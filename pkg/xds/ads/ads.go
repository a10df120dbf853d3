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

// These are the variants of the protocol.
const (
	StateOfTheWorld Mode = iota // for some types, a response has all resources: see AllResourcesRequiredInSotW
	Delta                       // a response has changed resources, and the names of removed resources
)

// Type is a type of resources.
type Type struct {
	URL string // type URL, as in google.protobuf.Any
	// AllResourcesRequiredInSotW means that a StateOfTheWorld response lists all resources of the
	// type and removes those that it omits. In StateOfTheWorld, resources of other types are removed
	// only when the client unsubscribes from them.
	AllResourcesRequiredInSotW bool
}

// Resource is one resource of a response.
type Resource struct {
	Name    string
	Version string // version of the resource; "" in StateOfTheWorld
	Body    []byte // serialized message without its type URL; immutable
	// Heartbeat means that the resource only refreshes the time to live of the accepted resource. A
	// heartbeat has no Body, and the accepted resource stays.
	Heartbeat bool
	// DecodeError is why the client rejects the resource before it is validated; "": no error. If
	// it is set, Name may be a placeholder.
	DecodeError string
}

// Request is a DiscoveryRequest or DeltaDiscoveryRequest without the node.
type Request struct {
	Type    string // type URL
	First   bool   // first request of the stream, to which the sender adds the node
	Version string // version of the last accepted response; StateOfTheWorld
	// Nonce is the nonce of the response that this request acknowledges. In StateOfTheWorld, other
	// requests have the nonce of the last response. "" means none.
	Nonce string
	// Names are all subscribed names in StateOfTheWorld. Empty means all resources of the type, or
	// none if an earlier request on the stream had names. Immutable.
	Names []string
	// Subscribe and Unsubscribe change a Delta subscription. InitialVersions holds the versions of
	// the accepted resources, by name, in the first Delta request of a type on a stream.
	Subscribe, Unsubscribe []string
	InitialVersions        map[string]string
	// ErrorDetail is why the response was rejected (NACK). "" means that the response was accepted, or
	// that the request acknowledges none.
	ErrorDetail string
}

// Response is a DiscoveryResponse or DeltaDiscoveryResponse.
type Response struct {
	Type      string // type URL
	Version   string // version of the whole response
	Nonce     string
	Resources []Resource
	Removed   []string // names; Delta
}

// Update holds the resources of a response that differ from the accepted ones. The caller validates
// the Update, applies it and passes it to Acknowledge.
type Update struct {
	Type    string
	Version string
	Changed []Resource // names are unique
	// Removed is sorted. In Delta, it may contain subscribed names that never existed.
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
	wildcard     bool                // all resources are subscribed
	subscribed   map[string]bool     // set of names
	sortedNames  []string            // the names of subscribed in order; nil: not computed yet; immutable
	resources    map[string]Resource // the accepted resources; the key is the name
	doesNotExist map[string]bool     // subscribed names that the server has reported as nonexistent
	version      string              // version of the last accepted response
	nonce        string              // nonce of the last response on this stream
	requested    bool                // a request of the type was returned for this stream
	hasAccepted  bool                // a response was accepted, on any stream
}

// New returns a client without subscriptions. At the start of a stream it requests types in the
// given order.
func New(mode Mode, types ...Type) *Client {
	c := &Client{mode: mode, types: make(map[string]*typeState, len(types))}
	for _, t := range types {
		s := &typeState{Type: t, subscribed: map[string]bool{}, resources: map[string]Resource{}, doesNotExist: map[string]bool{}}
		c.types[t.URL] = s
		c.startOrder = append(c.startOrder, s)
	}
	return c
}

// StreamOpened records that a stream has started, and returns the first requests to send on it.
func (c *Client) StreamOpened() []Request {
	c.streamOpen, c.requestSent = true, false
	var requests []Request
	for _, s := range c.startOrder {
		s.requested, s.nonce = false, ""
		if s.wildcard || len(s.subscribed) > 0 {
			requests = append(requests, c.fullRequest(s))
		}
	}
	return requests
}

// StreamClosed records that the stream has ended. Accepted resources stay.
func (c *Client) StreamClosed() { c.streamOpen = false }

// Restore adds a resource that an earlier Client accepted.
func (c *Client) Restore(url string, r Resource) { c.types[url].resources[r.Name] = r }

// SubscribeAll subscribes to all resources of a type and returns the requests to send.
func (c *Client) SubscribeAll(url string) []Request {
	s := c.types[url]
	if s.wildcard {
		return nil
	}
	s.wildcard = true
	if !c.streamOpen {
		return nil
	}
	return []Request{c.fullRequest(s)}
}

// SetSubscription replaces the subscribed names of a type and returns the requests to send. It
// drops the resources that are no longer subscribed.
func (c *Client) SetSubscription(url string, names []string) []Request {
	next := make(map[string]bool, len(names))
	for _, n := range names {
		next[n] = true
	}
	var remove []string
	for n := range c.types[url].subscribed {
		if !next[n] {
			remove = append(remove, n)
		}
	}
	return c.UpdateSubscription(url, names, remove)
}

// UpdateSubscription adds names to the subscription of a type and removes others, and returns the
// requests to send. It drops the resources of removed names. In Delta, the cost of a call depends
// only on the number of names passed. The first request of a type on a stream costs more.
func (c *Client) UpdateSubscription(url string, add, remove []string) []Request {
	s := c.types[url]
	var added, removed []string
	for _, n := range add {
		if !s.subscribed[n] {
			s.subscribed[n] = true
			added = append(added, n)
		}
	}
	for _, n := range remove {
		if s.subscribed[n] {
			delete(s.subscribed, n)
			delete(s.resources, n)
			delete(s.doesNotExist, n)
			removed = append(removed, n)
		}
	}
	if len(added)+len(removed) == 0 {
		return nil
	}
	s.sortedNames = nil
	if !c.streamOpen || s.wildcard {
		return nil
	}
	if c.mode == StateOfTheWorld || !s.requested {
		return []Request{c.fullRequest(s)}
	}
	slices.Sort(added)
	slices.Sort(removed)
	return []Request{c.completeRequest(s, Request{Subscribe: added, Unsubscribe: removed})}
}

// fullRequest returns the request for the complete subscription of a type.
func (c *Client) fullRequest(s *typeState) Request {
	isFirst := !s.requested
	s.requested = true
	var names []string
	if !s.wildcard {
		names = s.subscribedNames()
	}
	if c.mode == StateOfTheWorld {
		return c.completeRequest(s, Request{Version: s.version, Nonce: s.nonce, Names: names})
	}
	r := Request{Subscribe: names}
	if isFirst {
		r.InitialVersions = s.acceptedVersions()
	}
	return c.completeRequest(s, r)
}

// acceptedVersions returns the versions of the accepted resources that have one.
func (s *typeState) acceptedVersions() map[string]string {
	versions := make(map[string]string, len(s.resources))
	for name, r := range s.resources {
		if r.Version != "" {
			versions[name] = r.Version
		}
	}
	return versions
}

// completeRequest sets Type and First of r, the next request to send.
func (c *Client) completeRequest(s *typeState, r Request) Request {
	r.Type = s.URL
	r.First = !c.requestSent
	c.requestSent = true
	return r
}

// Receive processes a response and returns the changes in it. The caller passes them to Acknowledge
// even if they are empty. ok is false if the type was not requested on the open stream, or no
// stream is open; the caller ignores such a response.
func (c *Client) Receive(r Response) (u Update, ok bool) {
	s := c.types[r.Type]
	if s == nil || !s.requested || !c.streamOpen {
		return Update{}, false
	}
	s.nonce = r.Nonce
	u = Update{Type: r.Type, Version: r.Version, nonce: r.Nonce}
	indexes := make(map[string]int, len(r.Resources)) // index in Changed; -1: unchanged
	for _, res := range r.Resources {
		if !s.wildcard && !s.subscribed[res.Name] && res.DecodeError == "" {
			continue
		}
		i, dup := indexes[res.Name]
		switch {
		case dup && i >= 0:
			if first := &u.Changed[i]; !bytes.Equal(first.Body, res.Body) {
				first.DecodeError = reasonDuplicateName
			}
		case dup && s.isUnchanged(res):
		case dup: // the first resource with this name is unchanged, this one is not
			indexes[res.Name] = len(u.Changed)
			res.DecodeError = reasonDuplicateName
			u.Changed = append(u.Changed, res)
		case s.isUnchanged(res):
			indexes[res.Name] = -1
		default:
			indexes[res.Name] = len(u.Changed)
			u.Changed = append(u.Changed, res)
		}
	}
	u.Removed = c.removedNames(s, r, indexes)
	return u, true
}

// reasonDuplicateName rejects different resources with the same name, because neither takes
// precedence.
const reasonDuplicateName = "the response has two different resources with this name"

// isUnchanged reports whether res is a heartbeat or equals the accepted resource. If only the
// version differs, isUnchanged stores the new version.
func (s *typeState) isUnchanged(res Resource) bool {
	accepted, ok := s.resources[res.Name]
	switch {
	case res.Heartbeat:
		return true
	case res.DecodeError != "":
		return false
	case !ok || !bytes.Equal(accepted.Body, res.Body):
		return false
	case accepted.Version != res.Version:
		accepted.Version = res.Version
		s.resources[res.Name] = accepted
	}
	return true
}

// removedNames returns the names that a response removes, sorted.
func (c *Client) removedNames(s *typeState, r Response, indexes map[string]int) (removed []string) {
	if c.mode == Delta {
		for _, n := range r.Removed {
			_, present := indexes[n]
			_, accepted := s.resources[n]
			if !present && (accepted || s.subscribed[n]) {
				removed = append(removed, n)
			}
		}
	} else if s.AllResourcesRequiredInSotW && !slices.ContainsFunc(r.Resources, func(res Resource) bool { return res.DecodeError != "" }) {
		// A resource with a DecodeError may be any of the missing resources, so a response that
		// contains such a resource removes nothing.
		for n := range s.resources {
			if _, ok := indexes[n]; !ok {
				removed = append(removed, n)
			}
		}
	}
	slices.Sort(removed)
	return slices.Compact(removed)
}

// Acknowledge ends an update. The caller has applied all of u except rejected, whose previous
// versions stay active, even if u removes them. Acknowledge returns the ACK or NACK to send. ok is
// false if the stream of the update has ended or a newer response of the type has arrived.
func (c *Client) Acknowledge(u Update, rejected []ResourceError) (r Request, ok bool) {
	s := c.types[u.Type]
	rejectedNames := make(map[string]bool, len(rejected))
	for _, e := range rejected {
		rejectedNames[e.Name] = true
	}
	for _, res := range u.Changed {
		delete(s.doesNotExist, res.Name)
		if !rejectedNames[res.Name] && (s.wildcard || s.subscribed[res.Name]) {
			s.resources[res.Name] = res
		}
	}
	for _, name := range u.Removed {
		if rejectedNames[name] {
			continue
		}
		delete(s.resources, name)
		if s.subscribed[name] {
			s.doesNotExist[name] = true
		}
	}
	if len(rejected) == 0 {
		s.version, s.hasAccepted = u.Version, true
	}
	if !c.streamOpen || s.nonce != u.nonce {
		return Request{}, false
	}
	r = Request{Nonce: u.nonce, ErrorDetail: errorDetail(rejected)}
	if c.mode == StateOfTheWorld {
		r.Version = s.version
		if !s.wildcard {
			r.Names = s.subscribedNames()
		}
	}
	return c.completeRequest(s, r), true
}

// errorDetail joins the reasons of the rejected resources, at most maxReasons of them.
func errorDetail(rejected []ResourceError) string {
	const maxReasons = 16 // limits the text for the server's log
	var text strings.Builder
	for i, e := range rejected {
		if i > 0 {
			text.WriteString("; ")
		}
		if i == maxReasons {
			text.WriteString("and more")
			break
		}
		text.WriteString(e.Name + ": " + truncateReason(e.Reason))
	}
	return text.String()
}

// truncateReason limits the length of a reason, because many servers limit the size of a request.
func truncateReason(reason string) string {
	const maxLength = 4 << 10
	if len(reason) <= maxLength {
		return reason
	}
	return strings.ToValidUTF8(reason[:maxLength], "") + "… and more"
}

// Resources returns the accepted resources of a type; the keys are their names. The caller must not
// modify the map, which is valid until the next call.
func (c *Client) Resources(url string) map[string]Resource { return c.types[url].resources }

// DoesNotExist reports whether a name is subscribed and the server has reported that the resource
// does not exist. In StateOfTheWorld, only a response that omits an accepted resource of a type
// with AllResourcesRequiredInSotW reports that.
func (c *Client) DoesNotExist(url, name string) bool { return c.types[url].doesNotExist[name] }

// Version returns the version of the last response of a type that was accepted as a whole; ok is
// false if there is none.
func (c *Client) Version(url string) (version string, ok bool) {
	s := c.types[url]
	return s.version, s.hasAccepted
}

// IsWildcard reports whether all resources of a type are subscribed.
func (c *Client) IsWildcard(url string) bool { return c.types[url].wildcard }

// Subscription returns the subscription to a type: all resources, or the names in order. The caller
// must not modify names.
func (c *Client) Subscription(url string) (wildcard bool, names []string) {
	s := c.types[url]
	return s.wildcard, s.subscribedNames()
}

// subscribedNames returns the subscribed names in order. It caches them because every
// StateOfTheWorld request lists all of them.
func (s *typeState) subscribedNames() []string {
	if s.sortedNames == nil {
		s.sortedNames = slices.Sorted(maps.Keys(s.subscribed))
	}
	return s.sortedNames
}
