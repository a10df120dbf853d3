package bootstrap

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// RuntimeLayer is a layer of the runtime: static, from RTDS, or an admin_layer, which stays empty.
type RuntimeLayer struct {
	Name     string          // unique
	Resource string          // name of the RTDS resource; "": static or an admin_layer
	Timeout  time.Duration   // how long listeners wait for the resource after the start; 0: no limit
	Values   *resource.Layer // nil: not received yet
}

// readRuntime reads layered_runtime of a bootstrap. An error is of type FieldErrors.
func (b *Bootstrap) readRuntime(data []byte) error {
	members, err := splitObject("layered_runtime", data, "layers")
	if err != nil {
		return err
	}
	list, err := splitList("layered_runtime.layers", members["layers"])
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for i, text := range list {
		field := fmt.Sprintf("layered_runtime.layers[%d]", i)
		fields, err := splitObject(field, text, "name", "static_layer", "rtds_layer", "admin_layer")
		if err != nil {
			return err
		}
		name, err := decodeString(field+".name", fields["name"])
		if err != nil {
			return err
		}
		if name == "" || names[name] {
			return FieldErrors{{field + ".name", fmt.Sprintf("found %q, expected a unique name", name)}}
		}
		names[name] = true
		delete(fields, "name")
		if len(fields) != 1 {
			return FieldErrors{{field, "expected exactly one of static_layer, rtds_layer and admin_layer"}}
		}
		layer, err := b.readRuntimeLayer(field, fields)
		if err != nil {
			return err
		}
		layer.Name = name
		b.Layers = append(b.Layers, layer)
	}
	return nil
}

// readRuntimeLayer reads a layer without its name.
func (b *Bootstrap) readRuntimeLayer(field string, members map[string]json.RawMessage) (RuntimeLayer, error) {
	if text, ok := members["static_layer"]; ok {
		field += ".static_layer"
		s := &structpb.Struct{}
		if err := decodeField(field, text, s); err != nil {
			return RuntimeLayer{}, err
		}
		values, err := resource.ReadLayer(field, s)
		if err != nil {
			return RuntimeLayer{}, fieldErrorsOf("", err) // the paths contain field
		}
		return RuntimeLayer{Values: values}, nil
	}
	if text, ok := members["rtds_layer"]; ok {
		return b.readRTDS(field+".rtds_layer", text)
	}
	_, err := splitObject(field+".admin_layer", members["admin_layer"]) // Weft has no admin endpoint that writes to the layer
	return RuntimeLayer{Values: &resource.Layer{}}, err
}

// decodeString reads a JSON string. It returns "" if data is empty.
func decodeString(field string, data []byte) (text string, err error) {
	if len(data) > 0 && json.Unmarshal(data, &text) != nil {
		return "", FieldErrors{{field, "expected a string"}}
	}
	return text, nil
}

// readRTDS reads an rtds_layer.
func (b *Bootstrap) readRTDS(field string, data []byte) (RuntimeLayer, error) {
	members, err := splitObject(field, data, "name", "rtds_config")
	if err != nil {
		return RuntimeLayer{}, err
	}
	name, err := decodeString(field+".name", members["name"])
	if err != nil {
		return RuntimeLayer{}, err
	}
	if name == "" {
		return RuntimeLayer{}, FieldErrors{{field + ".name", "is missing"}}
	}
	timeout, err := b.readInitialFetchTimeout(field+".rtds_config", members["rtds_config"])
	return RuntimeLayer{Resource: name, Timeout: timeout}, err
}

// RTDSNames returns the names of the RTDS layers.
func (b *Bootstrap) RTDSNames() (names []string) {
	for _, l := range b.Layers {
		if l.Resource != "" {
			names = append(names, l.Resource)
		}
	}
	return names
}

// MergeLayers returns the runtime of layers; later layers override earlier ones.
func MergeLayers(layers []RuntimeLayer) *resource.Runtime {
	var values []*resource.Layer
	for _, l := range layers {
		if l.Values != nil {
			values = append(values, l.Values)
		}
	}
	return resource.NewRuntime(values...)
}
