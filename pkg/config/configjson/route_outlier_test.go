package configjson

import (
	"os"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestFilterEnablesOutlierDetection verifies that the clusters of a listener's routes eject hosts
// as its filter requests.
func TestFilterEnablesOutlierDetection(t *testing.T) {
	data, err := os.ReadFile("testdata/accepted/fault_tolerance.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, diags := Parse("config.json", txtar.Parse(data).Files[0].Data, testCapabilities(), Options{})
	if s == nil {
		t.Fatal(diags)
	}
	want := map[string]int{"a": 1, "b": 1, "c": 1, "own": 0} // MaxEjectedHosts; 0: the cluster has its own outlier_detection
	for _, c := range s.Clusters {
		hosts, ok := want[c.Name]
		if (c.OutlierDetection != nil) != ok {
			t.Errorf("cluster %s has outlier detection: %v, want %v", c.Name, c.OutlierDetection != nil, ok)
		} else if ok && c.OutlierDetection.MaxEjectedHosts != hosts {
			t.Errorf("cluster %s ejects at most %d hosts, want %d", c.Name, c.OutlierDetection.MaxEjectedHosts, hosts)
		}
	}
}
