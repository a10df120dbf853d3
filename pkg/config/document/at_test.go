package document

import "testing"

func TestAt(t *testing.T) {
	root := Parse("a.yaml", []byte("listeners:\n- name: a\n  typedConfig:\n    x.y: {z: 1}\nclusters:\n  name: b\n"), Options{}, &Report{})
	for path, want := range map[string]Position{
		"":                                    {File: "a.yaml", Line: 1, Column: 1},
		"listeners[0].name":                   {File: "a.yaml", Line: 2, Column: 9},
		"listeners[0].typed_config[x.y].z":    {File: "a.yaml", Line: 4, Column: 14},
		"listeners[0].typed_config[x.y].none": {File: "a.yaml", Line: 4, Column: 10},
		"clusters[0].name":                    {File: "a.yaml", Line: 6, Column: 9}, // without a list
		"listeners[3]":                        {File: "a.yaml", Line: 2, Column: 1},
	} {
		if got := At(root, path).Position(); got != want {
			t.Errorf("At(%q) is at %v, want %v", path, got, want)
		}
	}
}
