package configjson

import (
	"os"
	"testing"

	"golang.org/x/tools/txtar"
)

// The clusters that a listener's routes lead to eject hosts as its filter asks.
func TestFiltersHaveClustersWatched(t *testing.T) {
	data, err := os.ReadFile("testdata/accepted/fault_tolerance.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, diags := Parse("config.json", txtar.Parse(data).Files[0].Data, testKinds(), Options{})
	if s == nil {
		t.Fatal(diags)
	}
	want := map[string]int{"a": 1, "b": 1, "c": 1, "own": 0} // MaxHosts; none if it is not here
	for _, c := range s.Clusters {
		hosts, watched := want[c.Name]
		if (c.Outlier != nil) != watched {
			t.Errorf("cluster %s looks for outliers: %v, want %v", c.Name, c.Outlier != nil, watched)
		} else if watched && c.Outlier.MaxHosts != hosts {
			t.Errorf("cluster %s ejects %d hosts at most, want %d", c.Name, c.Outlier.MaxHosts, hosts)
		}
	}
}
