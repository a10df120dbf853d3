package faulttolerance

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
)

var update = flag.Bool("update", false, "write the tables of README.md")

// outlierOf returns the outlier detection settings for the filter's settings.
func outlierOf(t *testing.T, s filtertest.Settings) *config.OutlierDetection {
	t.Helper()
	d, ok := filtertest.Decode(t, Factory(), s).(filter.OutlierPolicy)
	if !ok {
		t.Fatal("the filter has no outlier policy")
	}
	return d.Outlier()
}

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	o := outlierOf(t, examples[0])
	if o == nil || o.FailureMultiple.Multiple != 3 || o.BaseEjectionTime != time.Minute {
		t.Errorf("policy of the example = %+v, want the multiple 3 and an ejection time of a minute", o)
	}
}

func TestOutlierSettings(t *testing.T) {
	defaults := &config.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 15 * time.Minute, MaxEjectionTime: 15 * time.Minute, MaxEjectionPercent: 100, MaxEjectedHosts: 1,
		FailureMultiple: config.FailureMultiple{Multiple: 5, RequestVolume: 10},
		FailureStatuses: []int{502, 503, 504},
	}
	tests := []struct {
		name     string
		settings filtertest.Settings
		want     *config.OutlierDetection
	}{
		{"empty", `{}`, nil},
		{"disabled", `{"enabled": false, "timeWindow": 5000}`, nil},
		{"defaults", `{"enabled": true}`, defaults},
		{"0 means the default", `{"enabled": true, "timeWindow": 0, "leastWindowCount": 0, "exceptionRateMultiple": 0, "maxIpCount": 0, "recoverTime": 0}`, defaults},
		{"all settings", `{"enabled": true, "exceptionTypes": [500], "timeWindow": 10, "leastWindowCount": 100, "exceptionRateMultiple": 1.5, "maxIpCount": 3, "recoverTime": 60000}`,
			&config.OutlierDetection{
				Interval: 10 * time.Millisecond, BaseEjectionTime: time.Minute, MaxEjectionTime: time.Minute, MaxEjectionPercent: 100, MaxEjectedHosts: 3,
				FailureMultiple: config.FailureMultiple{Multiple: 1.5, RequestVolume: 100},
				FailureStatuses: []int{500},
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, outlierOf(t, tt.settings)); diff != "" {
				t.Errorf("policy of %s (-want +got):\n%s", tt.settings, diff)
			}
		})
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for settings, want := range map[filtertest.Settings]string{
		`{"timeWindow": 9}`:             "shorter than 10 ms",
		`{"exceptionRateMultiple": 1}`:  "greater than 1",
		`{"exceptionTypes": [99]}`:      "not an HTTP status",
		`{"maxIpCount": -1}`:            "maxIpCount",
		`{"exceptionRateMultiples": 2}`: "exceptionRateMultiple",
		`{"recoverTime": "15m"}`:        "recoverTime",
	} {
		if got := filtertest.DecodeErrors(t, Factory(), settings); !strings.Contains(got, want) {
			t.Errorf("%s is rejected with %s, want %q", settings, got, want)
		}
	}
}
