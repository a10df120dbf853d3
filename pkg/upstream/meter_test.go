package upstream

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// fakeMeter records the calls of its recorders.
type fakeMeter struct {
	opened, closed []string
	observed       map[string]int
	events         []Event
}

type fakeRecorder struct {
	meter *fakeMeter
	name  string
}

func (m *fakeMeter) Cluster(name string, _ Gauges) ClusterRecorder {
	m.opened = append(m.opened, name)
	return &fakeRecorder{m, name}
}

func (m *fakeMeter) Host(cluster, address string) Recorder {
	m.opened = append(m.opened, cluster+"/"+address)
	return &fakeRecorder{m, cluster + "/" + address}
}

func (r *fakeRecorder) Add(b metrics.Batch) { r.meter.observed[r.name] += b.Len() }

func (r *fakeRecorder) Close() { r.meter.closed = append(r.meter.closed, r.name) }

func (r *fakeRecorder) Count(e Event) { r.meter.events = append(r.meter.events, e) }

func (r *fakeRecorder) LimitReached(_ config.Priority, e Event) { r.Count(e) }

// addToScopes calls Add for each scope of x.
func addToScopes(x *protocol.Exchange) {
	var b metrics.Batch
	b.AddRequest(metrics.Request{})
	for _, scope := range [...]protocol.Named{x.Record.Cluster, x.Record.Host()} {
		scope.(metrics.Recorder).Add(b)
	}
}

func TestRecordersOfClustersAndHosts(t *testing.T) {
	f := newFakeConnector()
	f.refuses["a"] = true
	m := &fakeMeter{observed: map[string]int{}}
	s := newTestSet(t, f, func(o *Options) { o.Meter = m })
	apply(t, s, cluster("web", "a"), cluster("unused", "b"))
	wantList(t, "opened before the first exchange", m.opened)
	x := wantFault(t, s.Get("web"), protocol.ConnectFailure)
	wantList(t, "opened", m.opened, "web", "web/a")
	addToScopes(x)
	f.set(f.refuses, "a", false)
	x = begin(t, s.Get("web"))
	finish(x)
	addToScopes(x)
	if m.observed["web"] != 2 || m.observed["web/a"] != 2 {
		t.Errorf("observed = %v, want both exchanges at the cluster and the host", m.observed)
	}
	if h := s.Describe()[1].Hosts[0]; h.Attempts != 2 || h.Failures != 1 || h.Connects != 1 || h.ConnectFailures != 1 {
		t.Errorf("host counts = %+v; want 2 attempts, 1 failure, 1 connect, 1 connect failure", h)
	}
	apply(t, s)
	slices.Sort(m.closed)
	wantList(t, "closed", m.closed, "web", "web/a")
	want := []Event{ConnectFailed, HostDown, ConnectionOpened, HostUp}
	if got := m.events[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
	addToScopes(x) // late: no recorder is opened again
	if n := len(m.opened); n != 2 {
		t.Errorf("%d recorders were opened, want 2", n)
	}
	apply(t, s, cluster("web", "a"))
	serveOne(t, s.Get("web"))
	wantList(t, "opened again", m.opened[2:], "web", "web/a")
}
