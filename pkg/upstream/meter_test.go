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

func (b *fakeMeter) Cluster(name string, _ Gauges) ClusterRecorder {
	b.opened = append(b.opened, name)
	return &fakeRecorder{b, name}
}

func (b *fakeMeter) Host(cluster, address string) Recorder {
	b.opened = append(b.opened, cluster+"/"+address)
	return &fakeRecorder{b, cluster + "/" + address}
}

func (b *fakeRecorder) Add(s metrics.Batch) { b.meter.observed[b.name] += s.Len() }

func (b *fakeRecorder) Close() { b.meter.closed = append(b.meter.closed, b.name) }

func (b *fakeRecorder) Count(e Event) { b.meter.events = append(b.meter.events, e) }

func (b *fakeRecorder) LimitReached(_ config.Priority, e Event) { b.Count(e) }

// accountFor calls Add for each scope of x.
func accountFor(x *protocol.Exchange) {
	var one metrics.Batch
	one.AddRequest(metrics.Request{})
	for _, p := range [...]protocol.Named{x.Record.Cluster, x.Record.Host()} {
		p.(metrics.Recorder).Add(one)
	}
}

func TestRecordersOfClustersAndHosts(t *testing.T) {
	w := newFakeConnector()
	w.refuses["a"] = true
	b := &fakeMeter{observed: map[string]int{}}
	s := newTestSet(t, w, func(o *Options) { o.Meter = b })
	apply(t, s, cluster("web", "a"), cluster("unused", "b"))
	wantList(t, "opened before the first exchange", b.opened)
	x := wantFault(t, s.Get("web"), protocol.ConnectFailure)
	wantList(t, "opened", b.opened, "web", "web/a")
	accountFor(x)
	w.set(w.refuses, "a", false)
	x = begin(t, s.Get("web"))
	finish(x)
	accountFor(x)
	if b.observed["web"] != 2 || b.observed["web/a"] != 2 {
		t.Errorf("observed = %v, want both exchanges at the cluster and the host", b.observed)
	}
	if h := s.Describe()[1].Hosts[0]; h.Attempts != 2 || h.Failures != 1 || h.Connects != 1 || h.ConnectFailures != 1 {
		t.Errorf("host counts = %+v", h)
	}
	apply(t, s)
	slices.Sort(b.closed)
	wantList(t, "closed", b.closed, "web", "web/a")
	want := []Event{ConnectFailed, HostDown, ConnectionOpened, HostUp}
	if got := b.events[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
	accountFor(x) // late: no recorder is opened again
	if n := len(b.opened); n != 2 {
		t.Errorf("%d recorders were opened, want 2", n)
	}
	apply(t, s, cluster("web", "a"))
	serveOne(t, s.Get("web"))
	wantList(t, "opened again", b.opened[2:], "web", "web/a")
}
