package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// History records which resources of one control plane were accepted and rejected, and its last ACK
// and NACK. The zero value is empty. It is not safe for concurrent use.
type History struct {
	acks      map[string]*acks                       // by type
	resources map[string]map[string]*resourceHistory // by type and name
}

// acks holds the last ACK and the last NACK of a type; nil: none.
type acks struct{ lastAck, lastNack *Ack }

// resourceHistory is the history of one resource.
type resourceHistory struct {
	version      string    // last accepted version; "": none
	updated      time.Time // when version was accepted
	rejectReason string    // why the last change was rejected; "": it was accepted
	rejectedAt   time.Time
	removed      *ads.Resource // last accepted version of a removed secret, which stays in use; nil: not removed
}

// RecordUpdate records which resources of u were accepted, rejected or removed. errs lists the
// rejected ones. accepted holds the resources of the type that were accepted before u.
func (h *History) RecordUpdate(u ads.Update, errs []ads.ResourceError, accepted map[string]ads.Resource, now time.Time) {
	byName := h.resources[u.Type]
	if byName == nil {
		byName = map[string]*resourceHistory{}
		if h.resources == nil {
			h.resources = map[string]map[string]*resourceHistory{}
		}
		h.resources[u.Type] = byName
	}
	reasons := make(map[string]string, len(errs))
	for _, e := range errs {
		reasons[e.Name] = e.Reason
	}
	for _, res := range u.Changed {
		if res.DecodeError != "" { // its name may be a placeholder
			delete(reasons, res.Name)
			continue
		}
		r := byName[res.Name]
		if r == nil {
			r = &resourceHistory{}
			byName[res.Name] = r
		}
		if reason, rejected := reasons[res.Name]; rejected {
			r.rejectReason, r.rejectedAt = reason, now
			continue
		}
		*r = resourceHistory{version: versionOf(u, res), updated: now}
	}
	for _, name := range u.Removed {
		r := byName[name]
		if r == nil {
			continue
		}
		reason, rejected := reasons[name]
		last, wasAccepted := accepted[name]
		switch {
		case rejected: // still active
			r.rejectReason, r.rejectedAt = reason, now
		case u.Type != resource.SecretType || !wasAccepted && r.removed == nil:
			delete(byName, name)
		case wasAccepted: // the last version of a secret stays in use
			r.removed = &last
		}
	}
}

// RecordAck records the ACK of an update, or its NACK if reason is not empty.
func (h *History) RecordAck(u ads.Update, reason string, now time.Time) {
	r := h.acks[u.Type]
	if r == nil {
		r = &acks{}
		if h.acks == nil {
			h.acks = map[string]*acks{}
		}
		h.acks[u.Type] = r
	}
	ack := &Ack{Version: u.Version, At: now, Reason: reason}
	if reason != "" {
		r.lastNack = ack
	} else {
		r.lastAck = ack
	}
}

// RecordRejection records that an accepted resource could not be applied.
func (h *History) RecordRejection(typeURL, name, reason string, at time.Time) {
	if r := h.resources[typeURL][name]; r != nil {
		r.rejectReason, r.rejectedAt = reason, at
	}
}

// Forget drops the history of resources that are no longer subscribed, because no control plane
// reports their removal.
func (h *History) Forget(typeURL string, names []string) {
	for _, name := range names {
		delete(h.resources[typeURL], name)
	}
}

// ForgetRemoved drops the history of rejected resources that r removes and that have no accepted
// version; RecordUpdate handles the others. In state of the world, r removes the resources that it
// does not contain. c has acknowledged r. ForgetRemoved has no effect unless the subscription is a
// wildcard.
func (h *History) ForgetRemoved(c *ads.Client, mode ads.Mode, r *ads.Response) {
	if !c.IsWildcard(r.Type) {
		return
	}
	accepted, byName := c.Resources(r.Type), h.resources[r.Type]
	if mode == ads.Delta {
		for _, name := range r.Removed {
			if _, ok := accepted[name]; !ok {
				delete(byName, name)
			}
		}
		return
	}
	present := make(map[string]bool, len(r.Resources))
	for _, res := range r.Resources {
		if res.DecodeError != "" {
			return // it may be one of the missing resources
		}
		present[res.Name] = true
	}
	maps.DeleteFunc(byName, func(name string, _ *resourceHistory) bool {
		_, ok := accepted[name]
		return !ok && !present[name]
	})
}

// HasResponse reports whether a response of a type was accepted or rejected.
func (h *History) HasResponse(typeURL string) bool { return h.acks[typeURL] != nil }

// IsRejected reports whether the last version of a resource was rejected.
func (h *History) IsRejected(typeURL, name string) bool {
	r := h.resources[typeURL][name]
	return r != nil && r.rejectReason != ""
}

func versionOf(u ads.Update, res ads.Resource) string {
	if res.Version != "" {
		return res.Version
	}
	return u.Version
}

// copyOf returns a copy of the history of a type, without the resources that are neither in use nor
// rejected. accepted holds the accepted resources of the type.
func (h *History) copyOf(typeURL string, accepted map[string]ads.Resource) map[string]resourceHistory {
	out := map[string]resourceHistory{}
	for name, r := range h.resources[typeURL] {
		if _, isAccepted := accepted[name]; isAccepted || r.removed != nil || r.rejectReason != "" {
			out[name] = *r
		}
	}
	return out
}

// summary returns the subscribed resources whose last version was rejected, sorted by name, and
// when a subscribed resource was last accepted. If wildcard is false, only names are subscribed;
// they are sorted.
func (h *History) summary(typeURL string, wildcard bool, names []string) (rejected []RejectedResource, changed time.Time) {
	for name, r := range h.resources[typeURL] {
		if _, subscribed := slices.BinarySearch(names, name); !wildcard && !subscribed {
			continue // no longer subscribed
		}
		if r.rejectReason != "" {
			rejected = append(rejected, RejectedResource{Name: name, Version: r.version, Reason: r.rejectReason, At: r.rejectedAt})
		}
		if r.updated.After(changed) {
			changed = r.updated
		}
	}
	slices.SortFunc(rejected, func(a, b RejectedResource) int { return strings.Compare(a.Name, b.Name) })
	return rejected, changed
}
