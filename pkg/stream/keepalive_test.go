package stream

import (
	"testing"
	"time"
)

func TestKeepalive(t *testing.T) {
	const never = -1
	type check struct {
		at, lastRead int // seconds
		want         KeepaliveAction
		next         int // seconds; never: the zero time
	}
	for _, tt := range []struct {
		name   string
		k      Keepalive
		checks []check
	}{
		{"without an interval there are no probes", Keepalive{Timeout: time.Second}, []check{
			{1000, 0, KeepaliveWait, never},
		}},
		{"a host that sends is not probed", Keepalive{Interval: 10 * time.Second, Timeout: 3 * time.Second}, []check{
			{5, 0, KeepaliveWait, 10},
			{10, 8, KeepaliveWait, 18},
			{18, 9, KeepaliveWait, 19},
		}},
		{"one unanswered probe is enough by default", Keepalive{Interval: 10 * time.Second, Timeout: 3 * time.Second}, []check{
			{10, 0, KeepaliveProbe, 13},
			{12, 0, KeepaliveWait, 13},
			{13, 0, KeepaliveFail, never},
		}},
		{"any bytes answer a probe", Keepalive{Interval: 10 * time.Second, Timeout: 3 * time.Second}, []check{
			{10, 0, KeepaliveProbe, 13},
			{13, 11, KeepaliveWait, 21},
			{21, 11, KeepaliveProbe, 24},
			{24, 11, KeepaliveFail, never},
		}},
		{"an answer in the instant of the probe counts", Keepalive{Interval: 10 * time.Second, Timeout: 3 * time.Second}, []check{
			{10, 0, KeepaliveProbe, 13},
			{13, 10, KeepaliveWait, 20},
		}},
		{"bytes read before a late probe was sent do not answer it", Keepalive{Interval: 10 * time.Second, Timeout: 3 * time.Second}, []check{
			{15, 0, KeepaliveProbe, 18},
			{18, 14, KeepaliveFail, never},
		}},
		{"a host may miss several probes", Keepalive{Interval: 10 * time.Second, Timeout: 10 * time.Second, MaxMissed: 3}, []check{
			{10, 0, KeepaliveProbe, 20},
			{20, 0, KeepaliveProbe, 30},
			{30, 0, KeepaliveProbe, 40},
			{40, 0, KeepaliveFail, never},
		}},
		{"only consecutive misses count", Keepalive{Interval: 10 * time.Second, Timeout: 10 * time.Second, MaxMissed: 2}, []check{
			{10, 0, KeepaliveProbe, 20},
			{20, 0, KeepaliveProbe, 30},
			{30, 25, KeepaliveWait, 35},
			{35, 25, KeepaliveProbe, 45},
			{45, 25, KeepaliveProbe, 55},
			{55, 25, KeepaliveFail, never},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Unix(1_000_000, 0)
			at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
			k := tt.k
			for _, c := range tt.checks {
				wantNext := time.Time{}
				if c.next != never {
					wantNext = at(c.next)
				}
				if got, next := k.Check(at(c.at), at(c.lastRead)); got != c.want || !next.Equal(wantNext) {
					t.Errorf("Check(%ds, %ds) = %v, %v; want %v, %v", c.at, c.lastRead, got, next, c.want, wantNext)
				}
			}
		})
	}
}
