package subset

import (
	"slices"
	"strconv"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestFind(t *testing.T) {
	type labels = map[string]string
	hosts := []labels{
		{"version": "1", "stage": "test"}, {"version": "1", "stage": "prod"}, {"version": "2", "stage": "prod"}, {"stage": "prod"}, nil,
	}
	selectors := [][]string{{"version"}, {"stage", "version"}, {"version"}, {}, {"version", "stage"}}
	index, subsets := Divide(selectors, len(hosts), func(i int) map[string]string { return hosts[i] })
	if len(subsets) != 5 {
		t.Errorf("%d subsets, want 5", len(subsets))
	}
	tests := []struct {
		name     string
		route    labels
		metadata labels
		want     []int32
	}{
		{"one label", labels{"version": "1"}, nil, []int32{0, 1}},
		{"two labels", labels{"version": "1", "stage": "prod"}, nil, []int32{1}},
		{"no labels", nil, nil, nil},
		{"labels that no selector has", labels{"stage": "prod"}, nil, nil},
		{"more labels than a selector", labels{"version": "1", "stage": "prod", "x": "y"}, nil, nil},
		{"value without hosts", labels{"version": "9"}, nil, nil},
		{"labels of a filter", nil, labels{"version": "2"}, []int32{2}},
		{"a label of a filter takes precedence", labels{"version": "1"}, labels{"version": "2"}, []int32{2}},
		{"labels of the route and of a filter", labels{"version": "1"}, labels{"stage": "test"}, []int32{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m protocol.Metadata
			for name, value := range tt.metadata {
				m.Set(protocol.BalancerNamespace, name, value)
			}
			var got []int32
			if i := index.Find(Request{Route: NewLabels(tt.route), Metadata: &m}); i >= 0 {
				got = subsets[i].Hosts
				for name, value := range subsets[i].Labels.Map() {
					if tt.metadata[name] != value && tt.route[name] != value {
						t.Errorf("the subset has the label %s=%s", name, value)
					}
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("hosts %v, want %v", got, tt.want)
			}
		})
	}
}

// TestFindCountsRepeatedLabelsOnce verifies that only the first value of each label counts, however
// many labels filters set.
func TestFindCountsRepeatedLabelsOnce(t *testing.T) {
	for _, count := range []int{1, 8, 9, 20} {
		host, names := map[string]string{}, []string(nil)
		var m protocol.Metadata
		for range 2 { // the second values are equal, too
			for i := range count {
				name := "label" + strconv.Itoa(i)
				host[name] = "value"
				m.Add(protocol.BalancerNamespace, name, "value")
			}
		}
		for name := range host {
			names = append(names, name)
			m.Add(protocol.BalancerNamespace, name, "other")
		}
		index, _ := Divide([][]string{names}, 1, func(int) map[string]string { return host })
		if got := index.Find(Request{Metadata: &m}); got != 0 {
			t.Errorf("%d labels with three values each: Find = %d, want 0", count, got)
		}
	}
}
