// Package state holds the received xDS resources and decides which of them are active.
//
//	Stage, SetStatic    store resources of a control plane or              stage.go, static.go
//	                    of static_resources
//	  │ entries to evaluate
//	Reconcile           activates complete clusters and listeners          entries.go
//	  │ Change
//	AppendTo            adds the active resources to a config.Snapshot
//
// A cluster becomes active when its endpoints and secrets have arrived, a listener when its route
// tables, filters, runtime layers and secrets have arrived. All waits except those for secrets can
// time out. The previous version of a resource stays active until the new one is. The order in
// which resources arrive does not change the resulting configuration.
//
// The package is pure: it does no I/O, and the caller passes the time.
package state

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Options configure a State.
type Options struct {
	Bootstrap *bootstrap.Bootstrap
	OnDemand  config.XDSOnDemand
	// Owner returns the configuration layer, other than xDS, that defines a resource; "": none.
	// Stage and CheckStaticNames reject such a resource. If Owner is nil, no other layer exists.
	Owner func(typeURL, name string) string
	// Capabilities are the features that resources may use. The State sets Node and Runtime.
	Capabilities resource.Capabilities
	// Started is when the waits for runtime layers begin. With the zero value, listeners wait only
	// for layers without a timeout.
	Started time.Time
}

// State holds the received resources. It is not safe for concurrent use.
//
// Rollback undoes the changes of resources since the last Checkpoint. The caller ends every
// operation with Checkpoint, so that replaced resources can be freed.
type State struct {
	boot         *bootstrap.Bootstrap  // immutable
	capabilities resource.Capabilities // immutable; see Options

	clusters    entries[resource.Cluster, config.Cluster]
	listeners   entries[resource.Listener, config.Listener]
	assignments map[string]*resource.LoadAssignment
	tables      map[string]*resource.RouteTable
	secrets     map[resource.SecretRef]*resource.Secret
	extensions  map[string]*resource.Extension
	runtime     layeredRuntime

	static      *bootstrap.StaticResources        // static_resources; the fields above include them
	staticNames staticNames                       // names in static
	otherOwner  func(typeURL, name string) string // see Options.Owner

	dirtyTables map[string]bool // tables that have changed since the last Reconcile
	dependents  dependents
	references  references
	onDemand    *onDemandState // nil: all referenced resources are subscribed
	warmup      *warmup        // nil: the warm-up has not started, or has ended

	undo undoLog
}

// dependents maps each resource to the names of the clusters or listeners that refer or referred to
// it.
type dependents struct {
	assignments     map[string]map[string]bool             // to cluster names
	clusterSecrets  map[resource.SecretRef]map[string]bool // to cluster names
	tables          map[string]map[string]bool             // to listener names
	listenerSecrets map[resource.SecretRef]map[string]bool // to listener names
	extensions      map[string]map[string]bool             // to listener names
}

// Change is the result of a Reconcile.
type Change struct {
	Clusters        []*config.Cluster    // new and changed clusters, sorted by name
	RemovedClusters []string             // sorted
	Tables          []*config.RouteTable // changed tables that active listeners use, sorted by name
	// ListenersChanged: the active configuration of a listener changed or was removed.
	ListenersChanged   bool
	ActivatedListeners []string // listeners whose active version changed, sorted
}

// IsEmpty reports whether the active configuration stayed the same.
func (c *Change) IsEmpty() bool {
	return len(c.Clusters)+len(c.RemovedClusters)+len(c.Tables) == 0 && !c.ListenersChanged
}

// New returns a State without resources. Its warm-up has not started.
func New(o Options) *State {
	s := &State{
		boot:         o.Bootstrap,
		capabilities: o.Capabilities,
		assignments:  map[string]*resource.LoadAssignment{},
		tables:       map[string]*resource.RouteTable{},
		static:       &bootstrap.StaticResources{},
		secrets:      map[resource.SecretRef]*resource.Secret{},
		extensions:   map[string]*resource.Extension{},
		runtime:      layeredRuntime{layers: o.Bootstrap.Layers, startedAt: o.Started}.merge(),
		dirtyTables:  map[string]bool{},
		references:   newReferences(),
		onDemand:     newOnDemandState(o.OnDemand),
		otherOwner:   o.Owner,
		dependents: dependents{
			assignments:     map[string]map[string]bool{},
			clusterSecrets:  map[resource.SecretRef]map[string]bool{},
			tables:          map[string]map[string]bool{},
			listenerSecrets: map[resource.SecretRef]map[string]bool{},
			extensions:      map[string]map[string]bool{},
		},
	}
	if s.otherOwner == nil {
		s.otherOwner = func(string, string) string { return "" }
	}
	s.capabilities.Node = resource.NodeOf(o.Bootstrap.Node)
	s.clusters = newEntries(s.clusterFuncs(), &s.undo)
	s.listeners = newEntries(s.listenerFuncs(), &s.undo)
	s.references.secrets.isExcluded = s.isStaticSecret
	return s
}

// Checkpoint makes the changes so far final: Rollback undoes only later changes.
func (s *State) Checkpoint() { s.undo.clear() }

// Rollback undoes the changes since the last Checkpoint. The caller reconciles afterwards.
func (s *State) Rollback() { s.undo.rollback() }

// undoLog holds the functions that undo the changes since the last checkpoint, in the order of the
// changes. They keep the replaced resources in memory.
type undoLog struct{ functions []func() }

func (l *undoLog) add(f func()) { l.functions = append(l.functions, f) }

// do calls change(false), and change(true) on rollback.
func (l *undoLog) do(change func(undo bool)) {
	change(false)
	l.add(func() { change(true) })
}

func (l *undoLog) rollback() {
	for _, f := range slices.Backward(l.functions) {
		f()
	}
	l.clear()
}

func (l *undoLog) clear() {
	const maxKept = 64
	if cap(l.functions) > maxKept { // release the storage of a large update
		l.functions = nil
		return
	}
	clear(l.functions)
	l.functions = l.functions[:0]
}

// Reconcile activates the resources that are complete and returns the changes. next is when the
// caller must call it again because a timeout expires; zero: never.
func (s *State) Reconcile(now time.Time) (c Change, next time.Time) {
	s.expireOnDemand(now)
	s.clusters.reconcile(now, &c, func(name string, due time.Time) time.Time { return s.updateWarmup(name, due, now) })
	next = s.endWarmupIfDone(now)
	s.listeners.reconcile(now, &c, nil)
	for _, name := range slices.Sorted(maps.Keys(s.dirtyTables)) {
		if s.usesTable(name) {
			c.Tables = append(c.Tables, s.activeTable(name))
		}
	}
	s.dirtyTables = resetSet(s.dirtyTables)
	for _, deadlines := range append(s.onDemandDeadlines(), s.clusters.deadlines, s.listeners.deadlines) {
		for _, deadline := range deadlines {
			if next.IsZero() || deadline.Before(next) {
				next = deadline
			}
		}
	}
	return c, next
}

// usesTable reports whether an active listener refers to a route table.
func (s *State) usesTable(table string) bool {
	for listener := range s.dependents.tables[table] {
		if e := s.listeners.byName[listener]; e != nil && e.ActiveConfig != nil && slices.Contains(e.Active.RouteConfigNames, table) {
			return true
		}
	}
	return false
}

// AppendTo adds the active clusters, listeners and route tables to next.
func (s *State) AppendTo(next *config.Snapshot) {
	for _, name := range slices.Sorted(maps.Keys(s.clusters.byName)) {
		if e := s.clusters.byName[name]; e.ActiveConfig != nil {
			next.Clusters = append(next.Clusters, e.ActiveConfig)
		}
	}
	tables := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.listeners.byName)) {
		e := s.listeners.byName[name]
		if e.ActiveConfig == nil {
			continue
		}
		next.Listeners = append(next.Listeners, e.ActiveConfig)
		next.Routes = append(next.Routes, e.Active.InlineTables...)
		addKeys(tables, e.Active.RouteConfigNames)
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		next.Routes = append(next.Routes, s.activeTable(name))
	}
}
