package upstream

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/outlier"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// outlierDetection runs the outlier detection of a cluster: it calls the detector at the end of
// each interval, and logs and counts the changes.
type outlierDetection struct {
	cluster  *Cluster          // immutable
	detector *outlier.Detector // immutable

	mu     sync.Mutex
	closed bool        // guarded by mu
	timer  *time.Timer // guarded by mu
}

// configureOutlierDetection starts outlier detection for hosts according to cfg; nil stops it. If
// cfg is unchanged, the statistics stay; otherwise the ejections end. The caller holds c.mu.
func (c *Cluster) configureOutlierDetection(cfg *config.OutlierDetection, hosts []*Host) {
	if o := c.outlier; o != nil {
		if cfg.Equal(o.detector.Configuration()) {
			o.setHosts(hosts)
			return
		}
		o.close()
	}
	c.outlier = nil
	if cfg == nil {
		return
	}
	o := &outlierDetection{cluster: c}
	o.detector = outlier.New(outlier.Config{
		OutlierDetection: cfg,
		Now:              c.env.now,
		Random:           c.env.random,
		OnChange:         o.reportChange,
		OnOverflow:       func() { c.count(EjectionOverflow) },
	})
	c.outlier = o
	o.setHosts(hosts)
	o.startTimer(cfg.Interval)
}

func (o *outlierDetection) setHosts(hosts []*Host) {
	list := make([]outlier.Host, len(hosts))
	for i, h := range hosts {
		list[i] = outlierHost{h}
	}
	o.detector.SetHosts(list)
}

func (o *outlierDetection) startTimer(interval time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cluster.env.tasks.AddTimer()
	o.timer = time.AfterFunc(interval, o.runInterval)
}

// runInterval runs on the timer at the end of each interval.
func (o *outlierDetection) runInterval() {
	o.cluster.env.tasks.RunRecovered("evaluating outliers", o.detector.EndInterval)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.cluster.env.tasks.TimerDone()
		return
	}
	o.timer.Reset(o.detector.Configuration().Interval)
}

// close stops the timer and ends all ejections.
func (o *outlierDetection) close() {
	o.mu.Lock()
	o.closed = true
	if o.timer.Stop() {
		o.cluster.env.tasks.TimerDone()
	} // otherwise runInterval calls TimerDone
	o.mu.Unlock()
	for _, h := range o.detector.Close() {
		hostOf(h).healthChanged(HostUp)
	}
}

// reportChange logs and counts a change. The detector does not hold its lock.
func (o *outlierDetection) reportChange(change outlier.Change) {
	c, h := o.cluster, hostOf(change.Host)
	event := HostDown
	if change.Reason == "" {
		c.env.Log.Info("upstream host returns from its ejection", logCluster, c.name, logHost, h.address)
		event = HostUp
	} else {
		c.count(HostEjected)
		c.env.Log.Warn("upstream host ejected", logCluster, c.name, logHost, h.address, logDetector, change.Reason, logPause, change.Duration)
	}
	if change.HealthChanged {
		h.healthChanged(event)
	}
}

// outlierHost adapts a Host to outlier.Host.
type outlierHost struct{ host *Host }

// hostOf returns the Host behind an outlier.Host.
func hostOf(h outlier.Host) *Host { return h.(outlierHost).host } //nolint:forcetypeassert // setHosts passes no others

// Stats implements outlier.Host.
func (o outlierHost) Stats() *atomic.Pointer[outlier.Stats] { return &o.host.outlierStats }

// SetEjected implements outlier.Host.
func (o outlierHost) SetEjected(ejected bool) (changed bool) {
	if ejected {
		return o.host.health.Set(hosthealth.Ejected)
	}
	return o.host.health.Clear(hosthealth.Ejected)
}

// recordAttempt counts the attempt at the host that has just ended with err, or with the response
// in x. x may be nil if err is not nil.
func (h *Host) recordAttempt(x *protocol.Exchange, err error) {
	s := h.outlierStats.Load()
	if s == nil {
		return
	}
	if err == nil {
		s.RecordHead(x.Response.Status, x.Record.Listener == nil)
		return
	}
	reason := protocol.ReasonOf(err)
	var notSent *pool.NotSentError
	if errors.As(err, &notSent) && reason != protocol.ConnectFailure && reason != protocol.ConnectTimeout {
		return // the exchange got no connection, which says nothing about the host
	}
	s.RecordFailure(reason)
}

// recordOutcome counts n exchanges with the same result whose last attempts were at the host, or
// one attempt whose response is discarded.
func (h *Host) recordOutcome(o outlier.Outcome, n int) {
	if o.FailedAtEnd() {
		h.badResponses.Add(uint64(n)) //nolint:gosec // n is not negative
	}
	if s := h.outlierStats.Load(); s != nil {
		s.RecordExchanges(o, n)
	}
}

// ResponseDiscarded records that a retry or a hedge is about to discard the host's response in x.
// It evaluates only the head of the response.
func (h *Host) ResponseDiscarded(x *protocol.Exchange) {
	if x.Record.Listener == nil {
		return
	}
	h.recordOutcome(outlier.Outcome{
		Protocol: config.Protocol(x.Meta.Protocol),
		Status:   x.Response.Status,
		Code:     protocol.GRPCStatus(&x.Response),
	}, 1)
}

// recordCheckPassed records that an active check has passed.
func (h *Host) recordCheckPassed() {
	if s := h.outlierStats.Load(); s != nil && h.health.Has(hosthealth.Ejected) {
		s.RecordCheckPassed()
	}
}
