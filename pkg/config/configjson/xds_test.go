package configjson

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestRefreshDelayOfMOSN verifies that ads_config.refresh_delay may be an object of seconds and
// nanos, as in MOSN's files, and that an object with other members is kept for package xds.
func TestRefreshDelayOfMOSN(t *testing.T) {
	for text, want := range map[string]string{
		`"300s"`:                         `"300s"`,
		`{"seconds": 300}`:               `"300s"`,
		`{"seconds": 1, "nanos": 5e8}`:   `{"nanos":500000000,"seconds":1}`,
		`{"seconds": 1, "nanos": 50000}`: `"1.00005s"`,
		`{"nanos": 500000000}`:           `"0.5s"`,
		`{}`:                             `"0s"`,
		`{"seconds": -1}`:                `{"seconds":-1}`,
		`{"seconds": "1"}`:               `{"seconds":"1"}`,
		`{"nanos": 1000000000}`:          `{"nanos":1000000000}`,
		`{"minutes": 1}`:                 `{"minutes":1}`,
	} {
		for _, keys := range [][2]string{{"ads_config", "refresh_delay"}, {"adsConfig", "refreshDelay"}} {
			file := fmt.Sprintf(`{"servers": [{}], "dynamic_resources": {%q: {"api_type": "GRPC", %q: %s}}}`, keys[0], keys[1], text)
			s, diags := Parse("a.json", []byte(file), testCapabilities(), Options{})
			if s == nil {
				t.Fatalf("%s: %v, want no error", file, diags)
			}
			var got map[string]map[string]json.RawMessage
			if err := json.Unmarshal(s.Bootstrap.DynamicResources, &got); err != nil {
				t.Fatal(err)
			}
			if delay := string(got[keys[0]][keys[1]]); delay != want {
				t.Errorf("%s: refresh_delay %s, want %s", text, delay, want)
			}
		}
	}
}
