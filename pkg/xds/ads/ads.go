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

// Form is which of its two forms the protocol is spoken in.
type Form uint8

// The forms.
const (
	StateOfTheWorld Form = iota // a response has all resources of its type that are asked for
	Delta                       // a response has what changed
)

// Type is a type of resources.
type Type struct {
	URL string // as in a google.protobuf.Any
	// Whole: a response in StateOfTheWorld has all that there are, so that what it has
	// not is gone. Of other types it is gone when nobody wants it any more.
	Whole bool
}

// Resource is one resource as it came.
type Resource struct {
	Name    string
	Version string // its own; "" in StateOfTheWorld
	Body    []byte // serialized; immutable, kept for as long as the resource is held
	// Alive: there is no Body, the resource that is held stays (a heartbeat of one with
	// a time to live).
	Alive bool
	// Fault is why it cannot be told what this is, so that it is refused; "": it can. Its
	// Name may be made up.
	Fault string
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
	Held                   map[string]string
	Refusal                string // why the response was not accepted; "": it was, or this answers none
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

// Wrong is a resource that cannot be accepted.
type Wrong struct {
	Name   string
	Reason string
}

// Client is the state of a consumer, which outlives the streams that it is fed by. It
// is one goroutine's. The zero value is not usable; New makes one.
type Client struct {
	form   Form
	order  []*topic // as types are asked for at the start of a stream
	topics map[string]*topic
	open   bool // there is a stream
	spoken bool // and something was sent on it
}

// topic is one type.
type topic struct {
	Type
	all      bool            // everything is wanted
	names    map[string]bool // or these
	sorted   []string        // names in order; nil: not made since they changed. Immutable
	held     map[string]Resource
	absent   map[string]bool // of names: the server has said that there is none. Delta
	version  string          // of the last response that was accepted
	nonce    string          // of the last response of this stream
	asked    bool            // on this stream
	accepted bool            // some response was accepted, of whatever stream
}

// New returns a client that wants nothing yet. At the start of a stream types are
// asked for in the given order.
func New(form Form, types ...Type) *Client {
	c := &Client{form: form, topics: make(map[string]*topic, len(types))}
	for _, t := range types {
		p := &topic{Type: t, names: map[string]bool{}, held: map[string]Resource{}, absent: map[string]bool{}}
		c.topics[t.URL] = p
		c.order = append(c.order, p)
	}
	return c
}

// Start says that a stream has begun, and returns what to send on it first.
func (c *Client) Start() []Request {
	c.open, c.spoken = true, false
	var all []Request
	for _, p := range c.order {
		p.asked, p.nonce = false, ""
		if p.all || len(p.names) > 0 {
			all = append(all, c.ask(p))
		}
	}
	return all
}

// End says that the stream is over. What is held stays.
func (c *Client) End() { c.open = false }

// Keep says that a resource is held that an earlier Client accepted.
func (c *Client) Keep(url string, r Resource) { c.topics[url].held[r.Name] = r }

// WantAll asks for all resources of a type, of whatever name.
func (c *Client) WantAll(url string) []Request {
	p := c.topics[url]
	if p.all {
		return nil
	}
	p.all = true
	if !c.open {
		return nil
	}
	return []Request{c.ask(p)}
}

// Want says which resources of a type are wanted from now on, instead of those before.
// What is not wanted any more is forgotten.
func (c *Client) Want(url string, names []string) []Request {
	next := make(map[string]bool, len(names))
	for _, n := range names {
		next[n] = true
	}
	var less []string
	for n := range c.topics[url].names {
		if !next[n] {
			less = append(less, n)
		}
	}
	return c.Change(url, names, less)
}

// Change says which resources of a type are wanted beside those before, and which of those
// are not any more, and forgotten therefore. Its cost, in Delta, is theirs.
func (c *Client) Change(url string, wanted, unwanted []string) []Request {
	p := c.topics[url]
	var more, less []string
	for _, n := range wanted {
		if !p.names[n] {
			p.names[n] = true
			more = append(more, n)
		}
	}
	for _, n := range unwanted {
		if p.names[n] {
			delete(p.names, n)
			delete(p.held, n)
			delete(p.absent, n)
			less = append(less, n)
		}
	}
	if len(more)+len(less) == 0 {
		return nil
	}
	p.sorted = nil
	if !c.open || p.all {
		return nil
	}
	if c.form == StateOfTheWorld || !p.asked {
		return []Request{c.ask(p)}
	}
	slices.Sort(more)
	slices.Sort(less)
	return []Request{c.say(p, Request{Subscribe: more, Unsubscribe: less})}
}

// ask is the request that says all that is wanted of a type.
func (c *Client) ask(p *topic) Request {
	first := !p.asked
	p.asked = true
	var names []string
	if !p.all {
		names = p.inOrder()
	}
	if c.form == StateOfTheWorld {
		return c.say(p, Request{Version: p.version, Nonce: p.nonce, Names: names})
	}
	r := Request{Subscribe: names}
	if first {
		r.Held = p.versions()
	}
	return c.say(p, r)
}

// versions are those of the resources whose version is known.
func (p *topic) versions() map[string]string {
	all := make(map[string]string, len(p.held))
	for name, r := range p.held {
		if r.Version != "" {
			all[name] = r.Version
		}
	}
	return all
}

// say completes a request of a type, which is sent now.
func (c *Client) say(p *topic, r Request) Request {
	r.Type = p.URL
	r.First = !c.spoken
	c.spoken = true
	return r
}

// Receive takes a response and returns what is new in it, which is to be concluded even
// if it is nothing. ok is false for a type that nobody asked for: there is nothing to
// be said about that.
func (c *Client) Receive(r Response) (u Update, ok bool) {
	p := c.topics[r.Type]
	if p == nil || !p.asked || !c.open {
		return Update{}, false
	}
	p.nonce = r.Nonce
	u = Update{Type: r.Type, Version: r.Version, nonce: r.Nonce}
	here := make(map[string]int, len(r.Resources)) // and where in Changed; below 0: it is no change
	for _, n := range r.Resources {
		if !p.all && !p.names[n.Name] && n.Fault == "" {
			continue
		}
		at, twice := here[n.Name]
		switch {
		case twice && at >= 0:
			if first := &u.Changed[at]; !bytes.Equal(first.Body, n.Body) {
				first.Fault = twoOfAName
			}
		case twice && p.same(n):
		case twice: // the first one is what is held
			here[n.Name] = len(u.Changed)
			n.Fault = twoOfAName
			u.Changed = append(u.Changed, n)
		case p.same(n):
			here[n.Name] = -1
		default:
			here[n.Name] = len(u.Changed)
			u.Changed = append(u.Changed, n)
		}
	}
	u.Removed = c.gone(p, r, here)
	return u, true
}

// twoOfAName is wrong with resources of one name that differ: neither is to be preferred.
const twoOfAName = "the response has two different resources with this name"

// same reports whether n is what is held, and notes its version if it is.
func (p *topic) same(n Resource) bool {
	held, ok := p.held[n.Name]
	switch {
	case n.Alive:
		return true
	case n.Fault != "":
		return false
	case !ok || !bytes.Equal(held.Body, n.Body):
		return false
	case held.Version != n.Version:
		held.Version = n.Version
		p.held[n.Name] = held
	}
	return true
}

// gone returns what a response takes away, in order.
func (c *Client) gone(p *topic, r Response, here map[string]int) (gone []string) {
	if c.form == Delta {
		for _, n := range r.Removed {
			_, back := here[n]
			_, held := p.held[n]
			if !back && (held || p.names[n]) {
				gone = append(gone, n)
			}
		}
	} else if p.Whole && !slices.ContainsFunc(r.Resources, func(n Resource) bool { return n.Fault != "" }) {
		// What cannot be told may be any of those that seem to be gone.
		for n := range p.held {
			if _, ok := here[n]; !ok {
				gone = append(gone, n)
			}
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// Conclude says what became of an update: all of it is in force but what is wrong, of
// which what was held before stays, also where it was to go. It returns the request that tells the server so;
// ok is false if the stream of the update has ended.
func (c *Client) Conclude(u Update, wrong []Wrong) (r Request, ok bool) {
	p := c.topics[u.Type]
	bad := make(map[string]bool, len(wrong))
	for _, w := range wrong {
		bad[w.Name] = true
	}
	for _, n := range u.Changed {
		delete(p.absent, n.Name)
		if !bad[n.Name] && (p.all || p.names[n.Name]) {
			p.held[n.Name] = n
		}
	}
	for _, n := range u.Removed {
		if bad[n] {
			continue
		}
		delete(p.held, n)
		if p.names[n] {
			p.absent[n] = true
		}
	}
	if len(wrong) == 0 {
		p.version, p.accepted = u.Version, true
	}
	if !c.open || p.nonce != u.nonce {
		return Request{}, false
	}
	r = Request{Nonce: u.nonce, Refusal: refusal(wrong)}
	if c.form == StateOfTheWorld {
		r.Version = p.version
		if !p.all {
			r.Names = p.inOrder()
		}
	}
	return c.say(p, r), true
}

// refusal is the text that says what is wrong, of one resource after the other.
func refusal(wrong []Wrong) string {
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
		text.WriteString(w.Name + ": " + shortened(w.Reason))
	}
	return text.String()
}

// shortened returns a reason that a server can be told: many limit what they receive.
func shortened(reason string) string {
	const most = 4 << 10
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + "… and more"
}

// Held returns the resources of a type that were accepted and are still wanted, by
// name. It is a view: not to be changed, and valid until the next call.
func (c *Client) Held(url string) map[string]Resource { return c.topics[url].held }

// Absent reports whether a resource is wanted by its name, and the server has said that
// there is none. In StateOfTheWorld no server says so.
func (c *Client) Absent(url, name string) bool { return c.topics[url].absent[name] }

// Version returns the version of the last response of a type that was accepted whole;
// ok is false if none was.
func (c *Client) Version(url string) (version string, ok bool) {
	p := c.topics[url]
	return p.version, p.accepted
}

// WantsAll reports whether all of a type is wanted, not only what is named.
func (c *Client) WantsAll(url string) bool { return c.topics[url].all }

// Wanted returns what is wanted of a type: everything, or names in order, which must not be
// changed.
func (c *Client) Wanted(url string) (all bool, names []string) {
	p := c.topics[url]
	return p.all, p.inOrder()
}

// inOrder returns the names that are wanted, in order: each answer of StateOfTheWorld has
// all of them.
func (p *topic) inOrder() []string {
	if p.sorted == nil {
		p.sorted = slices.Sorted(maps.Keys(p.names))
	}
	return p.sorted
}
