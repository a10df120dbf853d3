package bootstrap

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// RuntimeLayer is a layer of the runtime: static or from RTDS.
type RuntimeLayer struct {
	Resource string          // name of the RTDS resource; "": static
	Timeout  time.Duration   // how long listeners wait for it after the start; 0: no limit
	Values   *resource.Layer // nil: not received yet
}

// readRuntime reads layered_runtime of a bootstrap. An error is of type FieldErrors.
func (b *Bootstrap) readRuntime(data []byte) error {
	given, err := splitObject("layered_runtime", data, "layers")
	if err != nil {
		return err
	}
	list, err := splitList("layered_runtime.layers", given["layers"])
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for i, text := range list {
		field := fmt.Sprintf("layered_runtime.layers[%d]", i)
		all, err := splitObject(field, text, "name", "static_layer", "rtds_layer", "admin_layer")
		if err != nil {
			return err
		}
		name, err := decodeString(field+".name", all["name"])
		if err != nil {
			return err
		}
		if name == "" || names[name] {
			return FieldErrors{{field + ".name", fmt.Sprintf("found %q, expected a unique name", name)}}
		}
		names[name] = true
		delete(all, "name")
		if len(all) != 1 {
			return FieldErrors{{field, "expected exactly one of static_layer, rtds_layer and admin_layer"}}
		}
		one, err := b.readRuntimeLayer(field, all)
		if err != nil {
			return err
		}
		b.Layers = append(b.Layers, one...)
	}
	return nil
}

// readRuntimeLayer reads a layer without its name. It returns no layer for an admin_layer, which
// stays empty.
func (b *Bootstrap) readRuntimeLayer(field string, all map[string]json.RawMessage) ([]RuntimeLayer, error) {
	if text, ok := all["static_layer"]; ok {
		field += ".static_layer"
		s := &structpb.Struct{}
		if err := decodeField(field, text, s); err != nil {
			return nil, err
		}
		said, err := resource.ReadLayer(field, s)
		if err != nil {
			return nil, fieldErrorsOfReasons(err)
		}
		return []RuntimeLayer{{Values: said}}, nil
	}
	if text, ok := all["rtds_layer"]; ok {
		one, err := b.readRTDS(field+".rtds_layer", text)
		return []RuntimeLayer{one}, err
	}
	_, err := splitObject(field+".admin_layer", all["admin_layer"]) // there is no way to write to it
	return nil, err
}

// decodeString reads a JSON string; no data is "".
func decodeString(field string, data []byte) (text string, err error) {
	if len(data) > 0 && json.Unmarshal(data, &text) != nil {
		return "", FieldErrors{{field, "expected a string"}}
	}
	return text, nil
}

// readRTDS reads an rtds_layer.
func (b *Bootstrap) readRTDS(field string, data []byte) (RuntimeLayer, error) {
	all, err := splitObject(field, data, "name", "rtds_config")
	if err != nil {
		return RuntimeLayer{}, err
	}
	name, err := decodeString(field+".name", all["name"])
	if err != nil {
		return RuntimeLayer{}, err
	}
	if name == "" {
		return RuntimeLayer{}, FieldErrors{{field + ".name", "is missing"}}
	}
	limit, err := b.readInitialFetchTimeout(field+".rtds_config", all["rtds_config"])
	return RuntimeLayer{Resource: name, Timeout: limit}, err
}

// RTDSNames returns the names of the RTDS layers.
func (b *Bootstrap) RTDSNames() (all []string) {
	for _, l := range b.Layers {
		if l.Resource != "" {
			all = append(all, l.Resource)
		}
	}
	return all
}

// MergeLayers returns the runtime of layers, of which later ones override earlier ones.
func MergeLayers(layers []RuntimeLayer) *resource.Runtime {
	var said []*resource.Layer
	for _, l := range layers {
		if l.Values != nil {
			said = append(said, l.Values)
		}
	}
	return resource.NewRuntime(said...)
}
