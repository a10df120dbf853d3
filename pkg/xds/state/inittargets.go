package state

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
)

// InitTargets are the dependencies that a listener waits for, as targets of Envoy's init manager.
type InitTargets struct {
	Listener string
	Version  uint64   // hash that identifies the received version
	Targets  []string // such as "shared target SdsApi NAME"
}

// InitTargets returns the targets of the listeners that are not active in their received version,
// sorted by name. If all is set, it also returns the active listeners, which have no targets.
func (s *State) InitTargets(all bool) (out []InitTargets) {
	for _, name := range slices.Sorted(maps.Keys(s.listeners.byName)) {
		e := s.listeners.byName[name]
		if e.Received == nil || !all && e.Received == e.Active {
			continue
		}
		targets := InitTargets{Listener: name, Version: listenerVersion(name, e)}
		if e.Received != e.Active {
			targets.Targets = s.initTargets(name, e)
		}
		out = append(out, targets)
	}
	return out
}

// initTargets returns the names that Envoy gives to the missing dependencies of a listener. Envoy
// has no listener while clusters of the first response or runtime layers are missing, so it has no
// such names for them.
func (s *State) initTargets(name string, e *Listener) (targets []string) {
	for _, d := range s.listenerDependencies(name, e) {
		switch d.kind {
		case kindRoutes:
			targets = append(targets, "shared target RdsRouteConfigSubscription RDS init "+d.name)
		case kindFilter:
			targets = append(targets, "shared target FilterConfigSubscription init "+d.name)
		case kindRuntime:
			targets = append(targets, "target RTDS "+d.name)
		default:
			targets = append(targets, "target "+d.kind+" "+d.name)
		}
	}
	for _, ref := range e.Received.Secrets() {
		if s.secrets[ref] == nil {
			targets = append(targets, "shared target SdsApi "+ref.Name)
		}
	}
	return targets
}

// listenerVersion returns a hash of the name and of the time when the version arrived.
func listenerVersion(name string, e *Listener) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(e.ReceivedAt.UnixNano())))
	return h.Sum64()
}
