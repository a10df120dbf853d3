package inspect

import (
	"net/http"

	"github.com/weft-proxy/weft/internal/admin"
)

// RuntimeLayer is a layer of the runtime. Later layers override earlier ones.
type RuntimeLayer struct {
	Name   string
	Values map[string]string // text of each value, by key; nil: not received yet
}

// EnvoyRuntime is the response body of /runtime. It has the format of Envoy's page.
type EnvoyRuntime struct {
	Entries map[string]EnvoyRuntimeEntry `json:"entries"` // by key
	Layers  []string                     `json:"layers"`  // names; later layers override earlier ones
}

// EnvoyRuntimeEntry is a key of the runtime.
type EnvoyRuntimeEntry struct {
	Final  string   `json:"final_value"`
	Values []string `json:"layer_values"` // one for each layer; "": the layer does not have the key
}

// NewEnvoyRuntime returns the runtime in Envoy's format.
func NewEnvoyRuntime(layers []RuntimeLayer) EnvoyRuntime {
	out := EnvoyRuntime{Entries: map[string]EnvoyRuntimeEntry{}, Layers: []string{}}
	for i, l := range layers {
		out.Layers = append(out.Layers, l.Name)
		for key, text := range l.Values {
			e := out.Entries[key]
			if e.Values == nil {
				e.Values = make([]string, len(layers))
			}
			e.Values[i] = text
			if text != "" { // in Envoy, an empty text does not override
				e.Final = text
			}
			out.Entries[key] = e
		}
	}
	return out
}

// runtime serves /runtime.
func (s *Sources) runtime(w http.ResponseWriter, _ *http.Request) {
	admin.WriteJSON(w, http.StatusOK, NewEnvoyRuntime(s.Runtime()))
}
